"""The ledger of a mirror in MySQL, TiDB and MariaDB: beside what every database has, what DDL had begun when a load broke."""

from collections.abc import Sequence
from typing import ClassVar, LiteralString

import msgspec

from ticdc_replay.targets.mirror.begun_changes import BegunChange
from ticdc_replay.targets.mirror.beside import Swap
from ticdc_replay.targets.mirror.planning.tables import ColumnMove, Relation, TableState
from ticdc_replay.targets.mirror.sql_ledger import SqlLedger
from ticdc_replay.targets.mysql.begun import BegunLoads
from ticdc_replay.targets.mysql.renames import Renaming
from ticdc_replay.targets.mysql.tables import sql_of

_OF_TARGET: LiteralString = "WHERE (target_schema, target_table) = (%s, %s)"
_OF_CHANGE: LiteralString = _OF_TARGET + " AND (column_name, new_name, adds) = (%s, %s, %s)"


class MysqlLedger(BegunLoads, SqlLedger):
    """The tables of ``ledger_tables``."""

    report_text: ClassVar[LiteralString] = "report"
    outcome: ClassVar[LiteralString] = "JSON_UNQUOTE(JSON_EXTRACT(report, '$.outcome'))"

    def state_of(self, target: Relation) -> TableState | None:
        state = super().state_of(target)
        if state is None:
            return None
        (row, *_) = self._execute("SELECT max(floor_ts) FROM {schema}.dropping " + _OF_TARGET, _place(target))
        ((base,),) = self._execute("SELECT base FROM {schema}.tables " + _OF_TARGET, _place(target))
        is_dropping = row[0] is not None and state.floor_ts < row[0] and state.newest_ts < row[0]
        return msgspec.structs.replace(state, is_being_dropped=is_dropping, base=base)

    def begin_dropping(self, target: Relation, floor_ts: int) -> None:
        """Note that the table *target* is about to be dropped, and its floor raised to *floor_ts* (TSO). Once either is so
        far the note counts no more."""
        self._execute("DELETE FROM {schema}.dropping " + _OF_TARGET, _place(target))
        self._execute("INSERT INTO {schema}.dropping VALUES (%s, %s, %s)", [*_place(target), floor_ts])

    def raise_floor(self, target: Relation, floor_ts: int, form_floor_ts: int) -> None:
        super().raise_floor(target, floor_ts, form_floor_ts)
        self._execute(
            "DELETE FROM {schema}.begun_changes " + _OF_TARGET + " AND NOT adds AND commit_ts < %s",
            [*_place(target), form_floor_ts],
        )

    def raise_marks(self, target: Relation, *, schema_ts: int, whole_ts: int, newest_ts: int) -> None:
        """From now on the ledger knows the columns that were added."""
        super().raise_marks(target, schema_ts=schema_ts, whole_ts=whole_ts, newest_ts=newest_ts)
        self._execute("DELETE FROM {schema}.begun_changes " + _OF_TARGET + " AND adds", _place(target))

    def note_base(self, target: Relation, run_hash: str) -> None:
        self._execute("UPDATE {schema}.tables SET base = %s " + _OF_TARGET, [run_hash, *_place(target)])

    def note_column_event(self, target: Relation, move: ColumnMove) -> None:
        """With its step as one that has begun: the event is true whether or not the step is done."""
        super().note_column_event(target, move)
        begun = BegunChange.of(move)
        if begun is not None:
            self.begin_change(target, begun)

    def begin_change(self, target: Relation, change: BegunChange) -> None:
        """Note that *change* is about to be done."""
        self.end_change(target, change)
        self._execute(
            "INSERT INTO {schema}.begun_changes (target_schema, target_table, column_name, new_name, adds, commit_ts) "
            "VALUES (%s, %s, %s, %s, %s, %s)",
            [*_place(target), *_key(change), change.commit_ts],
        )

    def begun_changes(self, target: Relation) -> tuple[BegunChange, ...]:
        """What was begun to *target* and may not be done, oldest first."""
        rows = self._execute(
            "SELECT column_name, new_name, adds, commit_ts FROM {schema}.begun_changes " + _OF_TARGET + " ORDER BY id",
            _place(target),
        )
        return tuple(BegunChange(name, new or None, bool(adds), commit_ts) for name, new, adds, commit_ts in rows)

    def end_change(self, target: Relation, change: BegunChange) -> None:
        """Note that *change* is done."""
        self._execute("DELETE FROM {schema}.begun_changes " + _OF_CHANGE, [*_place(target), *_key(change)])

    def begin_swap(self, swap: Swap) -> None:
        """Note that *swap* is decided, and may be done or not."""
        content = msgspec.json.encode(swap).decode()
        self._execute("INSERT INTO {schema}.swaps VALUES (%s, %s, %s)", [*_place(swap.old), content])

    def begun_swap(self, target: Relation) -> Swap | None:
        """The swap of *target* that is decided and may not be done; None if there is none."""
        row = self._first("SELECT content FROM {schema}.swaps " + _OF_TARGET, _place(target))
        return msgspec.json.decode(row[0], type=Swap) if row is not None else None

    def begun_swaps(self, place: str) -> list[Swap]:
        """The swaps of mirrors of *place* that are decided and may not be done."""
        swaps = [msgspec.json.decode(row[0], type=Swap) for row in self._execute("SELECT content FROM {schema}.swaps")]
        return [swap for swap in swaps if swap.place == place]

    def end_swap(self, swap: Swap) -> None:
        """Note that *swap* is done."""
        self._execute("DELETE FROM {schema}.swaps " + _OF_TARGET, _place(swap.old))

    def note_renaming(self, renaming: Renaming) -> None:
        """Note *renaming*, in place of what is noted of it."""
        self.end_renaming(renaming)
        content = msgspec.json.encode(renaming).decode()
        for place in renaming.places:
            self._execute("INSERT INTO {schema}.renames VALUES (%s, %s, %s)", [*_place(place), content])

    def renaming_of(self, target: Relation) -> Renaming | None:
        """The noted rename that gives or takes the name *target*; None if there is none."""
        row = self._first("SELECT content FROM {schema}.renames " + _OF_TARGET, _place(target))
        return msgspec.json.decode(row[0], type=Renaming) if row is not None else None

    def renamings(self, place: str) -> list[Renaming]:
        """The noted renames of mirrors of *place*."""
        rows = self._execute("SELECT DISTINCT content FROM {schema}.renames")
        renamings = [msgspec.json.decode(row[0], type=Renaming) for row in rows]
        return [renaming for renaming in renamings if renaming.place == place]

    def end_renaming(self, renaming: Renaming) -> None:
        """Note nothing of *renaming* any more."""
        for place in renaming.places:
            self._execute("DELETE FROM {schema}.renames " + _OF_TARGET, _place(place))

    def replace(self, old: Relation, new: Relation, tombstones: Relation) -> None:
        for table in ("begun_changes", "dropping"):
            self._execute("DELETE FROM {schema}." + table + " " + _OF_TARGET, _place(old))
            self._execute(
                "UPDATE {schema}." + table + " SET target_schema = %s, target_table = %s " + _OF_TARGET,
                [*_place(old), *_place(new)],
            )
        super().replace(old, new, tombstones)

    def forget(self, target: Relation, tombstones: Relation) -> None:
        for table in ("begun_changes", "dropping"):
            self._execute("DELETE FROM {schema}." + table + " " + _OF_TARGET, _place(target))
        super().forget(target, tombstones)

    def _drop_tombstones(self, tombstones: Relation) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {sql_of(tombstones)}")


def _place(target: Relation) -> Sequence[str]:
    return [target.schema, target.table]


def _key(change: BegunChange) -> Sequence[object]:
    return [change.column, change.to or "", change.adds]
