"""Mirrors whose tables follow, by a command, a DDL that stopped a load."""

from abc import abstractmethod
from contextlib import AbstractContextManager

from ticdc_replay.targets.base import Followed, StoppingDdl
from ticdc_replay.targets.mirror import following
from ticdc_replay.targets.mirror.following import FollowingSession
from ticdc_replay.targets.mirror.planning.table_plan import target_of
from ticdc_replay.targets.mirror.upkeep import Config, KeptMirror


class FollowableMirror(KeptMirror[Config]):
    """The mirrors of a database that can change keys and names of tables."""

    @abstractmethod
    def session(self, doing: str) -> AbstractContextManager[FollowingSession]:
        """As ``KeptMirror.session``."""

    def how_to_follow(self, pipeline: str, ddl: StoppingDdl) -> Followed:
        with self.session(f"look how to follow a DDL of {ddl.table}") as session:
            if self._has_followed(session, ddl):
                return Followed(tuple(ddl.tables), ())
            how = following.plan(session, self.config, self.dialect, pipeline, ddl)
        return Followed(how.tables, tuple(step.text for step in how.steps))

    def follow(self, pipeline: str, ddl: StoppingDdl) -> Followed:
        with self.session(f"follow a DDL of {ddl.table}") as session:
            for table in ddl.tables:  # in the order of their names, as every other attempt does
                session.begin_merge(target_of(self.config, self.dialect, table))
            if self._has_followed(session, ddl):  # an attempt that broke may have left what comes after the floors
                following.clear_tombstones(session, self.config, self.dialect, ddl.tables)
                return Followed(tuple(ddl.tables), ())
            how = following.plan(session, self.config, self.dialect, pipeline, ddl)
            following.carry_out(session, self.config, self.dialect, pipeline, ddl, how)
        return Followed(how.tables, tuple(step.text for step in how.steps))

    def _has_followed(self, session: FollowingSession, ddl: StoppingDdl) -> bool:
        states = (session.ledger.state_of(target_of(self.config, self.dialect, table)) for table in ddl.tables)
        return all(state is not None and state.floor_ts > ddl.commit_ts for state in states)
