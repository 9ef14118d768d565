"""Which runs a rebuild of a mirror takes, if windows were decoded again, overlap, or have just been loaded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.integration.snapshot.feed import at
from tests.support.feeding import EXPECTED, WINDOWS, Feeding, dumped
from tests.support.mirror_rig import OLD, TABLE, Rig
from tests.support.open_protocol import columns, ddl, row
from tests.support.seeds import read_dump, request_of
from ticdc_replay.domain.errors import PolicyStopError, TransientError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.load.publish import publish
from ticdc_replay.stages.upkeep.rebuild import rebuild
from ticdc_replay.stages.upkeep.rebuild_plan import plan_rebuild
from ticdc_replay.stages.upkeep.verify_changelogs import verify_changelogs
from ticdc_replay.stages.window.jobs import write_load_job
from ticdc_replay.verify.compare import Pace

pytestmark = pytest.mark.integration

TIMES = TableName("s", "times")
WHOLE = (at(9), at(30))
OBJECTS = [f"{UUID(int=1)}.json", f"{UUID(int=2)}.json"]


def rebuilt(rig: Rig, table: TableName) -> None:
    rebuild(rig.context, "warehouse", table, rig._load, lambda line: None)


@pytest.fixture
def zoned(make_rig: Callable[..., Rig]) -> Rig:
    """A table of TIMESTAMPs, of a changefeed in Shanghai; one window with all was loaded as if it were in UTC."""
    rig = make_rig()
    rig.send(10.1, ddl(at(10) + 1, "CREATE TABLE times (id BIGINT PRIMARY KEY, at TIMESTAMP NULL)", table="times"))
    for number, second in enumerate((11, 16, 21), 1):
        cells: dict[str, Any] = {
            "id": {"t": 8, "h": True, "f": 11, "v": number},
            "at": {"t": 7, "f": 65, "v": "2026-01-01 08:00:00"},
        }
        rig.send(second, row(at(second), new=cells, table="times"))
    rig.resolved(15, 20, 30, 31)
    rig.replay(*WHOLE)
    assert hours(rig) == [8, 8, 8]
    move_to("Asia/Shanghai", rig)
    return rig


def move_to(timezone: str, rig: Rig) -> None:
    """Give the changefeed another time zone: windows get new runs."""
    rig._declared["changefeed"]["timezone"] = timezone
    rig.context.__exit__()
    rig.context = rig._context()


def hours(rig: Rig) -> list[int]:
    """The hour (UTC) that each row shows."""
    with psycopg.connect(rig.dsn) as connection:
        query = "SELECT extract(hour FROM at AT TIME ZONE 'UTC')::int FROM s.times ORDER BY id"
        return [hour for (hour,) in connection.execute(query).fetchall()]


def test_a_run_that_newer_windows_have_repaired_is_left_out(zoned: Rig) -> None:
    for window in WINDOWS:
        zoned.replay(*window)
    assert hours(zoned) == [0, 0, 0]
    (verified,) = verify_changelogs(zoned.context, "warehouse", zoned._load, ["s.times"], pace=Pace(1.0)).tables
    assert verified.outcome == "equal"
    rebuilt(zoned, TIMES)
    assert hours(zoned) == [0, 0, 0]
    assert [source.window for source in plan_rebuild(zoned.context, "warehouse", TIMES).sources] == [
        Window(*window) for window in WINDOWS
    ]


def test_a_run_that_was_never_published_is_left_out_once_its_window_has_a_newer_one(zoned: Rig) -> None:
    """Its worker died after the load, and the window was decoded in another way since: nothing ends that run any more."""
    unpublished = zoned.decode(*WHOLE, repin=True)
    zoned._load(write_load_job(zoned.context, unpublished, "warehouse").uri)
    move_to("Asia/Tokyo", zoned)
    zoned.load(zoned.decode(*WHOLE, repin=True))
    assert hours(zoned) == [23, 23, 23]
    rebuilt(zoned, TIMES)
    assert hours(zoned) == [23, 23, 23]


def test_a_run_of_a_state_store_that_was_lost_is_left_out_once_its_window_has_another_one(zoned: Rig) -> None:
    zoned.context.__exit__()
    for file in zoned.folder.rglob("state.db*"):
        file.unlink()
    zoned.context = zoned._context()
    zoned.replay(*WHOLE)
    assert hours(zoned) == [0, 0, 0]
    rebuilt(zoned, TIMES)
    assert hours(zoned) == [0, 0, 0]


def test_runs_that_are_repaired_in_part_stop_a_rebuild_until_the_rest_is_named_and_replayed(zoned: Rig) -> None:
    zoned.replay(*WINDOWS[1])
    with pytest.raises(PolicyStopError, match="windows that overlap") as refused:
        rebuilt(zoned, TIMES)
    for left in ((at(10) + 1, at(15)), WINDOWS[2]):
        assert str(Window(*left)) in str(refused.value)
        zoned.replay(*left)
    rebuilt(zoned, TIMES)
    assert hours(zoned) == [0, 0, 0]


def test_what_newer_windows_have_in_quarantine_leaves_the_older_one_in(make_rig: Callable[..., Rig]) -> None:
    """Both decode in one way, so they can be loaded in any order."""
    rig = make_rig()
    rig.send(11, row(at(11), new=columns(1, "one", **OLD)))
    rig.send(12, row(at(12), new={"id": columns(2)["id"]}, ccl=f"s3://bucket/{OBJECTS[0]}"))
    rig.resolved(15, 20, 30, 31)
    rig.put_object(OBJECTS[0], row(at(12), new=columns(2, "two", **OLD)))
    rig.replay(*WHOLE)
    rig.claims.delete(OBJECTS[0])
    for window in WINDOWS:
        rig.replay(*window)
    assert rig.ids == [1, 2]
    rebuilt(rig, TABLE)
    assert rig.ids == [1, 2]


@pytest.fixture
def aside(make_rig: Callable[..., Rig]) -> Rig:
    """The rows 2 and 5 of the first window stand in quarantine, as their objects are missing."""
    rig = make_rig()
    rig.send(11, row(at(11), new=columns(1, "one", **OLD)))
    for key, second, name in ((2, 12, OBJECTS[0]), (5, 13, OBJECTS[1])):
        rig.send(second, row(at(second), new={"id": columns(key)["id"]}, ccl=f"s3://bucket/{name}"))
    rig.resolved(15)
    rig.send(16, row(at(16), new=columns(3, "three", **OLD)))
    rig.resolved(20, 30, 31)
    rig.replay(*WINDOWS[0])
    rig.replay(*WINDOWS[1])
    return rig


def test_a_re_drive_is_not_needed_once_a_newer_run_has_its_rows(aside: Rig) -> None:
    """The newer run still has something else in quarantine."""
    aside.put_object(OBJECTS[0], row(at(12), new=columns(2, "two", **OLD)))
    aside.redrive()
    aside.load(aside.decode(*WINDOWS[0], repin=True))
    rebuilt(aside, TABLE)
    assert (aside.ids, aside.open) == ([1, 2, 3], [(Window(*WINDOWS[0]), 1)])


def test_a_re_drive_whose_rows_the_newer_run_has_in_quarantine_is_named(aside: Rig) -> None:
    aside.put_object(OBJECTS[0], row(at(12), new=columns(2, "two", **OLD)))
    aside.redrive()
    aside.claims.delete(OBJECTS[0])
    aside.load(aside.decode(*WINDOWS[0], repin=True))
    with pytest.raises(PolicyStopError, match="the newer run of the window has in quarantine"):
        rebuilt(aside, TABLE)
    assert aside.ids == [1, 2, 3]
    aside.put_object(OBJECTS[0], row(at(12), new=columns(2, "two", **OLD)))
    aside.redrive()
    rebuilt(aside, TABLE)
    assert aside.ids == [1, 2, 3]


def test_a_load_that_is_not_published_yet_is_waited_for(fed: Feeding) -> None:
    fed.replay(0, 1)
    loaded: list[str] = []
    late: list[str] = []

    def submit(uri: str) -> None:
        fed.rig._load(uri)
        loaded.extend(runs := fed.loads(uri))
        if runs and len(loaded) == 2:
            late.append(fed.rig.decode(*WINDOWS[2]))
            fed.rig._load(write_load_job(fed.rig.context, late[0], "warehouse").uri)

    with pytest.raises(TransientError, match="their runs have not ended"):
        fed.rebuild(submit)
    publish(fed.rig.context, late[0], ["warehouse"])
    fed.rebuild()
    assert (fed.rows, fed.side) == (EXPECTED, [])


def test_deleted_rows_from_before_the_base_go_only_if_a_person_says_so(fed: Feeding, tmp_path: Path) -> None:
    """Row 2 was deleted before the dump, row 4 after it."""
    rig = fed.rig
    rig._declared["targets"][0]["deletes"] = "soft"
    rig.context.__exit__()
    rig.context = rig._context()
    fed.replay(0, 1, 2)
    rig.send(35, row(at(35), old=columns(4, "four", **OLD)))
    rig.resolved(40, 41)
    rig.replay(at(30), at(40))
    deleted = "SELECT id FROM s.t WHERE _is_deleted ORDER BY id"
    fed.rebuild()
    assert fed.database.rows(deleted) == [(2,), (4,)], "from the CREATE TABLE on nothing is lost"
    rows = [(b"1", b"uno", None), (b"3", b"three", None), (b"4", b"four", None)]
    read_dump(rig.context, request_of(dumped(tmp_path / "dump", at(28), *rows)))
    with pytest.raises(PolicyStopError, match=r"and 1 of them were deleted before the base .* --without-deleted-rows"):
        fed.rebuild()
    assert (fed.database.rows(deleted), fed.side) == ([(2,), (4,)], [])
    fed.rebuild(without_deleted_rows=True)
    assert fed.database.rows(deleted) == [(4,)]
    fed.rebuild()
