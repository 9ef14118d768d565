"""Pins and decodes windows of real topics with the library's own stages and driver; tasks run here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from tests.support.in_process import InProcess
from ticdc_replay import jobspec
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.window.jobs import write_decode_job
from ticdc_replay.stages.window.pin import pin


def pipeline_for(folder: Path, bootstrap: str, topic: str, config: str | None = None, **more: Any) -> ReplayContext:
    """A pipeline over *topic* with its artefacts and state in *folder*; *more* are sections of its file."""
    changefeed: dict[str, Any] = {"sink_uri": f"kafka://b:9092/{topic}?protocol=open-protocol", "timezone": "UTC"}
    if config is not None:
        changefeed["config"] = config
    declared = {
        "name": "shop",
        "changefeed": changefeed,
        "connections": {"kafka": "kafka"},
        "artifacts": (folder / "artifacts").as_uri(),
        "tables": ["shop.*"],
        "schedule": {"start": "2020-01-01T00:00:00Z"},
        "targets": [{"name": "lake", "type": "parquet", "uri": (folder / "lake").as_uri()}],
        **more,
    }
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump(declared))
    kafka = Connection(conn_id="kafka", conn_type="kafka", extra={"bootstrap.servers": bootstrap})
    return ReplayContext(load_pipeline(file), Connections({"kafka": kafka}))


def decode(
    context: ReplayContext,
    pinned: PinnedManifest,
    then: Callable[[ReplayContext, str], object] = check,
    tables: tuple[str, ...] | None = None,
) -> ChangelogIndex:
    """Decode what was *pinned* as a run does, for all tables or for *tables*, and record what was found."""

    written = write_decode_job(context, pinned, tables)
    job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(f"{context.artifacts_uri}/")))
    assert isinstance(job, jobspec.DecodeJob)
    index = run_decode(InProcess(), job, context.connections)
    then(context, index.run_hash)
    return index


def replay(context: ReplayContext, window: Window) -> ChangelogIndex:
    """Pin and decode *window*."""
    return decode(context, pin(context, window))


def rows_of(context: ReplayContext, index: ChangelogIndex) -> list[tuple[str, dict[str, Any]]]:
    """(table, row) of every row of the changelog."""
    filesystem, base = context.artifacts.arrow_filesystem()
    found = []
    for version in index.tables:
        for file in version.files:
            path = f"{base}/{changelog_root(file.run or index.run_hash)}/{file.name}"
            for row in pq.read_table(path, filesystem=filesystem, partitioning=None).to_pylist():
                if file.only is None or row["_commit_ts"] in file.only:
                    found.append((str(version.schema.name), row))
    return found
