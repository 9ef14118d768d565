"""Pins what a run reads."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ticdc_replay.airflow.form import run_options, run_window
from ticdc_replay.airflow.operators.base import ReplayOperator, open_replay


class SnapshotOperator(ReplayOperator):
    """Fixes the window's input in a manifest, and writes the job spec of the decode (not in a dry run)."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.jobs import write_decode_job
        from ticdc_replay.stages.pin import pin
        from ticdc_replay.stages.selection import selected_tables

        window, options = run_window(context), run_options(context)
        with open_replay(self.pipeline_file) as replay:
            tables = selected_tables(replay.pipeline, options.tables)
            pinned = pin(replay, window, repin=options.repin, policy=options.pin)
            manifest = pinned.manifest
            ranges = manifest.ranges()
            summary: dict[str, Any] = {
                "window": str(window),
                "grade": manifest.grade,
                "manifest": pinned.uri,
                "input_hash": manifest.input_hash,
                "partitions": len(ranges),
                "messages": sum(part.length for part in ranges),
                "claim_check_objects": manifest.inventory.count if manifest.inventory else None,
            }
            for name, value in summary.items():
                self.log.info("%s: %s", name, value)
            for part in ranges:
                self.log.info("%s[%d]: offsets %d to %d", part.topic, part.partition, part.start, part.end)
            for source in manifest.derived:
                self.log.info("%s is taken from changelog %s, not from Kafka", source.window, source.run_hash)
            if manifest.shared is not None:
                self.log.info("Taken from the decode of %s", manifest.shared.window)
            for reason in manifest.reasons:
                self.log.warning("Not proven: %s", reason)
            if options.dry_run:
                self.log.info("Dry run: nothing is decoded or loaded")
                return summary
            job = write_decode_job(replay, pinned, tables)
        shared = None if job.shared is None else msgspec.structs.asdict(job.shared)
        return summary | {"run_hash": job.run_hash, "decode_job": job.uri, "shared": shared}
