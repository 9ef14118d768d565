"""The changelogs that count for a pipeline's table, and the versions of one row in them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ticdc_replay.changelog.copies.keyed_rows import KeyedReference, KeyedRow, references_with_hash, rows_with_key
from ticdc_replay.changelog.files.index import ChangelogIndex, DataFile, TableVersion
from ticdc_replay.changelog.files.reading import file_name, read_index
from ticdc_replay.changelog.files.version_order import VersionOrder, place
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.ddl.reader import key_of
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.quarantine.entries import Selection, active_runs
from ticdc_replay.stages.selection import undecoded
from ticdc_replay.stages.set_aside import sets_aside
from ticdc_replay.stages.trace.row_key import TypedKeys
from ticdc_replay.stages.window.bases import find_bases
from ticdc_replay.stages.window.derive import is_shared
from ticdc_replay.state.quarantine import Redrive

_REQUESTS = 16
"""Indexes that are read at once."""
_READERS = 4
"""Files that are read at once; each holds a batch of about 64 MiB at most."""


class Unread(msgspec.Struct, frozen=True, order=True):
    """A window of which a part could not be looked at, so that it may have versions of the row."""

    window: Window
    run_hash: str
    why: str


class FoundRowVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the row in the changelog of *run_hash*."""

    run_hash: str
    window: Window
    order: VersionOrder
    file: str
    """Below the pipeline's artefacts."""
    read_by: str
    """The run that read the message from Kafka, or out of a quarantine: the file is in its folder."""
    row: KeyedRow

    @property
    def number(self) -> int:
        """The commitTs (TSO), or the place where rows are ordered by it."""
        if self.order == "place":
            return place(self.row.place.partition, self.row.place.offset)
        assert self.row.commit_ts is not None, "rows of windows by commitTs have one"
        return self.row.commit_ts


class Changelogs:
    """The changelogs that count: of each window the last run, each run that a target holds, re-drives of these, and bases.

    What could not be read is in ``unread``.
    """

    def __init__(self, context: ReplayContext, table: TableName) -> None:
        self._context = context
        self._table = table
        self.unread: list[Unread] = []
        self.indexes: dict[str, ChangelogIndex] = {}
        """By run, those that were decoded for the table, without what is of other tables."""
        self.alike: set[TableName] = set()
        """Tables whose names differ from the wanted one in letter case alone."""
        self.redrives: dict[str, list[Redrive]] = {}
        """Of the runs that set anything aside, by run."""
        state, pipeline = context.state, context.pipeline.name
        held = {record.run_hash for record in state.coverage.all(pipeline) if record.place in context.places.values()}
        runs: dict[str, Window] = {}
        for run in active_runs(context, Selection()):
            if run.run_hash not in held and is_shared(context, run):
                continue  # its rows are in the changelogs of the windows that share it
            runs[run.run_hash] = run.window
            if sets_aside(run):
                self.redrives[run.run_hash] = found = state.quarantine.redrives(pipeline, run.run_hash)
                runs |= {redrive.redrive_hash: run.window for redrive in found}
        # A base has no manifest of a window. One that no target holds may be what a mirror is built again from.
        runs |= {base.run_hash: base.window for base in find_bases(context)}
        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="trace") as pool:
            for run_hash, opened in zip(runs, pool.map(self._open, runs), strict=True):
                if isinstance(opened, ChangelogIndex):
                    self.indexes[run_hash] = opened
                else:
                    self.unread.append(Unread(runs[run_hash], run_hash, opened))

    def _open(self, run_hash: str) -> ChangelogIndex | str:
        """What the index of the run has of the table; a text if it has nothing, and why."""
        try:
            index = read_index(self._context.artifacts, run_hash)
        except ArtifactNotFoundError:
            return "its changelog is not there: it is not decoded to the end, or was removed"
        if undecoded(index, [str(self._table)]):
            return "it was decoded for other tables only"
        self.alike.update(
            name for name in index.table_names() if key_of(name) == key_of(self._table) and name != self._table
        )
        # There may be thousands of windows.
        return msgspec.structs.replace(
            index,
            tables=tuple(index.versions_of(self._table)),
            ranges=(),
            ddl=(),
            other_ddl=(),
            changes=(),
            definitions=(),
            unsearched=None,
            sparse_index_files=(),
        )

    @property
    def versions(self) -> list[TableVersion]:
        """The versions of the table's schema that have rows."""
        return [version for index in self.indexes.values() for version in index.versions_of(self._table)]

    def versions_with(self, keys: TypedKeys) -> list[FoundRowVersion]:
        """All versions of the row with *keys*, in order of time. Memory grows with their number alone."""
        tasks = [
            (index, version, file)
            for index in self.indexes.values()
            for version in index.versions_of(self._table)
            for file in version.files
            if keys.of(version.schema) is not None
        ]
        found: list[FoundRowVersion] = []
        with ThreadPoolExecutor(_READERS, thread_name_prefix="trace") as pool:
            for rows, unread in pool.map(lambda task: self._read(keys, *task), tasks):
                found += rows
                self.unread += unread
        return sorted(found, key=lambda each: (each.number, each.row.is_put, each.window, each.run_hash))

    def references_of(self, found: Sequence[FoundRowVersion]) -> dict[str, list[KeyedReference]]:
        """The claim-check references of all copies of the row that the runs of *found* met, by the run that read them."""
        hashes: dict[str, set[bytes]] = {}
        for each in found:
            hashes.setdefault(each.read_by, set()).add(each.row.hash)
        references: dict[str, list[KeyedReference]] = {}
        for run_hash, wanted in hashes.items():
            try:
                index = self.indexes.get(run_hash) or read_index(self._context.artifacts, run_hash)
                references[run_hash] = list(references_with_hash(self._context.artifacts, index, self._table, wanted))
            except ArtifactNotFoundError as error:
                windows = {each.window for each in found if each.read_by == run_hash}
                self.unread += [Unread(window, run_hash, str(error)) for window in windows]
        return references

    def _read(
        self, keys: TypedKeys, index: ChangelogIndex, version: TableVersion, file: DataFile
    ) -> tuple[list[FoundRowVersion], list[Unread]]:
        cells = keys.of(version.schema)
        assert cells is not None, "only such files are read"
        try:
            rows = list(rows_with_key(self._context.artifacts, index, file, cells))
        except ArtifactNotFoundError as error:
            return [], [Unread(index.window, index.run_hash, str(error))]
        made = [
            FoundRowVersion(
                run_hash=index.run_hash,
                window=index.window,
                order=index.order,
                file=file_name(index, file),
                read_by=file.run or index.run_hash,
                row=row,
            )
            for row in rows
        ]
        return made, []
