"""Pins what a run reads."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ticdc_replay.airflow.form import RunOptions, run_options, run_window
from ticdc_replay.airflow.operators.base import ReplayOperator, logged
from ticdc_replay.airflow.xcom import Pinned, encode
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.window import Window

if TYPE_CHECKING:
    from ticdc_replay.stages.context import ReplayContext


class SnapshotOperator(ReplayOperator):
    """Fixes the window's input in a manifest, and writes the job spec of the decode.

    In a dry run it only logs what the run would read, and keeps nothing. Raises PolicyStopError then where the window can't be
    replayed completely.
    """

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.selection import selected_tables
        from ticdc_replay.stages.window.jobs import write_decode_job
        from ticdc_replay.stages.window.pin import pin

        window, options = run_window(context), run_options(context)
        with self.opened() as replay:
            tables = selected_tables(replay.pipeline, options.tables)
            if options.dry_run:
                return self._plan(replay, window, options)
            pinned = pin(replay, window, repin=options.repin, policy=options.pin)
            manifest = pinned.manifest
            ranges = manifest.ranges()
            summary: dict[str, Any] = {
                "grade": manifest.grade,
                "input_hash": manifest.input_hash,
                "partitions": len(ranges),
                "messages": sum(part.length for part in ranges),
                "claim_check_objects": manifest.inventory.count if manifest.inventory else None,
            }
            self.log.info("window: %s, manifest: %s", window, pinned.uri)
            logged(self.log, summary)
            for part in ranges:
                self.log.info("%s[%d]: offsets %d to %d", part.topic, part.partition, part.start, part.end)
            for source in manifest.derived:
                self.log.info("%s is taken from changelog %s, not from Kafka", source.window, source.run_hash)
            if manifest.shared is not None:
                self.log.info("Taken from the decode of %s", manifest.shared.window)
            for reason in manifest.reasons:
                self.log.warning("Not proven: %s", reason)
            handed_over = Pinned(str(window), pinned.uri, write_decode_job(replay, pinned, tables))
        return {**summary, **encode(handed_over)}

    def _plan(self, replay: "ReplayContext", window: Window, options: RunOptions) -> dict[str, Any]:
        from ticdc_replay.stages.window.plan import plan
        from ticdc_replay.stages.window.plan_text import lines

        made = plan(replay, [window], options.tables, targets=options.targets, policy=options.pin, repin=options.repin)
        for line in lines(made):
            self.log.info("%s", line)
        (planned,) = made.windows
        if planned.refusals:
            raise PolicyStopError(f"window {window} can't be replayed completely: {'; '.join(planned.refusals)}")
        self.log.info("Dry run: nothing is pinned, decoded or loaded")
        return {
            "window": str(window),
            "grade": planned.grade,
            "complete_in_kafka": planned.waits_for is None,
            "partitions": planned.partitions,
            "messages": planned.messages,
            "bytes": planned.bytes,
            "rows": planned.wanted,
            "claim_check_objects": planned.claim_checks,
            "minutes": round(planned.seconds / 60, 1),
        }
