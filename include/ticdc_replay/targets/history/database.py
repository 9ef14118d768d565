"""Histories in a database: what every kind of database does, over its sessions and staging tables."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from ticdc_replay.changelog.cells.written import WrittenCell
from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import Execute, FoundRow, Load, Loaded, RebuildableTarget
from ticdc_replay.targets.history.load import Brought, HistoryAttempt, Pending, history_of, refuse_offsets
from ticdc_replay.targets.history.section import HistorySection
from ticdc_replay.targets.history.sql_table import Place, SqlHistoryTable, StagedVersions
from ticdc_replay.targets.history.staging import VersionSet, VersionTask, version_set, version_tasks
from ticdc_replay.targets.history.table import HistoryTable
from ticdc_replay.targets.mirror import dropped_databases
from ticdc_replay.targets.mirror.planning import differences
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.table_plan import tombstones_of
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.mirror.session import Session
from ticdc_replay.targets.mirror.sql_ledger import SqlLedger
from ticdc_replay.targets.mirror.staging import StageResult
from ticdc_replay.targets.mirror.upkeep import value_in

Config = TypeVar("Config", bound=HistorySection)
Result = TypeVar("Result")


class DatabaseHistory(RebuildableTarget[Config]):
    """Loads changelogs into histories in a database."""

    @property
    @abstractmethod
    def dialect(self) -> Dialect:
        """As ``KeptMirror.dialect``."""

    @abstractmethod
    def session(self, doing: str) -> AbstractContextManager[Session]:
        """As ``KeptMirror.session``."""

    @abstractmethod
    def attempt(self, load: Load) -> AbstractContextManager[Session]:
        """As ``DatabaseMirror.attempt``."""

    @property
    @abstractmethod
    def destination(self) -> object:
        """As ``DatabaseMirror.destination``."""

    @property
    @abstractmethod
    def writers(self) -> int:
        """As ``DatabaseMirror.writers``."""

    @property
    @abstractmethod
    def stage(self) -> Callable[[VersionTask], StageResult]:
        """As ``DatabaseMirror.stage``."""

    @abstractmethod
    def table(self, session: Session, place: Place) -> SqlHistoryTable:
        """The table of *place*, over *session*."""

    @abstractmethod
    def make_staging(self, session: Session, load: Load, rows: VersionSet, names: Sequence[str]) -> None:
        """Make the staging tables *names* for *rows*; the attempt of *load* or a later one drops them."""

    @abstractmethod
    def literal(self, value: object, type_name: str) -> str:
        """The SQL literal of *value*, as ``Dialect.staged_cells`` gives one of the type *type_name*."""

    def load(self, load: Load, execute: Execute) -> Loaded:
        refuse_offsets(load)
        with self.attempt(load) as session:
            return _Attempt(self, load, session).run(execute)

    def holds(self, pipeline: str, table: TableName) -> bool:
        target = self._target(table)
        with self.session(f"look up {target}") as session:
            return session.ledger.state_of(target) is not None

    def require_gone(self, pipeline: str, table: TableName) -> None:
        target = self._target(table)
        with self.session(f"look for {target}") as session:
            self._require_gone(session, pipeline, target)

    def forget(self, pipeline: str, table: TableName) -> str:
        target = self._target(table)
        with self.session(f"forget {target}") as session:
            session.lock_table(target)
            self._require_gone(session, pipeline, target)
            session.ledger.forget(target, tombstones_of(target, self.dialect))
            dropped_databases.forget(session, self.config, self.dialect, table)
        return str(target)

    def find_row(self, pipeline: str, table: TableName, key: Mapping[str, WrittenCell]) -> FoundRow:
        target = history_of(self.config, self.dialect, table)
        row = FoundRow(where=str(target), keeps="all")
        if self.config.is_reserved_schema(target.schema):
            return FoundRow(
                where=str(target),
                keeps="all",
                not_looked=f"the schema is reserved in {self.config.database}: no history is there",
            )
        with self.session(f"look for a row of {target}") as session:
            place = Place(config=self.config, dialect=self.dialect, load=None, target=target, source=table, redriven={})
            history = self.table(session, place)
            if not history.is_there():
                return row
            own = {name.lower(): name for name in history.types}
            literals = {}
            for column, cell in key.items():
                name = own.get(self.dialect.fit_column(column).lower())
                value = None if name is None else value_in(cell, history.types[name], self.dialect)
                if name is None or value is None:  # no version has such a key
                    return row
                literals[name] = self.literal(value, history.types[name])
            found = history.find_newest(literals)
        return row if found is None else FoundRow(where=str(target), keeps="all", version=found[0], is_deleted=found[1])

    def _require_gone(self, session: Session, pipeline: str, target: Relation) -> None:
        state = session.ledger.state_of(target)
        if session.find_table(target) is not None:
            raise ConfigError(f"{target} is still there: drop it first, then forget it")
        if state is not None:
            differences.refuse_others(target, state, pipeline, self.config.same_upstream_as)

    def _target(self, table: TableName) -> Relation:
        target = history_of(self.config, self.dialect, table)
        if self.config.is_reserved_schema(target.schema):
            raise PermanentError(
                f"{table}: the schema {target.schema} is reserved in {self.config.database}, so the table has no history"
            )
        return target


class _Attempt(HistoryAttempt[StagedVersions]):
    """One attempt to load one window."""

    def __init__(self, history: DatabaseHistory[Config], load: Load, session: Session) -> None:
        assert isinstance(session.ledger, SqlLedger), "the ledger of a database"
        super().__init__(history.config, history.dialect, load, session, session.ledger)
        self._history = history
        self._redriven: defaultdict[TableName, dict[str, StagedVersions]] = defaultdict(dict)
        self._stages: defaultdict[TableName, list[str]] = defaultdict(list)

    def bring(
        self, pending: Sequence[Pending], left: Sequence[TableName], execute: Execute
    ) -> dict[TableName, Brought[StagedVersions]]:
        """Stage the rows of the window, and of re-drives that stay in it."""
        load, history = self.load, self._history
        sets: list[VersionSet] = []
        owners: list[tuple[TableName, str]] = []
        for each in pending:
            owners.append((each.table, load.index.run_hash))
            sets.append(version_set(load, load.index, each.versions, len(sets), each.target, self.dialect))
        for table, target, run in self._redriven_of([*(each.table for each in pending), *left]):
            index = load.index_of(run, [table])
            owners.append((table, run))
            sets.append(version_set(load, index, index.versions_of(table), len(sets), target, self.dialect))
        tasks = version_tasks(load, history.destination, sets, history.writers)
        stages = [sorted({p.stage for task in tasks for p in task.pieces if p.number == each.number}) for each in sets]
        with self.session.translated("make staging tables"):
            for rows, names in zip(sets, stages, strict=True):
                history.make_staging(self.session, load, rows, names)
            self.session.commit()
        results: list[StageResult] = execute(history.stage, tasks, f"stage into {self.config.name}") if tasks else []
        staged, aside = [0] * len(sets), [0] * len(sets)
        listed: list[set[str]] = [set() for _ in sets]
        for task, result in zip(tasks, results, strict=True):
            for piece, counts in zip(task.pieces, result.pieces, strict=True):
                staged[piece.number] += counts.staged
                aside[piece.number] += counts.quarantined
                if counts.quarantined and result.quarantine is not None:
                    listed[piece.number].add(result.quarantine)
        brought = {}
        for (table, run), rows, names in zip(owners, sets, stages, strict=True):
            found = StagedVersions(tuple(names), staged[rows.number], rows.columns, rows.key)
            self._stages[table] += names
            if run == load.index.run_hash:
                brought[table] = Brought(found, aside[rows.number], tuple(sorted(listed[rows.number])))
            else:
                self._redriven[table][run] = found
        return brought

    def _redriven_of(self, tables: Sequence[TableName]) -> list[tuple[TableName, Relation, str]]:
        """The re-drives whose rows stay when the slices of *tables* are replaced, with their tables."""
        if self.load.index.redrives is not None:
            return []
        targets = {table: history_of(self.config, self.dialect, table) for table in tables}
        with self.session.translated("read the ledger"):
            return [
                (table, target, run)
                for table, target in targets.items()
                for run in self.redrives(self.held_runs(target))
            ]

    def held(
        self, target: Relation, source: TableName, work: Callable[[HistoryTable[StagedVersions]], Result]
    ) -> Result:
        place = Place(
            config=self.config,
            dialect=self.dialect,
            load=self.load,
            target=target,
            source=source,
            redriven=self._redriven[source],
        )
        with self.session.translated(f"load {target}"):
            self.session.begin_merge(target)
            done = work(self._history.table(self.session, place))
            self.session.drop_staging(self._stages[source])
        self.session.commit_rows(target)
        return done
