"""Re-driven messages, added to the files of their window.

``fold/`` has the last version of each row of a window, so files can't just be added: tables with re-driven rows are
written again from the changelogs of the window's run, earlier re-drives, and this one, without ``repeats``.
"""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex, TableVersion
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.parquet.entries import TableEntry

Runs = tuple[str, ...]
"""The run of a window, then re-drives of its quarantine in the order in which they were loaded."""


def runs_of(load: Load, table: TableName, before: TableEntry | None) -> Runs:
    """The runs whose rows of *table* the target has after *load*, a re-drive; *before* is its present entry. Raises
    PermanentError if another run has replaced the window's files."""
    first, own = load.index.redrives, load.index.run_hash
    assert first is not None
    runs = runs_in(before) or (first,)
    if runs[0] != first:
        raise PermanentError(
            f"target {load.target} has run {runs[0]} of window {load.index.window} for {table}, and this is a re-drive of the "
            f"quarantine of run {first}: re-drive that of run {runs[0]}"
        )
    return runs if own in runs else (*runs, own)


def runs_in(entry: TableEntry | None) -> Runs:
    """The runs whose rows are in the files of *entry*; none where there is none."""
    return () if entry is None else entry.runs or (entry.run_hash,)


def with_rows_before(load: Load, runs: dict[TableName, Runs]) -> Load:
    """*load* with the rows of all *runs* of each table in its index, each data file with its run."""
    others = {run for table in runs.values() for run in table if run != load.index.run_hash}
    indexes = {run: load.index_of(run, runs) for run in sorted(others)} | {load.index.run_hash: load.index}
    versions = [
        version for table, names in runs.items() for version in _merged([(run, indexes[run]) for run in names], table)
    ]
    ddl = sorted(
        {entry for index in indexes.values() for entry in index.ddl},
        key=attrgetter("commit_ts", "topic", "partition", "offset"),
    )
    changes = dict.fromkeys(entry for index in indexes.values() for entry in index.changes)
    in_order = tuple(sorted(changes, key=attrgetter("commit_ts")))
    return load.with_index(tables=tuple(versions), ddl=tuple(ddl), changes=in_order)


def _merged(indexes: Sequence[tuple[str, ChangelogIndex]], table: TableName) -> list[TableVersion]:
    found: dict[str, TableVersion] = {}
    for run, index in indexes:
        for version in index.versions_of(table):
            files = [msgspec.structs.replace(file, run=file.run or run) for file in version.files]
            before = found.get(version.version)
            if before is not None:
                files = [*before.files, *files]
            rows = sum(file.rows for file in files)
            found[version.version] = msgspec.structs.replace(before or version, files=tuple(files), rows=rows)
    return list(found.values())
