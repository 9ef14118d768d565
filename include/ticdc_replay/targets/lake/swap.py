"""Lets a lake table that was filled anew take the place of another one: by its rows, as not all catalogs rename tables, and none
swaps two in one step.

The old table stays, with its name, history, layout and grants. It gets the columns that it lacks, then all rows in one commit,
and then loses the columns that the new table does not have. So until that commit readers see the old rows. Whatever breaks, the
same steps are taken again: the columns show which are done, and the commit has a mark.
"""

import json
import logging
from collections.abc import Sequence
from typing import NamedTuple
from uuid import uuid4

from ticdc_replay.domain.errors import (
    PermanentError,
    PolicyStopError,
    TargetMismatchError,
    TicdcReplayError,
    TransientError,
)
from ticdc_replay.domain.tables import folded
from ticdc_replay.targets.lake.commits import commit_as
from ticdc_replay.targets.lake.dialect import lake_dialect, quoted
from ticdc_replay.targets.lake.documents import SwapNote
from ticdc_replay.targets.lake.errors import translate
from ticdc_replay.targets.lake.following import FollowingLakeSession
from ticdc_replay.targets.lake.swapping_ledger import SwappingLakeLedger
from ticdc_replay.targets.lake.table_format import ATTEMPT, KEY, TableFormat
from ticdc_replay.targets.lake.tables import why_type_stays
from ticdc_replay.targets.lake.types import holds
from ticdc_replay.targets.mirror import marks
from ticdc_replay.targets.mirror.beside import Swap, SwappingSession
from ticdc_replay.targets.mirror.planning.tables import (
    Action,
    ChangeType,
    ColumnDefinition,
    MakeColumn,
    Relation,
    RemoveColumn,
    RenameColumn,
)
from ticdc_replay.targets.sql import SqlError

log = logging.getLogger(__name__)

_REBUILDS = "rebuilds"
"""What commits of a swap change; see ``commit_as``."""
_TEMPORARY = "_ticdc_rebuilt_"
"""Prefix of a column's name until the one that has the name is gone."""

Columns = Sequence[tuple[str, str, bool]]
"""Name, type and nullability, as ``Sql.columns`` gives them."""


class Alignment(NamedTuple):
    """How a table gets the columns and rows of another one."""

    before: list[Action]
    """What is done before the rows come."""
    cells: list[str]
    """For each column that the table then has, in its order, the SQL expression over the other table's columns."""
    after: list[Action]
    """What is done after they came."""

    @property
    def removed(self) -> list[str]:
        """The columns that go."""
        return [action.column for action in self.after if isinstance(action, RemoveColumn)]


def align(table_format: TableFormat, old: Columns, new: Columns) -> Alignment:
    """How a table with the columns *old* gets those of *new*, also if an attempt has done a part of it."""
    types, spelled = {name: kind for name, kind, _ in old}, {folded(name): name for name, _, _ in old}
    before: list[Action] = []
    renamed: list[RenameColumn] = []
    sources: dict[str, str] = {}
    added: list[str] = []
    for name, kind, _ in new:
        temporary = f"{_TEMPORARY}{name}"
        known = types.get(name)
        if temporary in types:
            to = temporary
        elif known is not None and holds(known, kind):
            to = name
        elif known is not None and why_type_stays(table_format, known, kind) is None:
            to = name
            before.append(ChangeType(name, kind))
        else:
            to = temporary if folded(name) in spelled else name
            before.append(MakeColumn(ColumnDefinition(to, kind)))
            added.append(to)
        if to == temporary:
            renamed.append(RenameColumn(temporary, name))
        sources[to] = quoted(name)
    gone: list[Action] = [RemoveColumn(name) for name in types if name not in sources]
    flags = {name for name, kind, null in old if kind == "boolean" and not null}
    empty = {name: "false" if name in flags else "NULL" for name in types}
    cells = [sources.get(name, empty.get(name, "NULL")) for name in [*types, *added]]
    return Alignment(before, cells, [*gone, *renamed])


class SwappingLakeSession(FollowingLakeSession, SwappingSession):
    """A session that can let one mirror take the place of another one."""

    ledger: SwappingLakeLedger

    def lock_table(self, target: Relation) -> None:
        """Ends a swap that an attempt has decided. Raises PermanentError if that needs Spark, and the session has none."""
        super().lock_table(target)
        note = self.ledger.swap_of(target)
        if note is None:
            return
        if self._sql is None:
            raise PermanentError(
                f"a rebuild of {target} broke while the new table took its place: run `ticdc-replay mirror rebuild` again, "
                "which ends it"
            )
        self.ended_swap = self._end(target, note)

    def begin_merge(self, target: Relation) -> None:
        super().begin_merge(target)
        taken = self.ledger.taken_from(target)
        if taken is not None:
            raise TransientError(
                f"{target} is about to take the place of {taken}: run `ticdc-replay mirror rebuild` again, which ends that first"
            )

    def dependants(self, target: Relation) -> list[str]:
        """None: the table stays."""
        return []

    def copy_indexes(self, old: Relation, new: Relation) -> list[str]:
        """None: a lake has no indexes."""
        return []

    def drop_schema(self, schema: str) -> None:
        for statement in self._format.drop_schema(schema):
            self.sql.run(statement)

    def swap(self, swap: Swap) -> None:
        """It is decided once the ledger notes it: rows and ledger follow, here or in ``lock_table``."""
        held = self.ledger.held_by(swap.old)  # as it was read when both were compared
        self._end_begun(swap.new)
        self._refuse_untakeable(swap)
        self.ledger.flush()
        self._verify()
        looked = self._look_now(swap.old)
        columns = None if looked is None else [name for name, _, _ in looked.columns]
        self.ledger.begin_swap(swap.old, swap.new, swap.old_tombstones, held, columns)
        note = self.ledger.swap_of(swap.old)
        assert note is not None, "it was noted"
        if not self._end(swap.old, note):
            raise TransientError(f"{swap.old} was loaded while {swap.new} began to take its place; try again")

    def _verify(self) -> None:
        """Check that all leases are still held."""
        for lease in self._leases.values():
            lease.verify()

    def end_swap(self, target: Relation) -> None:
        """End the swap of *target* if one is decided. No lock is held, before or after."""
        if self.ledger.swap_of(target) is not None:
            self.lock_table(target)
            self._release()

    def withdraw_swap(self, target: Relation) -> None:
        super().lock_table(target)
        note = self.ledger.swap_of(target)
        if note is not None and (note.is_written or self._has_rows_of(target, note)):
            raise PolicyStopError(
                f"{target} has the rows of {note.side} already: run `ticdc-replay mirror rebuild` again, which ends the swap"
            )
        if note is not None:
            self._withdraw(target, note)
        self._release()

    def _refuse_untakeable(self, swap: Swap) -> None:
        """Raise TargetMismatchError if the old table can't get the form of the new one."""
        old, new = self._look_now(swap.old), self._look_now(swap.new)
        if old is None or new is None:
            return
        changes = align(self._format, old.columns, new.columns)
        required = {name for name, kind, null in old.columns if not null and kind != "boolean"}
        lines = [
            f"column {name} is NOT NULL, and the new table has none" for name in changes.removed if name in required
        ]
        for name in changes.removed:
            reason = self._format.why_undroppable(self.sql, swap.old, name)
            if reason is not None:
                lines.append(f"column {name}, which the new table does not have: {reason}")
        changed = [*changes.removed, *(action.column for action in changes.before if isinstance(action, ChangeType))]
        if changed and self._format.may_compute_columns(self.sql, swap.old):
            lines.append(
                f"columns {', '.join(changed)} go, or get another type, and its generated columns may need them: "
                f"{self._format.config.database} does not show what they are computed from"
            )
        nullable = {name for name, _, null in old.columns if null}
        wanted = {
            name for name, _, null in new.columns if not null
        } - self._own_columns()  # which people may have added
        lines += [f"column {name} may be NULL, and must not" for name in sorted(nullable & wanted)]
        lines += [
            f"column {name} is missing, and must be NOT NULL"
            for name in sorted(wanted - {each for each, *_ in old.columns})
        ]
        if lines:
            raise TargetMismatchError(
                f"{swap.old} can't get the rows of a new table:\n- "
                + "\n- ".join(lines)
                + "\nChange it so, or drop it, and run the rebuild again: a table that is gone is made new"
            )

    def _end(self, target: Relation, note: SwapNote) -> bool:
        """Do what is left of the swap that *note* is of; whether the mirror is the new one then."""
        if not note.is_written:
            if self._is_void(target, note):
                log.warning("%s stays as it is: the table %s, which was to take its place, is gone", target, note.side)
                self._withdraw(target, note)
                return False
            if not self._has_rows_of(target, note) and self.ledger.held_by(target) != note.held:
                log.warning("%s stays as it is: it was loaded while %s began to take its place", target, note.side)
                self.ledger.withdraw_swap(target)
                return False
            try:
                self._take_rows(target, note)
            except (SqlError, TicdcReplayError) as error:
                failure = translate(error, self._format, "swap") if isinstance(error, SqlError) else error
                if isinstance(failure, PermanentError) and not self._has_rows_of(target, note):
                    log.warning("%s stays as it is: it can't get the rows of %s", target, note.side)
                    self._withdraw(target, note)
                raise
            config = self._format.config
            self._verify()
            self.ledger.take_over(target, marks.place_of(config, lake_dialect(config.database)))
        self.drop_table(note.side)
        self._verify()
        self.ledger.end_swap(target)
        self._seen.clear()
        return True

    def _withdraw(self, target: Relation, note: SwapNote) -> None:
        """Let *target*, which has none of the new rows, be as it was when the swap that *note* is of was decided: without the
        columns that were added, and lost if it was."""
        looked, new = self._look_now(target), self._look_now(note.side)
        if looked is not None:
            self._fence(target, what=_REBUILDS)  # an attempt may stall at its commit, and has lost its lease
            if self._has_rows_of(target, note):
                raise TransientError(f"{target} has got the rows of {note.side} meanwhile; try again")
        if looked is not None and note.is_lost and self.is_empty(target):
            self.drop_table(target)
        elif looked is not None:
            added = {name for name, _, _ in new.columns} if new is not None and note.columns else set()
            for name, _, _ in looked.columns:
                if not name.startswith(_TEMPORARY) and name not in added.difference(note.columns):
                    continue
                reason = self._format.why_undroppable(self.sql, target, name)
                if reason is None:
                    self._alter(target, RemoveColumn(name))
                else:
                    log.warning("%s: the column %s, which was added, stays: %s", target, name, reason)
        self._verify()
        self.ledger.withdraw_swap(target)

    def _is_void(self, target: Relation, note: SwapNote) -> bool:
        """Whether somebody has dropped the new table before its rows came. Raises PermanentError if it was after that."""
        if self._look_now(note.side) is not None:
            return False
        if self._has_rows_of(target, note):
            raise PermanentError(
                f"the table {note.side} was dropped by hand while its rows took the place of those of {target}. Drop {target}, "
                "too, and run `ticdc-replay mirror rebuild` again"
            )
        return True

    def _has_rows_of(self, target: Relation, note: SwapNote) -> bool:
        """Whether the commit that brings the new rows into *target* was done."""
        if self._look_now(target) is None:
            return False
        return note.has_rows or self._format.find_commit(self.sql, target, self._mark(target, note.side)) is not None

    def _mark(self, target: Relation, side: Relation) -> str:
        """Names the commit that brings the rows of *side* into *target*."""
        return f"{self.ledger.incarnation_of(target)}/rebuild/{self.ledger.incarnation_of(side)}"

    def _take_rows(self, target: Relation, note: SwapNote) -> None:
        """Bring the rows of the new table, and its columns, into the table *target*, which is made if it is lost."""
        side, has_rows = note.side, self._has_rows_of(target, note)
        new = self._look_now(side)
        assert new is not None, "its rows are still to be taken"
        key = json.loads(new.properties[KEY])
        if self._look_now(target) is None:
            self.create_schema(target.schema)
            columns = [f"{quoted(name)} {kind}{'' if null else ' NOT NULL'}" for name, kind, null in new.columns]
            self._create(target, columns, key)
        old = self._look_now(target)
        assert old is not None, "it was made"
        changes = align(self._format, old.columns, new.columns)
        for action in changes.before:
            self._alter(target, action)
        if not has_rows:
            self._fence(target)
            rows = f"SELECT {', '.join(changes.cells)} FROM {self._format.name_of(side)}"
            attempt = uuid4().hex
            commit_as(
                self.sql,
                self._format,
                target,
                self._leases[target],
                attempt,
                self._mark(target, side),
                {ATTEMPT: attempt},
                lambda changed, _: self._format.replace_rows(self.sql, changed, "true", rows),
                what=_REBUILDS,
            )
        if not note.has_rows:
            self._verify()
            self.ledger.note_rows(target)
        for action in changes.after:
            self._alter(target, action)
        if json.loads(old.properties.get(KEY, "[]")) != key:
            self.set_key(target, key)
        self._adopt(target)
