"""What people do to a mirror: set the floor from which rows count, forget it to rebuild it, or look for a row."""

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.changelog.cells.written import WrittenCell
from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import FloorRaised, FoundRow, Mirror, StoppedLoad
from ticdc_replay.targets.mirror import dropped_databases
from ticdc_replay.targets.mirror.planning import differences
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.section import MirrorSection
from ticdc_replay.targets.mirror.planning.table_plan import deleted_column_of, target_of, tombstones_of
from ticdc_replay.targets.mirror.planning.tables import FoundTable, Relation
from ticdc_replay.targets.mirror.session import Session

Config = TypeVar("Config", bound=MirrorSection)


class KeptMirror(Mirror[Config]):
    """The mirrors of a database, between loads."""

    @property
    @abstractmethod
    def dialect(self) -> Dialect:
        """The names and types of the database."""

    @abstractmethod
    def session(self, doing: str) -> AbstractContextManager[Session]:
        """A session whose ledger exists, for *doing*, which errors of the library name; committed on leaving without an error."""

    def floor_of(self, table: TableName) -> int:
        target = self._target(table)
        with self.session(f"look up the floor of {target}") as session:
            state = session.ledger.state_of(target)
        return state.floor_ts if state is not None else 0

    def holds(self, pipeline: str, table: TableName) -> bool:
        target = self._target(table)
        with self.session(f"look up the rows of {target}") as session:
            state = session.ledger.state_of(target)
            # All rows may be below a floor that was raised. The keys of deleted ones keep older versions out.
            relations = (target, state.tombstones) if state is not None else ()
            return any(not session.observe(relation).empty for relation in relations)

    def stopped_loads(self, pipeline: str, table: TableName) -> tuple[StoppedLoad, ...]:
        target = self._target(table)
        with self.session(f"look up the loads of {target}") as session:
            return session.ledger.stopped_loads(target, pipeline)

    def raise_floor(self, pipeline: str, table: TableName, floor_ts: int) -> FloorRaised:
        """The floor of a new mirror is at least a DROP of its database that loads have met."""
        target = self._target(table)
        with self.session(f"raise the floor of {target}") as session:
            session.lock_table(target)
            state = session.ledger.state_of(target)
            # So that a mirror that is lost later is noticed. Without Spark, a lake's is not looked for.
            is_there = session.find_table(target) is not None
            dropped_ts = 0
            if state is None:
                dropped_ts = dropped_databases.floor_of_new(session, pipeline, self.config, self.dialect, table)
                floor_of_new = max(floor_ts, dropped_ts)
                session.ledger.add_table(
                    target,
                    source=table,
                    pipeline=pipeline,
                    tombstones=tombstones_of(target, self.dialect),
                    newest_ts=max(self._newest_ts(session, target), floor_of_new if is_there else 0),
                    floor_ts=floor_of_new,
                    form_floor_ts=floor_of_new,
                )
                deleted_column = deleted_column_of(self.config, self.dialect)
                if deleted_column is not None:
                    session.ledger.note_deleted_column(target, deleted_column)
            else:
                differences.refuse_others(target, state, pipeline, self.config.same_upstream_as)
                session.ledger.raise_marks(target, schema_ts=0, whole_ts=0, newest_ts=floor_ts if is_there else 0)
                session.ledger.raise_floor(target, floor_ts, floor_ts)
                version_column = self.dialect.fit(self.config.commit_ts_column)
                session.clear_tombstones(target, state.tombstones, version_column, floor_ts)
        if state is None:
            return FloorRaised(str(target), dropped_ts, max(floor_ts, dropped_ts))
        return FloorRaised(str(target), state.floor_ts, max(state.floor_ts, floor_ts), state.newest_ts)

    def find_row(self, pipeline: str, table: TableName, key: Mapping[str, WrittenCell]) -> FoundRow:
        target = target_of(self.config, self.dialect, table)
        if self.config.is_reserved_schema(target.schema):
            return FoundRow(
                where=str(target), not_looked=f"the schema is reserved in {self.config.database}: no mirror is there"
            )
        with self.session(f"look for a row of {target}") as session:
            state, found = session.ledger.state_of(target), session.find_table(target)
            row = FoundRow(where=str(target), floor_ts=state.floor_ts if state is not None else 0)
            if found is None:
                return row
            names = {self.dialect.fit_column(name): cell for name, cell in key.items()}
            if set(found.primary_key) != set(names):
                columns = ", ".join(found.primary_key) or "no key"
                return msgspec.structs.replace(row, not_looked=f"rows of {target} are identified by {columns}")
            commit_ts = self.dialect.fit(self.config.commit_ts_column)
            by_place = found.column(commit_ts) is None
            column = self.dialect.fit(self.config.place_column) if by_place else commit_ts
            row = msgspec.structs.replace(row, order="place" if by_place else "commit_ts")
            marker = state.deleted_column if state is not None else None
            held = self._version_in(session, target, found, column, names, marker)
            if held is not None or state is None:
                version, is_deleted = held or (None, False)
                return msgspec.structs.replace(row, version=version, is_deleted=is_deleted)
            tombstones = session.find_table(state.tombstones)
            if tombstones is None:
                return row
            held = self._version_in(session, state.tombstones, tombstones, column, names)
        return row if held is None else msgspec.structs.replace(row, version=held[0], is_deleted=True)

    def _version_in(
        self,
        session: Session,
        relation: Relation,
        found: FoundTable,
        column: str,
        key: Mapping[str, WrittenCell],
        deleted_column: str | None = None,
    ) -> tuple[int, bool] | None:
        """*column* of the row with *key* in *relation*, which is *found*, and whether *deleted_column* marks it as deleted;
        None if there is no such row."""
        types = {each.name: each.type for each in found.columns}
        values = {name: value_in(cell, types[name], self.dialect) for name, cell in key.items()}
        return None if None in values.values() else session.version_of(relation, column, values, deleted_column)

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

    def _require_gone(self, session: Session, pipeline: str, target: Relation) -> None:
        state = session.ledger.state_of(target)
        if session.find_table(target) is not None:
            raise ConfigError(f"{target} is still there: drop it first, then forget it")
        if state is not None:
            differences.refuse_others(target, state, pipeline, self.config.same_upstream_as)

    def _newest_ts(self, session: Session, target: Relation) -> int:
        """The newest commitTs (TSO) in a table that somebody has filled; 0 where there is none."""
        found, name = session.find_table(target), self.dialect.fit(self.config.commit_ts_column)
        return 0 if found is None or found.column(name) is None else session.newest(target, name)

    def _target(self, table: TableName) -> Relation:
        target = target_of(self.config, self.dialect, table)
        if self.config.is_reserved_schema(target.schema):
            raise PermanentError(
                f"{table}: the schema {target.schema} is reserved in {self.config.database}, so the table has no mirror"
            )
        return target


def value_in(cell: WrittenCell, type_name: str, dialect: Dialect) -> object | None:
    """*cell* as a column of *type_name* has it; None if the column can't hold it, so that no row has it."""
    if cell.exact is not None or any(
        pc.any(check(cell.array)).as_py() for check, _ in dialect.checks_of(type_name, cell.array.type)
    ):
        return None
    try:
        value: object = dialect.staged_cells(cell.array, type_name)[0].as_py()
    except pa.ArrowInvalid:  # a narrower type
        return None
    return value
