"""A connection to the mirrors' server, and its open transaction. DDL ends it: what it is about to do is written down before."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar
from uuid import uuid4

import msgspec

from ticdc_replay.domain.errors import CommitStateUnknownError, TransientError
from ticdc_replay.mysql_protocol import identifier
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror.begun_changes import BegunChange, as_if_ended
from ticdc_replay.targets.mirror.beside import Swap, SwappingSession
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import (
    ChangeType,
    FillColumn,
    FoundTable,
    MakeColumn,
    MirrorStep,
    Observed,
    Relation,
    RemoveColumn,
    RenameColumn,
)
from ticdc_replay.targets.mirror.session import Merged
from ticdc_replay.targets.mirror.staging import Staged
from ticdc_replay.targets.mysql import ledger_tables, locks, renames, staging
from ticdc_replay.targets.mysql import swap as tables_swap
from ticdc_replay.targets.mysql.dialect import literal_of
from ticdc_replay.targets.mysql.direct import MysqlDirect
from ticdc_replay.targets.mysql.errors import Errors, is_lost, lacks_right, translate, translated
from ticdc_replay.targets.mysql.ledger import MysqlLedger
from ticdc_replay.targets.mysql.merge import merge
from ticdc_replay.targets.mysql.renames import Renaming
from ticdc_replay.targets.mysql.server import TIDB_ROWS_PER_COMMIT, MysqlConnection, Server
from ticdc_replay.targets.mysql.tables import (
    changed_type,
    find_table,
    indexes_on,
    is_long,
    needing_room,
    set_key_statement,
    sql_of,
    statement_of,
)

log = logging.getLogger(__name__)


class MysqlSession(SwappingSession):
    """Statements on *connection* to *server*, which errors call *conn_id*, for mirrors of *place* (``marks.place_of``)."""

    ledger: MysqlLedger
    in_one_transaction: ClassVar[bool] = False

    def __init__(
        self, connection: MysqlConnection, server: Server, conn_id: str, place: str, rows_per_commit: int | None = None
    ) -> None:
        self.ledger = MysqlLedger(connection)
        # Tasks fill such a table in one transaction each, and TiDB keeps transactions in memory.
        self.direct = None if server.is_tidb else MysqlDirect(connection, server, self._require_locks)
        self.connection = connection
        self.server = server
        self._conn_id = conn_id
        self._place = place
        self.rows_per_commit = rows_per_commit or (TIDB_ROWS_PER_COMMIT if server.is_tidb else None)
        self._locked: list[str] = []
        self._merged: list[str] = []
        """Staging tables that are dropped once the rows out of them are committed."""
        self._left: dict[Relation, Exception] = {}
        """Mirrors whose swap or rename broke, and why this session could not end it."""

    def translated(self, doing: str) -> AbstractContextManager[None]:
        return translated(doing, self._conn_id)

    def commit(self) -> None:
        self.connection.commit()

    def commit_rows(self, target: Relation) -> None:
        try:
            self._require_locks()
            self.connection.commit()
        except Errors as error:
            if not is_lost(error):
                raise translate(error, f"commit {target}", self._conn_id) from error
            raise CommitStateUnknownError(
                f"the connection {self._conn_id!r} broke while {target} was committed: the window may be loaded or not. "
                "Run the load again: the ledger knows, and a repeat is harmless"
            ) from error
        self._clear_up()

    def _clear_up(self) -> None:
        """Give back locks and drop what is merged; if the connection breaks here the next load does it."""
        locked, self._locked = self._locked, []
        merged, self._merged = self._merged, []
        try:
            for name in locked:
                locks.give_back(self.connection, name)
            staging.drop_staging(self.connection, merged)
        except Errors as error:
            log.warning("staging tables %s are left for the next load to drop: %s", ", ".join(merged), error)

    def commit_part(self) -> None:
        """Commit a part of what is applied, and keep the locks. Raises TransientError if one was lost."""
        self._require_locks()
        self.connection.commit()

    def lock_table(self, target: Relation) -> None:
        """A swap or rename that broke is ended first, so that whoever writes finds the table that its ledger knows."""
        self._lock(_lock_of(target), f"another load has held {target}")
        self._end_begun_of(target)

    def end_begun(self) -> None:
        """End the swaps and renames of mirrors that broke, but for those that somebody is at, and those of mirrors that another
        pipeline has in databases where the login lacks a right. What is read from now on is of the table that the ledger knows:
        after a swap it may have another form."""
        swapped = [(swap.old, swap.new) for swap in self.ledger.begun_swaps(self._place)]
        renamed = [renaming.places for renaming in self.ledger.renamings(self._place)]
        for target, *others in [*swapped, *renamed]:
            with locks.locked(self.connection, _lock_of(target), 0) as held:
                if held:
                    try:
                        self._end_begun_of(target)
                    except Errors as error:
                        if not lacks_right(error):
                            raise
                        log.warning("a swap or rename of %s that broke is left for others to end: %s", target, error)
                        self._left |= dict.fromkeys((target, *others), error)

    def _end_begun_of(self, target: Relation) -> None:
        swap = self.ledger.begun_swap(target)
        if swap is not None:
            self._end(swap)
        if self.ledger.renaming_of(target) is not None:
            with locks.locked(self.connection, "renames") as held:  # others may hold the lock of another of its tables
                if not held:
                    raise TransientError(f"another session has been ending a rename of {target}; try again")
                renaming = self.ledger.renaming_of(target)
                if renaming is not None:
                    self._end_renaming(renaming)

    def _lock(self, name: str, holder: str) -> None:
        if not locks.take(self.connection, name):
            raise TransientError(f"{holder} for {locks.WAIT_S} s; try again")
        self._locked.append(name)

    def _require_locks(self) -> None:
        """Raise TransientError if a lock was lost, before what it guards is committed: TiDB takes back one that is held for
        longer than its max-txn-ttl."""
        lost = [name for name in self._locked if not locks.holds(self.connection, name)]
        if lost:
            raise TransientError(
                f"the server has taken back the lock {lost[0]!r} of this load; try again with smaller windows"
            )

    def begin_merge(self, target: Relation) -> None:
        """A DROP or RENAME of a column that a broken load has begun is done first. A column that it was adding goes: the ledger
        does not know it, and no row has a value of its own there."""
        self.lock_table(target)
        for change in self.ledger.begun_changes(target):
            self.change(target, MirrorStep(change.action))
            self.ledger.end_change(target, change)

    def find_table(self, target: Relation) -> FoundTable | None:
        if target in self._left:
            raise self._left[target]
        found = find_table(self.connection, self.server, target)
        if found is None:
            return None
        columns = as_if_ended(found.columns, self.ledger.begun_changes(target))
        return msgspec.structs.replace(found, columns=tuple(columns))

    def is_empty(self, target: Relation) -> bool:
        return not self._any(target, "1 = 1")

    def has_rows_between(
        self, target: Relation, column: str, after: int, before: int, null_column: str | None = None
    ) -> bool:
        is_null = f" AND {identifier(null_column)} IS NULL" if null_column else ""
        return self._any(target, f"{identifier(column)} < {before} AND {identifier(column)} > {after}{is_null}")

    def has_rows_from(self, target: Relation, column: str, version: int) -> bool:
        return self._any(target, f"{identifier(column)} >= {version}")

    def newest(self, target: Relation, column: str) -> int:
        with self.connection.cursor() as cursor:
            cursor.execute(f"SELECT max({identifier(column)}) FROM {sql_of(target)}")
            ((newest,),) = cursor.fetchall()
        return newest or 0

    def version_of(
        self, target: Relation, column: str, key: Mapping[str, object], deleted_column: str | None = None
    ) -> tuple[int, bool] | None:
        found = find_table(self.connection, self.server, target)
        types = {each.name: each.type for each in found.columns} if found is not None else {}
        same_row = []
        for name, cell in key.items():
            assert isinstance(cell, str | bytes), "as staged_cells gives it"
            same_row.append(f"{identifier(name)} = {literal_of(cell, types[name])}")
        marked = "FALSE" if deleted_column is None else identifier(deleted_column)
        with self.connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {identifier(column)}, {marked} FROM {sql_of(target)} WHERE {' AND '.join(same_row)}"
            )
            row = cursor.fetchone()
        return (row[0], bool(row[1])) if row is not None else None

    def delete_below(self, target: Relation, column: str, version: int) -> int:
        return self._run_in_parts(f"DELETE FROM {sql_of(target)} WHERE {identifier(column)} < {version}")

    def truncate(self, target: Relation, column: str, version: int) -> None:
        """At once, for everybody: if the load breaks after it the window is loaded again, and does it again."""
        self._run(f"TRUNCATE TABLE {sql_of(target)}")

    def drop_table(self, target: Relation) -> None:
        self._run(f"DROP TABLE IF EXISTS {sql_of(target)}")

    def drop_mirror(self, plan: TablePlan) -> None:
        """As its ledger is told first, a table that is gone afterwards is not taken for a lost one."""
        self.ledger.begin_dropping(plan.target, plan.floor_ts)
        super().drop_mirror(plan)

    @property
    def changes_keys(self) -> bool:
        """TiDB stores rows by their primary key, and can't change it."""
        return not self.server.is_tidb

    def require_locks(self) -> None:
        """TiDB takes a lock back that is held for long."""
        self._require_locks()

    def drop_followed(self, target: Relation, floor_ts: int) -> None:
        """As its ledger is told first, a table that is gone afterwards is not taken for a lost one."""
        if self.ledger.state_of(target) is not None:
            self.ledger.begin_dropping(target, floor_ts)
        self.drop_table(target)

    def quoted(self, name: str) -> str:
        return identifier(name)

    def number(self, query: str) -> int:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            row = cursor.fetchone()
        return int(row[0]) if row is not None else 0

    def run(self, statement: str) -> None:
        self._run(statement)

    def set_key(self, target: Relation, key: Sequence[str]) -> None:
        found = find_table(self.connection, self.server, target)
        assert found is not None, "a key is changed where the table is"
        self._run(set_key_statement(self.server, target, found, key))

    def rename_tables(self, names: Mapping[Relation, Relation], floor_ts: int) -> None:
        renaming = Renaming(tuple(names.items()), uuid4().hex, self._place)
        for place in renaming.places:  # others take a rename back as soon as they get one of these locks
            if _lock_of(place) not in self._locked:
                self.lock_table(place)
        self.ledger.note_renaming(renaming)
        self._require_locks()  # one may have been waited for
        self.connection.commit()
        renames.rename(self.connection, renaming)

    def end_renames(self, names: Mapping[Relation, Relation], floor_ts: int) -> None:
        self._require_locks()  # without them another session may have taken the rename back
        if not names:
            return
        first = next(iter(names))
        renaming = self.ledger.renaming_of(first)
        if renaming is None:
            raise TransientError(f"another session has taken the rename of {first} back; try again")
        counting = msgspec.structs.replace(renaming, counts=True)
        self.ledger.note_renaming(counting)
        self._require_locks()
        self.connection.commit()
        self._end_renaming(counting)

    def _end_renaming(self, renaming: Renaming) -> None:
        if not renaming.counts:
            renames.take_back(self.connection, renaming)
        renames.clear(self.connection, renaming)
        self.ledger.end_renaming(renaming)
        self.connection.commit()

    def create_schema(self, schema: str) -> None:
        ledger_tables.create_schema(self.connection, self.server, schema)

    def change(self, target: Relation, step: MirrorStep) -> list[str]:
        found = find_table(self.connection, self.server, target)
        match step.action:
            case RemoveColumn(column=name) | RenameColumn(column=name):
                dropped = []
                if found is not None and found.column(name) is not None:
                    if self.server.is_tidb and isinstance(step.action, RemoveColumn):
                        dropped = self._drop_indexes(target, name)
                    self._alter(target, step, found)
                to = step.action.to if isinstance(step.action, RenameColumn) else None
                self.ledger.end_change(target, BegunChange(name, to))
                return [f"DROP INDEX {index}: it has {name}, which TiDB drops from no index" for index in dropped]
            case MakeColumn(column=column):
                # Ends with the marks, when the ledger knows the column (``MysqlLedger.raise_marks``).
                self.ledger.begin_change(target, BegunChange(column.name, adds=True))
                self._alter(target, step, found)
            case ChangeType(column=name, type=type_name):
                is_too_long = found is not None and is_long(changed_type(found, name, type_name))
                dropped = self._drop_indexes(target, name) if is_too_long else []
                self._alter(target, step, found)
                return [f"DROP INDEX {index}: {name} is too long for it" for index in dropped]
            case FillColumn():
                self._run_in_parts(statement_of(self.server, target, step.action, found, lambda _: None))
            case _:
                self._alter(target, step, found)
        return []

    def _drop_indexes(self, target: Relation, column: str) -> list[str]:
        """Drop the indexes that have *column*, but for unique ones; their names. By statements of their own, as TiDB wants."""
        names = indexes_on(self.connection, target, column)
        for name in names:
            self._run(f"ALTER TABLE {sql_of(target)} DROP INDEX {identifier(name)}")
        return names

    def _alter(self, target: Relation, step: MirrorStep, found: FoundTable | None) -> None:
        state = self.ledger.state_of(target)
        fills = {name: column.fill for name, column in state.added_columns.items()} if state is not None else {}
        with needing_room(target, step.text):
            self._run(statement_of(self.server, target, step.action, found, fills.get))

    def make_staging(self, load: Load, plan: TablePlan, defaults: Mapping[str, str], names: Sequence[str]) -> None:
        staging.make_staging(self.connection, self.server, load, plan, defaults, names)

    def drop_staging(self, names: Sequence[str]) -> None:
        """After the commit: a DROP TABLE would be one."""
        self._merged += names

    def merge(
        self, load: Load, plan: TablePlan, staged: Staged, found: FoundTable, *, in_order: bool, observed: Observed
    ) -> tuple[Merged, list[str]]:
        self.require_staged(staged.stages, staged.keys)
        merged = merge(
            self.connection,
            plan,
            staged,
            found,
            in_order=in_order,
            observed=observed,
            rows_per_commit=self.rows_per_commit,
            before_commit=self._require_locks,
        )
        return merged, []

    def require_staged(self, stages: Sequence[str], rows: int) -> None:
        """Raise TransientError if *stages* have not as many *rows* as workers reported: a proxy may send them elsewhere."""
        staging.require_whole(self.connection, stages, rows)

    def dependants(self, target: Relation) -> list[str]:
        return tables_swap.dependants(self.connection, target)

    def copy_indexes(self, old: Relation, new: Relation) -> list[str]:
        return tables_swap.copy_indexes(self.connection, old, new)

    def swap(self, swap: Swap) -> None:
        """It is decided once it is written down. RENAME TABLE and the ledger's part follow, here or in the next session."""
        self.ledger.begin_swap(swap)
        self._require_locks()
        self.connection.commit()
        self._end(swap)

    def _end(self, swap: Swap) -> None:
        tables_swap.rename(self.connection, swap)
        self.ledger.replace(swap.old, swap.new, swap.old_tombstones)
        self.ledger.replace_marks(swap.place, swap.new.schema)
        self.ledger.end_swap(swap)
        self.connection.commit()

    def drop_schema(self, schema: str) -> None:
        tables_swap.drop_database(self.connection, schema)

    def _any(self, target: Relation, condition: str) -> bool:
        return bool(self._run(f"SELECT 1 FROM {sql_of(target)} WHERE {condition} LIMIT 1"))

    def _run_in_parts(self, statement: str) -> int:
        """Run *statement*, a DELETE or UPDATE of all rows that meet its condition, none of which meets it afterwards. Where
        transactions are limited, each part of the rows is committed: after a break the next load does the rest."""
        most = self.rows_per_commit
        if most is None:
            return self._run(statement)
        changed = part = self._run(f"{statement} LIMIT {most}")
        while part == most:
            self.commit_part()
            part = self._run(f"{statement} LIMIT {most}")
            changed += part
        return changed

    def _run(self, statement: str) -> int:
        with self.connection.cursor() as cursor:
            return int(cursor.execute(statement))


def _lock_of(target: Relation) -> str:
    return f"table {target}"
