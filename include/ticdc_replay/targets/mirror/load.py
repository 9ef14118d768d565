"""Loads changelogs into the mirrors of a database: each row's last version, guarded by its commitTs or place in Kafka.

One attempt looks at the target, refuses what can't be followed, makes staging tables, and lets workers stage. Then it
commits each table with its ledger row in one transaction. The next attempt drops what a broken one has left.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import msgspec

from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import TableKey, key_of
from ticdc_replay.targets.base import Execute, Load, Loaded
from ticdc_replay.targets.database_ddl import with_creations_of, with_ddl_of
from ticdc_replay.targets.ddl import changes_by_table
from ticdc_replay.targets.last_versions import fold_groups, found_last_versions
from ticdc_replay.targets.layouts import layouts_of
from ticdc_replay.targets.mirror import base, dropped_databases, marks, stops
from ticdc_replay.targets.mirror.commit import commit_table
from ticdc_replay.targets.mirror.planning import differences
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.section import MirrorSection
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan, plan_table, target_of
from ticdc_replay.targets.mirror.planning.window_ddl import Floor, first_floor
from ticdc_replay.targets.mirror.session import Session
from ticdc_replay.targets.mirror.staging import (
    StageResult,
    StageTask,
    stage_tasks,
    staged_by,
    stages_of,
)
from ticdc_replay.targets.mirror.stops import Pending
from ticdc_replay.targets.mirror.upkeep import Config, KeptMirror

SMALL_ROWS = 1_500_000
"""Up to this many row versions each worker compares all keys of a table itself: measured to cost less than a round of tasks."""


class DatabaseMirror(KeptMirror[Config]):
    """Loads changelogs into a database. Rows without a key have no identity: their tables are left out if a pattern
    matched them, and refused if the pipeline names them."""

    @abstractmethod
    def attempt(self, load: Load) -> AbstractContextManager[Session]:
        """The session of an attempt, open while workers stage. The ledger exists; staging of ended attempts is gone.

        An error within drops the staging tables of this attempt. Raises errors of the library.
        """

    @property
    @abstractmethod
    def stage(self) -> Callable[[StageTask], StageResult]:
        """A function for workers: copies the rows of a task into their staging tables, all or none. May run twice.

        Raises UnrepresentableValueError for a value it can't hold, if policy stops; TransientError if it is away.
        """

    @property
    @abstractmethod
    def destination(self) -> object:
        """What workers stage into: the ``StageTask.destination`` of all tasks."""

    @property
    @abstractmethod
    def writers(self) -> int:
        """How many workers may stage at the same time."""

    def load(self, load: Load, execute: Execute) -> Loaded:
        with self.attempt(load) as session:
            with session.translated("look at the target"):
                dropped_databases.note(session, load, self.config, self.dialect)
                mirrored = _own_mirrors(session, load, self.config, self.dialect)
                load = with_creations_of(with_ddl_of(load, mirrored), mirrored)
                targets = {table: target_of(self.config, self.dialect, table) for table in load.tables}
                reserved = [table for table in load.tables if self.config.is_reserved_schema(targets[table].schema)]
                stops.refuse_named_reserved(load, self.config, reserved)
                plans = self._plans(session, load, [table for table in load.tables if table not in reserved], mirrored)
                keyless = [plan for plan in plans if plan.pieces and not plan.handle_key]
                stops.refuse_shared_tables(plans)
                stops.refuse_named_keyless(load, keyless)
                stops.refuse_lost_keys(session, load, keyless)
                reports = {plan.source: stops.without_key(plan) for plan in keyless}
                reports |= {table: stops.with_reserved_name(load, self.config, table) for table in reserved}
                keyed = [plan for plan in plans if plan.source not in reports]
                done, pending = stops.begin(session, load, keyed, self.config.same_upstream_as)
                reports |= done
                newer = marks.leave(session, load, self.config, self.dialect, [entry.plan for entry in pending])
                groups = fold_groups(
                    load,
                    {entry.plan.source: entry.plan.versions for entry in pending},
                    SMALL_ROWS,
                    all_rows_of={entry.plan.source for entry in pending if entry.direct is not None},
                )
                by_table = {group.fold.table: group for group in groups}
                tasks = stage_tasks(
                    load,
                    self.destination,
                    [
                        (entry.plan, by_table[entry.plan.source])
                        for entry in pending
                        if any(piece.version.files for piece in entry.plan.pieces)
                    ],
                    self.writers,
                )
                direct = session.direct
                for entry in pending:
                    stages = stages_of(entry.plan, tasks)
                    if direct is not None and entry.direct is not None:
                        for name in stages:
                            direct.make(load, entry.plan.target, entry.direct, name)
                    else:
                        session.make_staging(load, entry.plan, _defaults(entry), stages)
                session.commit()
            with found_last_versions(load, groups, execute), _telling_layouts(load, pending):
                results = execute(self.stage, tasks, f"stage into {self.config.name}")
            for entry in pending:
                staged = staged_by(load, entry.plan, tasks, results)
                reports[entry.plan.source] = commit_table(session, load, entry.plan, staged, newer, self.config)
            stops.stop_at_the_end(load, [entry.plan for entry in pending], reports)
            with session.translated("read the ledger"):
                others = session.ledger.other_runs(load)
        tables = tuple(reports[table] for table in load.tables)
        files = sorted({file for report in tables for file in report.quarantine_files})
        return Loaded(tables, tuple(files), others)

    def _plans(
        self, session: Session, load: Load, tables: Sequence[TableName], mirrored: Iterable[TableName]
    ) -> list[TablePlan]:
        changes = changes_by_table(load.index.changes)  # so that they need not be looked for among all of the window
        spellings: defaultdict[TableKey, set[TableName]] = defaultdict(set)
        for name in mirrored:
            spellings[key_of(name)].add(name)
        return [
            self.plan(
                session, load.with_index(changes=changes.get(table, ())), table, spellings[key_of(table)] - {table}
            )
            for table in tables
        ]

    def plan(self, session: Session, load: Load, table: TableName, spellings: Iterable[TableName]) -> TablePlan:
        """What *load*, with the changes of *table* alone, needs of its mirror; *spellings* are mirrors of the same name in
        another letter case."""
        target = target_of(self.config, self.dialect, table)
        state = session.ledger.state_of(target)
        floor = base.floor_before(load, state)
        if session.find_table(target) is None and not (state is not None and state.needs_table):
            first = first_floor(load, table)
            ended_ts = self._ended_ts(session, load, spellings)
            floor = Floor(max(floor.rows, first.rows, ended_ts), max(floor.form, first.form, ended_ts))
        dropped_ts = 0
        if state is None:
            dropped_ts = dropped_databases.floor_of(session, load, self.config, self.dialect, table)
        floor = Floor(max(floor.rows, dropped_ts), max(floor.form, dropped_ts))
        events, columns = (state.events, state.columns) if state is not None else ((), {})
        plan = plan_table(load, self.config, self.dialect, table, floor, events, columns)
        return msgspec.structs.replace(plan, dropped_ts=dropped_ts)

    def _ended_ts(self, session: Session, load: Load, spellings: Iterable[TableName]) -> int:
        """The commitTs (TSO) below which rows belong to a table that no longer exists, or 0: the floor of the mirrors
        of *spellings*, the same name in another letter case. The upstream has one such table at a time."""
        if load.index.order == "place":
            return 0
        states = (session.ledger.state_of(target_of(self.config, self.dialect, other)) for other in spellings)
        return max((state.floor_ts for state in states if state is not None), default=0)


def _defaults(pending: Pending) -> dict[str, str]:
    """What rows that lack a column of the mirror show in it, where that is not NULL."""
    names = [column.target for column in pending.plan.columns]
    defaults = {name: differences.default_of(pending.plan, pending.state, name) for name in names}
    return {name: default for name, default in defaults.items() if default is not None}


@contextmanager
def _telling_layouts(load: Load, pending: Sequence[Pending]) -> Iterator[None]:
    """Add the layouts of the rows to an error about rows that can't share a table."""
    try:
        yield
    except TargetMismatchError as error:
        tables = [entry.plan.source for entry in pending if any(piece.lacking for piece in entry.plan.pieces)]
        raise TargetMismatchError(f"{error}{''.join(layouts_of(load, table) for table in tables)}") from error


def _own_mirrors(session: Session, load: Load, config: MirrorSection, dialect: Dialect) -> list[TableName]:
    """The upstream's tables that this target has mirrors of, of those that are wanted."""
    wanted = TablePatterns(load.selection)
    return [
        table
        for table, target, pipeline in session.ledger.mirrors()
        if target == target_of(config, dialect, table)
        and pipeline in (load.index.pipeline, *config.same_upstream_as)
        and wanted.wants(table.schema, table.table)
    ]
