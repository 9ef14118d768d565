"""What a rebuild of a mirror leaves if it is killed, given up, or meets another one: never a mirror that lacks rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pymysql
import pytest

from tests.support.deaths import die_at_statements
from tests.support.dying_loads import watch_writes
from tests.support.feeding import EXPECTED, Feeding, KilledError
from tests.support.mirror_rig import TABLE
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.stages.upkeep.begun_rebuilds import begun
from ticdc_replay.stages.upkeep.mirrors import opened_target
from ticdc_replay.stages.upkeep.rebuild import abandon
from ticdc_replay.storage.file import FileStore
from ticdc_replay.targets.lake.swap import SwappingLakeSession

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

    assert die_at_statements(attempt) > 5
