"""What a mirror asks of a lake and its ledger. Statements count at once; what the ledger is to know is written by
``commit``, by ``commit_rows``, and before the rows are merged: see the room's order of writes."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from ticdc_replay.domain.errors import PermanentError, TargetMismatchError, TicdcReplayError
from ticdc_replay.domain.tables import folded
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.lake import merge, tables
from ticdc_replay.targets.lake.commits import CONFLICTS, MERGES, fence_settings
from ticdc_replay.targets.lake.dialect import quoted, string
from ticdc_replay.targets.lake.errors import NOT_FOUND, translated
from ticdc_replay.targets.lake.lease import HeldLease
from ticdc_replay.targets.lake.ledger import LakeLedger
from ticdc_replay.targets.lake.stage import StagedFiles
from ticdc_replay.targets.lake.table_format import INCARNATION, KEY, LEDGER, TableFormat, properties_sql
from ticdc_replay.targets.mirror.begun_changes import BegunChange, as_if_ended
from ticdc_replay.targets.mirror.planning import differences
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import (
    Action,
    ChangeType,
    FoundColumn,
    FoundTable,
    MakeColumn,
    MakeTable,
    MirrorStep,
    Observed,
    Relation,
    RemoveColumn,
    RenameColumn,
)
from ticdc_replay.targets.mirror.session import Merged, Session
from ticdc_replay.targets.mirror.staging import Staged
from ticdc_replay.targets.sql import Sql, SqlError

log = logging.getLogger(__name__)


class _Look(NamedTuple):
    """A table as Spark has it: its properties, and name, type and nullability of its columns."""

    properties: Mapping[str, str]
    columns: Sequence[tuple[str, str, bool]]


class LakeSession(Session):
    """One attempt, or one look at the ledger: then *sql* is None, and tables can't be looked at."""

    ledger: LakeLedger

    def __init__(
        self, sql: Sql | None, table_format: TableFormat, ledger: LakeLedger, staged: StagedFiles, attempt: str
    ) -> None:
        self._sql = sql
        self._format = table_format
        self.ledger = ledger
        self._staged = staged
        self._attempt = attempt
        self._ledger_uri = table_format.config.ledger
        self._held = ExitStack()
        self._leases: dict[Relation, HeldLease] = {}
        self._seen: dict[Relation, _Look | None] = {}
        """Tables that were looked at while their lease is held, and not changed since."""
        self._defaults: dict[str, Mapping[str, str]] = {}

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        with translated(self._format, doing):
            yield

    def close(self) -> None:
        """Give back what is held, and forget what is not committed."""
        self.ledger.discard()
        self._release()

    def abandon(self) -> None:
        """Remove the rows that are staged for this attempt. What could not be removed, maintenance does."""
        try:
            self.drop_staging(list(self._defaults))
        except TicdcReplayError as error:
            log.warning("staged rows of attempt %s are left for maintenance to remove: %s", self._attempt, error)

    def commit(self) -> None:
        self.ledger.flush()

    def commit_rows(self, target: Relation) -> None:
        self.ledger.flush()
        self._release()

    def lock_table(self, target: Relation) -> None:
        self._leases[target] = self._held.enter_context(self.ledger.hold(target, self._attempt))
        self._seen.clear()

    def _release(self) -> None:
        self._leases.clear()
        self._held.close()

    def begin_merge(self, target: Relation) -> None:
        """A DROP or RENAME of a column that a broken load has begun is done first. A column that it was adding goes: no row
        has a value of its own there, and not all may have the default."""
        self.lock_table(target)
        self._end_begun(target)

    def _end_begun(self, target: Relation) -> None:
        for change in self.ledger.begun_changes(target):
            looked = self._look_at(target)
            names = {name for name, _, _ in looked.columns} if looked is not None else set()
            if change.column in names:
                self._alter(target, change.action)
            self.ledger.end_change(target, change)

    def find_table(self, target: Relation) -> FoundTable | None:
        looked = self._look_at(target)
        if looked is None:
            return None
        found = [FoundColumn(column, type_name, not null, False, False) for column, type_name, null in looked.columns]
        found = as_if_ended(found, self.ledger.begun_changes(target))
        key = tuple(json.loads(looked.properties.get(KEY, "[]")))
        return FoundTable(True, tuple(each for each in found if each.name not in self._own_columns()), key, {})

    def _look_at(self, target: Relation) -> "_Look | None":
        """What Spark has of the table, None where there is none."""
        if self._sql is None:
            return None
        if target not in self._leases:
            return self._look_now(target)
        if target not in self._seen:
            self._seen[target] = self._look_now(target)
        return self._seen[target]

    def _look_now(self, target: Relation) -> "_Look | None":
        properties = self._properties(target)
        if properties is None or self._format.is_dropped(properties):
            return None
        columns = self.sql.columns(self._format.name_of(target))
        self._require_own(target, properties)
        if lacking := self._own_columns().difference(column for column, _, _ in columns):
            raise TargetMismatchError(
                f"{target} has no column {', '.join(lacking)}, and `deletes` is soft: add it as a boolean, with false in all "
                "rows, or leave `deletes` as it was when the table was made"
            )
        return _Look(properties, columns)

    def _properties(self, target: Relation) -> dict[str, str] | None:
        """The properties of the table, None where there is none."""
        try:
            return tables.properties_of(self.sql, self._format.name_of(target))
        except SqlError as error:
            if error.condition in NOT_FOUND:
                return None
            raise

    def _own_columns(self) -> set[str]:
        """Columns that the target adds to each table, and that no plan knows."""
        return {self._format.config.deleted_column} if self._format.config.deletes == "soft" else set()

    def _require_own(self, target: Relation, properties: Mapping[str, str]) -> None:
        """Raise TargetMismatchError for a table that another ledger, or an older mirror of the name, knows about."""
        ledger, incarnation = properties.get(LEDGER), properties.get(INCARNATION)
        if ledger is not None and ledger != self._ledger_uri:
            raise TargetMismatchError(
                f"{target} is kept by the ledger {ledger}, and this target has {self._ledger_uri}: name the same `ledger` "
                "in both targets, or another `schema` or catalog"
            )
        if incarnation is not None and incarnation not in self.ledger.marks_of(target):
            for source, other, _ in self.ledger.mirrors():
                if folded(str(other)) == folded(str(target)) and incarnation in self.ledger.marks_of(other):
                    raise TargetMismatchError(f"{other} has the table of {target}: {differences.one_name(source)}")
            raise TargetMismatchError(
                f"{target} is a mirror that its ledger no longer knows: it was forgotten or renamed, or the ledger was lost. "
                "Run `ticdc-replay mirror follow` again if it broke while it renamed tables. Drop the table in other cases, "
                "seed it if a base load has filled it, and load its windows again. If it holds all rows up to its floor (mirror "
                f"floor), run ALTER TABLE … UNSET TBLPROPERTIES ('{INCARNATION}'), and the load again, which takes it over"
            )

    def is_empty(self, target: Relation) -> bool:
        return not self._any(target, "true")

    def has_rows_between(
        self, target: Relation, column: str, after: int, before: int, null_column: str | None = None
    ) -> bool:
        is_null = f" AND {quoted(null_column)} IS NULL" if null_column else ""
        return self._any(target, f"{quoted(column)} > {after} AND {quoted(column)} < {before}{is_null}")

    def has_rows_from(self, target: Relation, column: str, version: int) -> bool:
        return self._any(target, f"{quoted(column)} >= {version}")

    def newest(self, target: Relation, column: str) -> int:
        (row,) = self.sql.run(f"SELECT max({quoted(column)}) AS newest FROM {self._format.name_of(target)}")
        return row["newest"] or 0

    def version_of(
        self, target: Relation, column: str, key: Mapping[str, object], deleted_column: str | None = None
    ) -> tuple[int, bool] | None:
        """Never asked: one row is no reason to start Spark (``LakeMirror.find_row``)."""
        raise PermanentError(f"{target}: a lake's rows are not looked up one by one")

    def delete_below(self, target: Relation, column: str, version: int) -> int:
        self._fence(target)
        name, condition = self._format.name_of(target), f"{quoted(column)} < {version}"
        (row,) = self.sql.run(f"SELECT count(*) AS rows FROM {name} WHERE {condition}")
        if row["rows"]:
            self._run(f"DELETE FROM {name} WHERE {condition}")
        return int(row["rows"])

    def truncate(self, target: Relation, column: str, version: int) -> None:
        """By the condition, so that no row goes that another load may have brought meanwhile."""
        self._fence(target)
        if not self.is_empty(target):
            self._run(f"DELETE FROM {self._format.name_of(target)} WHERE {quoted(column)} < {version}")

    def drop_table(self, target: Relation) -> None:
        if self._properties(target) is not None:
            for statement in self._format.drop_table(target):
                self._run(statement)

    def drop_mirror(self, plan: TablePlan) -> None:
        """As its ledger is told first, a table that is gone afterwards is not taken for a lost one. Nor is the one that gets the
        name next taken for it: what name the dropped one had before, that one may have now."""
        self._begin_dropping(plan.target, plan.floor_ts)
        self.drop_table(plan.target)

    def _begin_dropping(self, target: Relation, floor_ts: int) -> None:
        if self.ledger.former_of(target) is not None:
            if self._look_at(target) is not None:
                self._adopt(target)
            self.ledger.forget_former(target)
        self.ledger.begin_dropping(target, floor_ts)

    def clear_tombstones(self, target: Relation, tombstones: Relation, version_column: str, floor_ts: int) -> None:
        """Nothing: the ledger lists no tombstones below the floor."""

    def fit_tombstones(self, plan: TablePlan, mirror: FoundTable) -> None:
        """Nothing: tombstones are read with the types that the mirror has by then."""

    def create_schema(self, schema: str) -> None:
        for statement in self._format.create_schema(schema):
            self.sql.run(statement)

    def change(self, target: Relation, step: MirrorStep) -> list[str]:
        if isinstance(step.action, MakeTable):
            self.ledger.flush()  # so that the table's incarnation is known before a table has it
            self._make(target, step.action)
        else:
            types = {name: type_name for name, type_name, _ in self.sql.columns(self._format.name_of(target))}
            match step.action:
                case MakeColumn(column=column):
                    begun = BegunChange(column.name, adds=True)
                    self.ledger.begin_change(target, begun)
                    self._alter(target, step.action)
                    self.ledger.end_change(target, begun)
                case RemoveColumn(column=name):
                    if name in types:
                        self._alter(target, step.action)
                    self.ledger.end_change(target, BegunChange(name))
                case RenameColumn(column=name, to=to):
                    if name in types:
                        self._alter(target, step.action)
                    self.ledger.end_change(target, BegunChange(name, to))
                case ChangeType(column=name, type=type_name):
                    tables.require_change(self._format, target, name, types[name], type_name)
                    self._alter(target, step.action)
                case _:
                    self._alter(target, step.action)
        return []

    def _alter(self, target: Relation, action: Action) -> None:
        """Run the statements of *action*. Raises TargetMismatchError if the table's layout holds a column."""
        if isinstance(action, RemoveColumn):
            reason = self._format.why_undroppable(self.sql, target, action.column)
            if reason is not None:
                raise TargetMismatchError(f"{target}: can't drop the column {action.column}: {reason}")
        # A name may change its letter case alone.
        settings = {"spark.sql.caseSensitive": "true"} if isinstance(action, RenameColumn) else {}
        for statement in tables.statements_of(self._format, target, action):
            try:
                self._run(statement, settings)
            except SqlError as error:
                reason = self._format.why_column_stays(str(error))
                if reason is None or not isinstance(action, RemoveColumn | RenameColumn):
                    raise
                verb = "drop" if isinstance(action, RemoveColumn) else "rename"
                raise TargetMismatchError(f"{target}: can't {verb} the column {action.column}: {reason}") from error

    def _make(self, target: Relation, table: MakeTable) -> None:
        columns = [f"{quoted(column.name)} {column.type}" for column in table.columns]
        columns.append(f"{quoted(table.version_column)} bigint NOT NULL")
        columns += [f"{quoted(name)} boolean NOT NULL" for name in self._own_columns()]
        self._create(target, columns, table.key)

    def _create(self, target: Relation, columns: Sequence[str], key: Sequence[str]) -> None:
        """Make the table of *columns*, SQL definitions, whose rows *key* identifies."""
        state, incarnation = self.ledger.state_of(target), self.ledger.incarnation_of(target)
        assert state is not None, "the ledger knows a table before it is made"
        assert incarnation is not None, "the ledger knows a table before it is made"
        properties = tables.own_properties(incarnation, self._ledger_uri, key)
        layout = self._format.config.layout_of(state.source)
        replaces = self._properties(target) is not None
        for statement in self._format.create_table(target, ", ".join(columns), layout, properties, replaces=replaces):
            self._run(statement)

    def make_staging(self, load: Load, plan: TablePlan, defaults: Mapping[str, str], names: Sequence[str]) -> None:
        for name in names:
            self._defaults[name] = defaults

    def drop_staging(self, names: Sequence[str]) -> None:
        for name in names:
            self._staged.delete(name)

    def merge(
        self, load: Load, plan: TablePlan, staged: Staged, found: FoundTable, *, in_order: bool, observed: Observed
    ) -> tuple[Merged, list[str]]:
        """Secondary unique values need no care: a lake has no unique keys. A row that is newer than its ledger knows is
        kept, as each row is compared."""
        self._adopt(plan.target)
        lease = self._leases[plan.target]
        job = merge.Merge(
            self.sql, self._format, self.ledger, lease, self._staged, load, plan, staged, found, self._defaults
        )
        self.ledger.add_tombstones(plan.target, job.tombstones())
        self.ledger.flush()
        return job.run(late=not in_order), []

    def _adopt(self, target: Relation) -> None:
        """Mark a table that somebody has made by hand, or that had another name, as the ledger's."""
        looked, incarnation = self._look_at(target), self.ledger.incarnation_of(target)
        assert looked is not None, "a table is made before rows are merged"
        assert incarnation is not None, "the ledger knows a table before rows are merged"
        if looked.properties.get(INCARNATION) != incarnation:
            marks = properties_sql(tables.own_properties(incarnation, self._ledger_uri), string)
            self._run(f"ALTER TABLE {self._format.name_of(target)} SET TBLPROPERTIES ({marks})")

    def _run(self, statement: str, settings: Mapping[str, str] = {}) -> None:
        """Run *statement*, which changes a table and may run twice, while all leases are held; again where another commit
        came first."""
        assert self._leases, "begin_merge comes first"
        self._seen.clear()
        for left in reversed(range(CONFLICTS)):
            for lease in self._leases.values():
                lease.verify()
            try:
                self.sql.run(statement, settings)
                return
            except SqlError as error:
                if not (left and self._format.is_conflict(str(error))):
                    raise

    def _fence(self, target: Relation, place: Relation | None = None, *, what: str = MERGES) -> None:
        """Keep attempts out of the table from now on that change *what*, and have lost the lease of *target*. The table has the
        name *place*, if that is given."""
        settings = fence_settings(self._format, target, self._leases[target], what)
        self._run(self._format.fence(place or target), settings)

    @property
    def sql(self) -> Sql:
        """Spark SQL. Raises PermanentError in a process without Spark."""
        if self._sql is None:
            raise PermanentError(f"{self._format.config.description}: its tables can be looked at in a Spark job only")
        return self._sql

    def _any(self, target: Relation, condition: str) -> bool:
        return bool(self.sql.run(f"SELECT 1 AS found FROM {self._format.name_of(target)} WHERE {condition} LIMIT 1"))
