"""A mirror that is filled anew beside the old one, and then takes its place.

The new one is a mirror as any other, in a schema of its own: it has its own ledger, and loads fill it as they fill the old one.
Once it holds every window that the old one holds, both are swapped, with tombstones, ledger and marks.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import msgspec

from ticdc_replay.domain.errors import TargetMismatchError, TransientError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import AppliedRun, ReplaceableMirror, Replaced
from ticdc_replay.targets.mirror import marks
from ticdc_replay.targets.mirror.following import FollowingSession
from ticdc_replay.targets.mirror.ledger import SwappingLedger
from ticdc_replay.targets.mirror.planning import differences
from ticdc_replay.targets.mirror.planning.table_plan import target_of, tombstones_of
from ticdc_replay.targets.mirror.planning.tables import Relation, TableState
from ticdc_replay.targets.mirror.upkeep import Config, KeptMirror

SIDE_SCHEMA = "ticdc_rebuild_"
"""What the schemas of mirrors that are being rebuilt begin with."""


class Swap(msgspec.Struct, frozen=True):
    """One mirror that takes the place of another one, each with its tombstones. *place* is ``marks.place_of`` the old one."""

    old: Relation
    new: Relation
    old_tombstones: Relation
    new_tombstones: Relation
    place: str


class SwappingSession(FollowingSession):
    """A session that can swap mirrors."""

    ledger: SwappingLedger
    ended_swap: bool = False
    """Whether a lock that was taken has ended a swap which another attempt had decided."""

    @abstractmethod
    def dependants(self, target: Relation) -> list[str]:
        """What would be lost, or would be left without *target*, if another table took its place: a line each."""

    @abstractmethod
    def copy_indexes(self, old: Relation, new: Relation) -> list[str]:
        """Give *new* the indexes of *old* that it lacks and that are not unique; those that it can't have."""

    @abstractmethod
    def swap(self, swap: Swap) -> None:
        """Let the new mirror take the place of the old one, which may be lost. Once it returns, or if it broke after its first
        commit, every session that locks the old table sees the swap done. What is left of the old one is dropped."""

    def withdraw_swap(self, target: Relation) -> None:
        """Let *target* stay as it is if a swap of it is decided, and has not brought the new rows. No lock is held, before or
        after. Raises PolicyStopError once it has. Here: what is decided is done."""
        return

    @abstractmethod
    def drop_schema(self, schema: str) -> None:
        """Drop *schema*, which has no table of a person, where it exists."""


class BesideMirror(KeptMirror[Config], ReplaceableMirror[Config]):
    """The mirrors of a database, each of which can be filled anew beside itself."""

    @abstractmethod
    def session(self, doing: str) -> AbstractContextManager[SwappingSession]: ...

    def beside(self, table: TableName) -> Config:
        target = self._target(table)
        digest = hashlib.sha256(f"{target.schema}.{target.table}".encode()).hexdigest()[:12]
        return self.config.model_copy(update={"db_schema": f"{SIDE_SCHEMA}{digest}"})

    def marker_in(self, state: TableState | None) -> str | None:
        """The column in which the mirror of *state* marks deleted rows; None if it has none, or is to have none."""
        return state.deleted_column if state is not None and self.config.marker is not None else None

    def applied(self, table: TableName) -> tuple[AppliedRun, ...]:
        with self._opened("look up the loads of", table) as (session, swap):
            return _done(session, swap.old)

    def applied_beside(self, table: TableName) -> tuple[AppliedRun, ...]:
        with self._opened("look up the loads of", table) as (session, swap):
            return _done(session, swap.new)

    def require_replaceable(self, pipeline: str, table: TableName) -> None:
        with self._opened("look at", table) as (session, swap):
            self._require_replaceable(session, pipeline, swap)

    def replace(
        self, pipeline: str, table: TableName, superseded: Collection[str], needed: Collection[str]
    ) -> Replaced:
        with self._opened("prepare the indexes of", table) as (session, swap):
            lost: list[str] = []
            if session.find_table(swap.new) is not None and session.find_table(swap.old) is not None:
                lost = session.copy_indexes(swap.old, swap.new)
        with self._opened("swap", table) as (session, swap):
            for relation in sorted((swap.old, swap.new), key=str):
                session.lock_table(relation)
            if session.ended_swap:
                self._clear(session, swap.new.schema)
                state = session.ledger.state_of(swap.old)
                return Replaced(str(swap.old), state.floor_ts if state is not None else 0, (), ())
            new = session.ledger.state_of(swap.new)
            if new is None or session.find_table(swap.new) is None:
                raise TargetMismatchError(
                    f"there is no table beside {swap.old}: the changelogs show no row, or end with a DROP, or another rebuild "
                    "has swapped or abandoned it. Run the command again; if a person has dropped the table, with --abandon before"
                )
            self._require_replaceable(session, pipeline, swap)
            unloaded = set(needed).difference(run.run_hash for run in _done(session, swap.new))
            if unloaded:
                raise TransientError(
                    f"the table beside {swap.old} lacks {len(unloaded)} of {len(needed)} runs that were loaded into it, such as "
                    f"{min(unloaded)}: somebody has removed it meanwhile. Run the command again, which loads what is missing"
                )
            lacking = _lacking(session, swap, new, superseded)
            if not lacking:
                session.create_schema(swap.old.schema)
                session.swap(swap)
                self._clear(session, swap.new.schema)
        return Replaced(str(swap.old), new.floor_ts, tuple(lacking), tuple(lost))

    def deleted_before(self, table: TableName, before_ts: int) -> int:
        with self._opened("count the deleted rows of", table) as (session, swap):
            marker = self.marker_in(session.ledger.state_of(swap.old))
            if marker is None or session.find_table(swap.old) is None:
                return 0
            is_older = f"{session.quoted(self.config.commit_ts_column)} < {before_ts}"
            name = session.name_of(swap.old)
            return session.number(f"SELECT count(*) FROM {name} WHERE {session.quoted(marker)} AND {is_older}")

    def withdraw_swap(self, table: TableName) -> None:
        with self._opened("look for a swap of", table) as (session, swap):
            session.withdraw_swap(swap.old)
            session.lock_table(swap.old)

    def abandon(self, table: TableName) -> bool:
        with self._opened("abandon what was built beside", table) as (session, swap):
            session.withdraw_swap(swap.old)
            for relation in sorted((swap.old, swap.new), key=str):
                session.lock_table(relation)
            begun = session.ledger.state_of(swap.new) is not None or session.find_table(swap.new) is not None
            self._clear(session, swap.new.schema)
        return begun

    def _clear(self, session: SwappingSession, schema: str) -> None:
        """Drop all that is left in the side schema *schema*, and forget it."""
        for _, relation, _ in session.ledger.mirrors():
            if relation.schema == schema:
                session.drop_table(relation)
                session.ledger.forget(relation, tombstones_of(relation, self.dialect))
        session.ledger.forget_place(schema)
        session.drop_schema(schema)

    def _require_replaceable(self, session: SwappingSession, pipeline: str, swap: Swap) -> None:
        state = session.ledger.state_of(swap.old)
        if state is not None:
            differences.refuse_others(swap.old, state, pipeline, self.config.same_upstream_as)
            differences.refuse_shaped(swap.old, state, pipeline)
        found = session.find_table(swap.old)
        if found is None:
            return
        if not found.is_table:
            raise TargetMismatchError(
                f"{swap.old} is no table, so it can't be replaced: drop it, and run the command again"
            )
        if state is None and found.column(self.config.commit_ts_column) is None:
            raise TargetMismatchError(
                f"{swap.old} is no mirror: no load has filled it, and it lacks the column {self.config.commit_ts_column}. A "
                "rebuild would drop it with its rows. Rename it, or drop it, and run the command again"
            )
        lines = session.dependants(swap.old)
        if lines:
            raise TargetMismatchError(
                f"{swap.old} can't be replaced, because a new table would lack, or break:\n- "
                + "\n- ".join(lines)
                + "\nKeep their definitions, drop them, run the rebuild again, and create them again after it"
            )

    @contextmanager
    def _opened(self, doing: str, table: TableName) -> Iterator[tuple[SwappingSession, Swap]]:
        target = self._target(table)
        side = target_of(self.beside(table), self.dialect, table)
        swap = Swap(
            target,
            side,
            tombstones_of(target, self.dialect),
            tombstones_of(side, self.dialect),
            marks.place_of(self.config, self.dialect),
        )
        with self.session(f"{doing} {target}") as session:
            yield session, swap


def _done(session: SwappingSession, target: Relation) -> tuple[AppliedRun, ...]:
    return tuple(run for run in session.ledger.applied_runs(target) if run.report.outcome != "stopped")


def _lacking(
    session: SwappingSession, swap: Swap, new: TableState, superseded: Collection[str]
) -> Sequence[AppliedRun]:
    """What the old mirror has of windows from above the floor of the new one, and that one lacks."""
    held = {(run.window, run.run_hash) for run in _done(session, swap.new)}
    return [
        run
        for run in _done(session, swap.old)
        if (run.window, run.run_hash) not in held and run.window.to_ts > new.floor_ts and run.run_hash not in superseded
    ]
