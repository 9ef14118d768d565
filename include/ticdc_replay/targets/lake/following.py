"""What a lake brings to a mirror that follows a DDL by a command (``targets.mirror.following``). Each statement is a commit."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ticdc_replay.changelog.cells.types import MAX_DECIMAL_DIGITS
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.targets.lake.dialect import quoted, string
from ticdc_replay.targets.lake.documents import Former
from ticdc_replay.targets.lake.session import LakeSession
from ticdc_replay.targets.lake.table_format import INCARNATION, properties_sql
from ticdc_replay.targets.lake.tables import key_property, why_type_stays
from ticdc_replay.targets.mirror.following import FollowingSession
from ticdc_replay.targets.mirror.planning.renames import between, in_order
from ticdc_replay.targets.mirror.planning.tables import ColumnMove, MirrorStep, Relation, RenameColumn


class FollowingLakeSession(LakeSession, FollowingSession):
    """A session that also changes keys and names of tables."""

    in_one_transaction: ClassVar[bool] = False
    most_digits: ClassVar[int | None] = MAX_DECIMAL_DIGITS

    @property
    def changes_keys(self) -> bool:
        return True

    @property
    def marker(self) -> str | None:
        return next(iter(self._own_columns()), None)

    def quoted(self, name: str) -> str:
        return quoted(name)

    def name_of(self, target: Relation) -> str:
        return self._format.name_of(target)

    def why_unfit_unknown(self, column_type: ColumnType, found: str) -> str | None:
        if column_type.base == "decimal" and found == "string":
            return "the lake has its numbers as texts, which it can't compare"
        return None

    def micros_of(self, column: str, column_type: ColumnType) -> str:
        """A span is its microseconds."""
        return column if column_type.base == "time" else f"extract(SECOND FROM {column}) * 1000000"

    def run(self, statement: str) -> None:
        self._run(statement)

    def why_type_stays(self, before: str, after: str) -> str | None:
        return why_type_stays(self._format, before, after)

    def why_name_stays(self, old: Relation, new: Relation) -> str | None:
        return self._format.why_name_stays(old, new)

    def number(self, query: str) -> int:
        (row,) = self.sql.run(query)
        (number,) = row.values()
        return int(number)

    def change(self, target: Relation, step: MirrorStep) -> list[str]:
        """A column of the key takes it along. The key comes first: a repeat then still finds the column to rename."""
        if isinstance(step.action, RenameColumn):
            found = self.find_table(target)
            key = found.primary_key if found is not None else ()
            if step.action.column in key:
                self.set_key(target, [step.action.to if name == step.action.column else name for name in key])
        return super().change(target, step)

    def set_key(self, target: Relation, key: Sequence[str]) -> None:
        """The key of a lake's table is a property."""
        properties = properties_sql(key_property(key), string)
        self._run(f"ALTER TABLE {self._format.name_of(target)} SET TBLPROPERTIES ({properties})")

    def rename_tables(self, names: Mapping[Relation, Relation], floor_ts: int) -> None:
        """One after the other. Each keeps the mark of its old name: it is found by that, and no load takes a table with it."""
        places = self.find_renamed(names, floor_ts)
        for old, place in places.items():
            if place == old and self.ledger.incarnation_of(old) is not None:
                self._adopt(old)
                self.ledger.forget_former(old)
        for new in (
            names.values()
        ):  # what it says of an earlier rename is of a table that is gone, also if a person dropped it
            former = self.ledger.former_of(new)
            if former is not None and former.floor_ts != floor_ts:
                self.ledger.forget_former(new)
        for old, place in places.items():
            if place != names[old]:
                self._fence(names[old], place)  # a load of the new name may have begun when another table had it
        for place, new in in_order({place: names[old] for old, place in places.items() if place != names[old]}):
            self._run(self._format.rename_table(place, new))

    def find_renamed(self, names: Mapping[Relation, Relation | None], floor_ts: int) -> dict[Relation, Relation]:
        """As the ledger says, if it has the new name already, and else as the marks show."""
        own = {old: self.ledger.incarnation_of(old) for old in names}
        arrived = {
            old: new
            for old, new in names.items()
            if new is not None
            and own[old] is not None
            and self.ledger.former_of(new) == Former(own[old] or "", floor_ts)
            and not self._is_made_again(old, floor_ts)
        }
        places = {place for name in (*names, *names.values()) if name is not None for place in (name, between(name))}
        marks = {place: self._mark_of(place) for place in places.difference(arrived.values())}
        found = dict(arrived)
        for old in names.keys() - arrived.keys():
            mark = marks.get(old)
            moved = [place for place, each in marks.items() if each is not None and each == own[old]]
            if mark is not None and mark in ("", *self.ledger.marks_of(old)):
                found[old] = old
            elif moved:
                found[old] = moved[0]
            elif mark is not None and mark not in own.values():
                self.find_table(old)  # raises: it is none of this ledger
        return found

    def _is_made_again(self, old: Relation, floor_ts: int) -> bool:
        """Whether *old* has a table again, below the floor *floor_ts* (TSO), though its own one has the new name: a rebuild that
        began before the rename has made it."""
        state, own = self.ledger.state_of(old), self.ledger.incarnation_of(old)
        return state is not None and state.floor_ts < floor_ts and self._mark_of(old) == own

    def _mark_of(self, table: Relation) -> str | None:
        """The mark of the table that is called *table* now, empty if it has none; None if there is no table."""
        properties = self._properties(table)
        if properties is None or self._format.is_dropped(properties):
            return None
        return properties.get(INCARNATION, "")

    def end_renames(self, names: Mapping[Relation, Relation], floor_ts: int) -> None:
        """A load may take them then, and puts the mark of the new name into them."""
        for old, new in names.items():
            former = self.ledger.incarnation_of(old)
            if former is not None:
                self.ledger.note_former(new, Former(former, floor_ts))

    def note_column(self, target: Relation, move: ColumnMove) -> None:
        """The document of a new name is written first (``LakeLedger.flush``), so that no column is forgotten under both names."""
        self.ledger.note_column_event_later(target, move)

    def drop_followed(self, target: Relation, floor_ts: int) -> None:
        """As ``drop_mirror``."""
        if self.ledger.state_of(target) is not None:
            self._begin_dropping(target, floor_ts)
        self.drop_table(target)
