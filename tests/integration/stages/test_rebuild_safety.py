"""What a rebuild of a mirror leaves if it is killed, given up, or meets another one: never a mirror that lacks rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pymysql
import pytest

from tests.integration.snapshot.feed import at
from tests.support.deaths import die_at_statements
from tests.support.dying_loads import watch_writes
from tests.support.feeding import EXPECTED, Feeding, KilledError
from tests.support.mirror_rig import OLD, TABLE
from tests.support.open_protocol import columns, ddl, row
from ticdc_replay.domain.errors import (
    ConfigError,
    LeaseHeldError,
    LeaseLostError,
    PolicyStopError,
    TicdcReplayError,
    TransientError,
)
from ticdc_replay.stages.upkeep.begun_rebuilds import begun
from ticdc_replay.stages.upkeep.follow import follow, stopping_ddl
from ticdc_replay.stages.upkeep.mirrors import forget, opened_target
from ticdc_replay.stages.upkeep.rebuild import abandon, remove_beside
from ticdc_replay.stages.upkeep.rebuild_plan import plan_rebuild
from ticdc_replay.stages.upkeep.verification import Verification
from ticdc_replay.stages.upkeep.verify_changelogs import verify_changelogs
from ticdc_replay.storage.file import FileStore
from ticdc_replay.targets.lake.session import LakeSession
from ticdc_replay.targets.lake.swap import SwappingLakeSession
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.mysql.session import MysqlSession
from ticdc_replay.targets.postgres.session import PostgresSession
from ticdc_replay.verify.compare import Pace

pytestmark = pytest.mark.integration

HIDDEN = {"mask": {"v": {"fixed": "hidden"}}}
MASKED = [(key, "hidden") for key, _ in EXPECTED]


class Deaths:
    """Strikes at the *number*-th statement, or write of an artefact or a ledger: before it, or after it was done."""

    def __init__(self, number: int, *, after: bool) -> None:
        self.number, self.after, self.seen = number, after, 0

    def strike(self, do: Callable[[], Any]) -> Any:
        self.seen += 1
        if self.seen == self.number and not self.after:
            raise KilledError
        done = do()
        if self.seen == self.number:
            raise KilledError
        return done

    @contextmanager
    def watching(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with monkeypatch.context() as patch:
            for owner, names in (
                (pymysql.connections.Connection, ("query", "commit")),
                (psycopg.Connection, ("execute", "commit")),
            ):
                for name in names:
                    patch.setattr(owner, name, self._watched(getattr(owner, name)))
            watch_writes(patch, lambda _, do: self.strike(do), ("put", "update", "delete"))
            for name in ("put", "delete"):
                patch.setattr(FileStore, name, self._watched(getattr(FileStore, name), only="artifacts"))
            with suppress(KilledError):
                yield

    def _watched(self, original: Callable[..., Any], only: str = "") -> Callable[..., Any]:
        def call(own: Any, *given: Any) -> Any:
            if only and only not in own.root:
                return original(own, *given)
            return self.strike(lambda: original(own, *given))

        return call


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("swap", ["begun", "decided"])
def test_an_abandoned_swap_is_not_taken_for_one_that_was_done(
    fed: Feeding, monkeypatch: pytest.MonkeyPatch, swap: str, after: bool
) -> None:
    """The swap of a mirror with a new mask broke; the command that gives it up dies anywhere; the next rebuild masks all."""
    if swap == "decided" and not fed.is_lake:
        pytest.skip("only in a lake a decided swap can be taken back")
    fed.replay(0, 1, 2)

    def broken(*_: object) -> None:
        raise TransientError("the lock is held")

    def attempt(number: int) -> int:
        fed.shape(HIDDEN)
        mirror = type(opened_target(fed.rig.context, "warehouse"))
        owner, name = (mirror, "replace") if swap == "begun" else (SwappingLakeSession, "_end")
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            with pytest.raises(TransientError):
                fed.rebuild()
        deaths = Deaths(number, after=after)
        with deaths.watching(monkeypatch):
            abandon(fed.rig.context, "warehouse", TABLE, fed.rig._load)
        assert fed.rows == EXPECTED
        fed.rebuild()
        assert (fed.rows, fed.side, begun(fed.rig.context)) == (MASKED, [], ())
        fed.shape(None)
        fed.rebuild()
        assert (fed.rows, fed.side) == (EXPECTED, [])
        return deaths.seen

    assert die_at_statements(attempt, few=1 if fed.is_lake else 3, every=8 if fed.is_lake else 1) > 5


def test_a_rebuild_clears_what_an_abandon_left_that_dropped_the_table_alone(
    fed: Feeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each statement counts at once, the ledger still has the runs of a table that is gone."""
    fed.replay(0, 1, 2)

    def broken(*_: object) -> None:
        raise TransientError("the lock is held")

    with monkeypatch.context() as patch:
        patch.setattr(type(opened_target(fed.rig.context, "warehouse")), "replace", broken)
        with pytest.raises(TransientError):
            fed.rebuild()
    owner = LakeSession if fed.is_lake else PostgresSession if fed.is_postgres else MysqlSession
    drop = owner.drop_table

    def dies_after(session: Any, target: Relation) -> None:
        drop(session, target)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(owner, "drop_table", dies_after)
        with pytest.raises(KilledError):
            abandon(fed.rig.context, "warehouse", TABLE, fed.rig._load)
    assert fed.rows == EXPECTED
    fed.rebuild()
    assert (fed.rows, fed.side, begun(fed.rig.context)) == (EXPECTED, [], ())


def comparison(fed: Feeding) -> Verification:
    return verify_changelogs(fed.rig.context, "warehouse", fed.rig._load, pace=Pace(1.0))


OTHERS: dict[str, Callable[[Feeding], object]] = {
    "a rebuild": lambda fed: fed.rebuild(),
    "a comparison": comparison,
    "an abandon": lambda fed: abandon(fed.rig.context, "warehouse", TABLE, fed.rig._load),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("running", [True, False], ids=["running", "killed"])
def test_no_other_command_spoils_a_rebuild(fed: Feeding, other: str, running: bool) -> None:
    """One that runs keeps all others away, and one that was killed goes on, unless a person gives it up."""
    fed.replay(0, 1, 2)
    fed.database.execute("UPDATE s.t SET v = 'spoilt'")
    refusals: list[TicdcReplayError] = []

    def submit(uri: str) -> None:
        if fed.loads(uri) and running:
            error = PolicyStopError if other == "a comparison" else LeaseHeldError
            with pytest.raises(
                error, match=r"mirror rebuild \(.* works on what is built|a rebuild .* has begun"
            ) as refused:
                OTHERS[other](fed)
            refusals.append(refused.value)
        elif fed.loads(uri):
            fed.rig._load(uri)
            raise KilledError
        fed.rig._load(uri)

    if running:
        fed.rebuild(submit)
        assert refusals
        assert (fed.rows, fed.side) == (EXPECTED, [])
        return
    with pytest.raises(KilledError):
        fed.rebuild(submit)
    if other == "a comparison":
        with pytest.raises(PolicyStopError, match="a rebuild of its mirror in warehouse has begun"):
            comparison(fed)
    else:
        OTHERS[other](fed)
        assert (fed.rows == EXPECTED, fed.side) == (other == "a rebuild", [])
    fed.rebuild()
    assert (fed.rows, fed.side, begun(fed.rig.context)) == (EXPECTED, [], ())


def test_a_rebuild_that_has_lost_its_hold_swaps_nothing(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    fed.database.execute("UPDATE s.t SET v = 'spoilt'")
    leases = fed.rig.context.state.leases
    place = opened_target(fed.rig.context, "warehouse").config.place_of(TABLE)

    def submit(uri: str) -> None:
        fed.rig._load(uri)
        for lease in leases.current(place):
            leases.release(lease)

    with pytest.raises(LeaseLostError):
        fed.rebuild(submit)
    assert {v for _, v in fed.rows} == {"spoilt"}
    fed.rebuild()
    assert fed.rows == EXPECTED


def test_a_rebuild_goes_on_from_a_comparison_that_was_killed(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    loaded: list[str] = []

    def submit(uri: str) -> None:
        fed.rig._load(uri)
        loaded.extend(fed.loads(uri))
        if len(loaded) == 1 or fed.is_lake:
            raise KilledError

    with pytest.raises(KilledError):
        verify_changelogs(fed.rig.context, "warehouse", submit, pace=Pace(1.0))
    before = len(loaded)
    fed.rebuild(lambda uri: (loaded.extend(fed.loads(uri)), fed.rig._load(uri))[1])
    assert (len(loaded), before in (1, 3)) == (3, True)
    assert (fed.rows, fed.side, begun(fed.rig.context)) == (EXPECTED, [], ())


def test_a_mirror_that_lacks_a_changelog_takes_no_place(fed: Feeding) -> None:
    """The old one was lost and forgotten, so its ledger names none; and somebody empties the new one meanwhile."""
    if fed.is_lake:
        pytest.skip("one job loads all")
    fed.replay(0, 1, 2)
    fed.drop()
    forget(fed.rig.context, "warehouse", TABLE)
    loaded: list[str] = []

    def submit(uri: str) -> None:
        if fed.loads(uri) and len(loaded) == 2:
            remove_beside(fed.rig.context, "warehouse", TABLE, fed.rig._load)
        fed.rig._load(uri)
        loaded.extend(fed.loads(uri))

    with pytest.raises(TransientError, match="lacks 2 of 3 runs"):
        fed.rebuild(submit)
    with pytest.raises(ConfigError, match="or has lost it"):
        fed.rebuild()
    abandon(fed.rig.context, "warehouse", TABLE)
    fed.rebuild()
    assert (fed.rows, fed.side) == (EXPECTED, [])


def test_a_ddl_of_another_database_is_no_changelog_that_is_lacking(fed: Feeding) -> None:
    """A table of the same name: the load of its window leaves nothing in the ledger of the mirror."""
    fed.rig.send(32, ddl(at(32), "CREATE TABLE t (id BIGINT PRIMARY KEY)", schema="other"))
    fed.rig.resolved(40, 41)
    fed.replay(0, 1, 2)
    fed.rig.replay(at(30), at(40))
    plan = plan_rebuild(fed.rig.context, "warehouse", TABLE)
    assert [(source.is_needed, source.is_named) for source in plan.sources] == [(True, True)] * 3 + [(True, False)]
    fed.rebuild()
    assert fed.rows == EXPECTED


@pytest.mark.parametrize("followed", [False, True], ids=["not followed", "followed"])
def test_a_rebuild_forgets_loads_that_were_stopped(fed: Feeding, followed: bool) -> None:
    """Their rows are not in the new table, so the DDL that stopped them can be followed only after they were loaded again."""
    fed.replay(0, 1, 2)
    fed.rig.send(32, row(at(32), new=columns(5, "five", **OLD)))
    fed.rig.send(32, ddl(at(32), "ALTER TABLE t MODIFY COLUMN v VARCHAR(5)", kind=12))
    fed.rig.resolved(40, 41)
    stopped = fed.rig.decode(at(30), at(32) + 1)
    context, target = fed.rig.context, fed.rig.target
    with pytest.raises(PolicyStopError, match="mirror follow"):
        fed.rig.load(stopped)
    if followed:
        follow(context, target, stopping_ddl(context, target, TABLE), fed.rig._load)
    assert fed.rows == [*EXPECTED, (5, "five")]
    fed.rebuild()
    assert fed.rows == EXPECTED
    with pytest.raises(ConfigError, match="no load into its mirror was stopped by a DDL"):
        stopping_ddl(context, target, TABLE)
    with pytest.raises(PolicyStopError, match="mirror follow"):
        fed.rig.load(stopped)
    follow(context, target, stopping_ddl(context, target, TABLE), fed.rig._load)
    fed.rig.load(stopped)
    assert fed.rig.held == ["complete"]
    assert fed.rows == [*EXPECTED, (5, "five")]
