"""Compares mirrors of one target, table by table: what a job of the kind ``verify`` does."""

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from operator import attrgetter
from typing import Any

import msgspec

from ticdc_replay.changefeed.rules import SourceTable
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain import canonical, tso
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError, PermanentError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.jobspec import ComparedMirror, VerifyJob
from ticdc_replay.large_messages.source_session import SourceSession
from ticdc_replay.storage import ObjectStore
from ticdc_replay.targets.load import open_target
from ticdc_replay.targets.mirror.comparison import ComparableMirror, Comparisons, MirrorTable
from ticdc_replay.targets.mirror.verify_beside import compare_beside
from ticdc_replay.targets.mirror.verify_layout import Layout, layout_of
from ticdc_replay.targets.shaped_load import recorded_shape
from ticdc_replay.targets.sql import Sql
from ticdc_replay.verify.compare import Comparison, Pace
from ticdc_replay.verify.findings import Findings, Progress, TableVerification
from ticdc_replay.verify.scan import ScanComparison
from ticdc_replay.verify.side import ScannedSide
from ticdc_replay.verify.source import SourceSnapshot

_STATEMENT_S = 3600
"""How long one statement may take: a source without a suitable index reads the whole table for each range."""
_SAVED_EVERY_S = 5.0
_READ_IN_TIME = (
    "leave it out (--table), or load newer windows first, with a longer tidb_gc_life_time, and verify right after them"
)

Tell = Callable[[str], None]


class Compared(msgspec.Struct, frozen=True):
    """What a job found: its tables, and those of the upstream without a mirror (``Verification.without_mirror``)."""

    tables: tuple[TableVerification, ...]
    without_mirror: tuple[TableName, ...]


def compare(
    job: VerifyJob, connections: Connections, artifacts: ObjectStore, sql: Sql | None, pace: Pace, tell: Tell
) -> Compared:
    """Compare the mirrors of *job*, whose artefacts *artifacts* has. *sql* is Spark's, for tables that Spark alone can look at.
    *tell* gets a line for each table and for progress.

    A comparison that broke goes on where it was, unless ``job.restart``: if the TSO, the loads up to it and the columns are the
    same. Raises ConfigError if the target needs Spark and there is none, PermanentError if the source no longer has the TSO,
    TransientError if a server is away after further tries.
    """
    mirror = _opened(job.target, connections, sql)
    if job.beside is not None:
        beside = _opened(job.beside, connections, sql)
        return Compared(tuple(compare_beside(beside, mirror, asked, pace) for asked in job.mirrors), ())
    assert job.source_connection is not None, "a job compares with one of both"
    with ExitStack() as stack:
        source = connections[job.source_connection]
        session = stack.enter_context(closing(SourceSession(source, _STATEMENT_S)))
        comparisons = stack.enter_context(mirror.comparisons())
        for asked in sorted(job.mirrors, key=attrgetter("at")):
            session.check_safe_point(asked.at, f"{asked.table} is as of", _READ_IN_TIME)
        run = _Run(job, connections, artifacts, mirror, comparisons, session, pace, tell)
        found = tuple(map(run.table, job.mirrors))
        others = run.without_mirror(max(asked.at for asked in job.mirrors))
    run.forget_progress()
    return Compared(found, others)


def _opened(section: dict[str, object], connections: Connections, sql: Sql | None) -> ComparableMirror[Any]:
    mirror = open_target(read_section(section), connections)
    assert isinstance(mirror, ComparableMirror), "a job of a target that can be compared"
    mirror.sql = sql
    return mirror


class _Run:
    """One comparison with the upstream."""

    def __init__(
        self,
        job: VerifyJob,
        connections: Connections,
        artifacts: ObjectStore,
        mirror: ComparableMirror[Any],
        comparisons: Comparisons,
        session: SourceSession,
        pace: Pace,
        tell: Tell,
    ) -> None:
        self._job, self._connections, self._artifacts = job, connections, artifacts
        self._mirror, self._comparisons, self._session = mirror, comparisons, session
        self._pace, self._tell = pace, tell
        self._progress: list[str] = []

    def table(self, asked: ComparedMirror) -> TableVerification:
        """Compare one table."""
        begun, table = time.monotonic(), asked.table
        mirror = self._mirror.mirror_of(table)
        if mirror is None:
            raise PermanentError(
                f"the mirror of {table} in {self._mirror.config.name} was forgotten meanwhile: verify again"
            )
        snapshot = SourceSnapshot(self._session, asked.at)
        layout = layout_of(
            snapshot,
            TableName(*self._source_of(table)),
            mirror,
            self._mirror.dialect,
            self._comparisons,
            self._keeps(table),
            recorded_shape(self._artifacts, self._mirror.config, self._connections, table),
        )
        found = Findings()
        self._tell(f"{table} as of {tso.describe(asked.at)}")
        if layout.can_be_compared:
            found = self._compared(asked, snapshot, mirror, layout)
        return TableVerification(
            table=table,
            mirror=str(mirror.relation),
            at=asked.at,
            version=self._comparisons.version_of(mirror),
            key=tuple(layout.columns[place].name for place in layout.key),
            columns=len(layout.columns),
            problems=layout.problems,
            findings=found,
            seconds=round(time.monotonic() - begun, 3),
        )

    def without_mirror(self, at: int) -> tuple[TableName, ...]:
        """The tables of the source as of *at* (TSO), by their names in the changefeed, that were asked for, are none of the job,
        and have rows and a key, or a definition that can't be read: a load would make a mirror of each. Sorted."""
        snapshot, dispatch = SourceSnapshot(self._session, at), self._job.dispatch
        patterns = TablePatterns(self._job.selection), TablePatterns(self._job.pipeline_tables)
        known = {asked.table for asked in self._job.mirrors}
        found = []
        for source in snapshot.tables():
            table = TableName(*dispatch.routed(SourceTable(source.schema, source.table)))
            wanted = table not in known and all(each.wants(table.schema, table.table) for each in patterns)
            if wanted and self._can_be_mirrored(snapshot, source):
                found.append(table)
        return tuple(sorted(found))

    def _can_be_mirrored(self, snapshot: SourceSnapshot, source: TableName) -> bool:
        try:
            definition = snapshot.definition(source)
        except (ConfigError, UnicodeDecodeError):  # nobody knows whether it has a key: it is named
            return snapshot.has_rows(source)
        return definition is not None and bool(definition.handle_key()) and snapshot.has_rows(source)

    def forget_progress(self) -> None:
        """The job is done: the next one begins anew."""
        for name in self._progress:
            self._artifacts.delete(name)

    def _compared(
        self, asked: ComparedMirror, snapshot: SourceSnapshot, mirror: MirrorTable, layout: Layout
    ) -> Findings:
        assert layout.definition is not None
        table, at, job = asked.table, asked.at, self._job
        parts = (str(table), at, mirror.state.floor_ts, layout.columns, layout.key, job.range_rows, asked.loads)
        name = f"{job.folder}/progress/{canonical.hash_of(parts)}.json"
        self._progress.append(name)
        begun = Progress() if job.restart else self._saved(name)
        if begun.source_rows:
            self._tell(f"{table}: goes on after {begun.source_rows:,} rows")
        keeping = _Keeping(self._artifacts, name, table, self._tell)
        source = snapshot.side(layout.definition, layout.columns, layout.key)
        side = self._comparisons.side(mirror, layout.columns, layout.key)
        comparison: Comparison | ScanComparison
        if isinstance(side, ScannedSide):
            comparison = ScanComparison(source, side, layout.columns, at, self._pace)
        else:
            comparison = Comparison(source, side, layout.columns, layout.key, at, self._pace)
        try:
            return comparison.run(begun, keeping.keep)
        finally:
            keeping.save()

    def _saved(self, name: str) -> Progress:
        try:
            return msgspec.json.decode(self._artifacts.get(name), type=Progress)
        except ArtifactNotFoundError:
            return Progress()

    def _keeps(self, table: TableName) -> Callable[[str], bool]:
        """Whether the changefeed sends a column of *table*."""
        selector = self._job.dispatch.selector_of(self._source_of(table))
        return (lambda name: True) if selector is None else selector.columns.keeps

    def _source_of(self, table: TableName) -> SourceTable:
        source = self._job.dispatch.source_of(table.schema, table.table)
        if source is None:
            raise ConfigError(
                f"rules of the changefeed route several tables of the source to {table}: leave it out (--table)"
            )
        return source


class _Keeping:
    """Keeps how far a comparison of *table* has come under *name*, so that the next attempt goes on from there."""

    def __init__(self, artifacts: ObjectStore, name: str, table: TableName, tell: Tell) -> None:
        self._artifacts, self._name, self._table, self._tell = artifacts, name, table, tell
        self._last: Progress | None = None
        self._saved_s = time.monotonic()

    def keep(self, progress: Progress) -> None:
        self._last = progress
        if time.monotonic() - self._saved_s >= _SAVED_EVERY_S:
            self.save()
            self._tell(f"{self._table}: {progress.source_rows:,} rows compared")

    def save(self) -> None:
        if self._last is not None:
            self._artifacts.put(self._name, canonical.encode(self._last))
        self._last, self._saved_s = None, time.monotonic()
