"""Writes the last version of each row of a window as lines of JSON, one file per run and table."""

import json

import msgspec
import pyarrow.parquet as pq

from acme_lines.section import LinesTarget
from ticdc_replay.changelog.files.parts import batch_rows
from ticdc_replay.storage import open_store
from ticdc_replay.targets.base import Execute, Load, Loaded, StoreAddress, TableReport, Target
from ticdc_replay.targets.files import file_errors
from ticdc_replay.targets.last_versions import Fold, LastVersions, fold_groups, found_last_versions, winning_rows


class WriteTask(msgspec.Struct, frozen=True):
    """The files of one table, and the object that its rows go to."""

    artifacts: StoreAddress
    fold: Fold
    uri: str
    name: str


class Lines(Target[LinesTarget]):
    """Writes windows as lines of JSON. A repeat replaces a file by the same; another run has files of its own."""

    def load(self, load: Load, execute: Execute) -> Loaded:
        groups = fold_groups(load, {table: load.index.versions_of(table) for table in load.tables})
        tasks = [
            WriteTask(load.artifacts, group.fold, self.config.uri, f"{load.index.run_hash}/{group.fold.table}.jsonl")
            for group in groups
        ]
        with found_last_versions(load, groups, execute):
            written = execute(write_lines, tasks, "write lines")
        return Loaded(
            tuple(
                TableReport(
                    table=task.fold.table,
                    outcome="loaded",
                    destination=f"{task.uri}/{task.name}",
                    events=(events := sum(file.file.rows for file in group.files)),
                    keys=keys,
                    folded=events - keys,
                    upserted=keys,
                )
                for task, group, keys in zip(tasks, groups, written, strict=True)
            )
        )


def write_lines(task: WriteTask) -> int:
    """Write the last versions of one table; how many there are."""
    filesystem, root = task.artifacts.open().arrow_filesystem()
    found, lines = LastVersions(filesystem, root), []
    for number, name in enumerate(task.fold.files):
        positions = found.positions(task.fold, number)
        with file_errors(f"read {name}"), pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) as file:
            for rows in winning_rows(file, positions, batch_rows(file.metadata)):
                lines += [json.dumps(row, default=str) for row in rows.select(["_op", "after"]).to_pylist()]
    open_store(task.uri).put(task.name, "\n".join(lines).encode())
    return len(lines)
