"""Whatever breaks, and whenever: nothing is half applied, and the next load brings the mirror to the same end state."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.targets.conftest import TARGET, Mirror
from tests.support.changelogs import Changelog, delete, put, table
from tests.support.deaths import die_at_statements
from tests.support.examples import NIGHTLY
from tests.support.in_process import in_process
from tests.support.lost_sessions import PostgresFault, kill
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import (
    AuthenticationError,
    CommitStateUnknownError,
    PermanentError,
    TicdcReplayError,
    TransientError,
)
from ticdc_replay.targets.base import LoadReport
from ticdc_replay.targets.load import load
from ticdc_replay.targets.mirror import stager

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT}, unique=[["v"]])
ITEMS = table("shop.items", {"id": INT})
BEFORE = [(1, "old", 10), (2, "old", 10)]
AFTER = [(1, "new", 110), (3, "new", 120)]
ORDERS_NOW = "SELECT id, v, _commit_ts FROM shop.orders ORDER BY id"


@pytest.fixture
def changelog(mirror: Mirror, artifacts: Path) -> Changelog:
    return window(mirror, artifacts)


def window(mirror: Mirror, artifacts: Path) -> Changelog:
    """A window that replaces, deletes and inserts rows of one table, which *mirror* has now, and makes another."""
    mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="old"), put(10, id=2, v="old")]))
    changelog = Changelog(artifacts, 100, 200)
    changelog.rows(ORDERS, [put(110, id=1, v="new"), delete(115, id=2), put(120, id=3, v="new")], files=2)
    return changelog.rows(ITEMS, [put(130, id=7)])


def load_with(mirror: Mirror, changelog: Changelog, execute: Any, **changes: Any) -> LoadReport:
    return load(changelog.job(TARGET, **changes), mirror.connections, execute)


def assert_whole_or_nothing(mirror: Mirror) -> None:
    now = mirror.rows(ORDERS_NOW)
    assert now in (BEFORE, AFTER)
    in_ledger = "SELECT count(*) FROM _ticdc_replay.ledger WHERE target_table = 'orders' AND from_ts = 100"
    assert mirror.rows(in_ledger) == [(int(now == AFTER),)]


def assert_loaded(mirror: Mirror) -> None:
    assert mirror.rows(ORDERS_NOW) == AFTER
    assert mirror.rows("SELECT id FROM shop.items") == [(7,)]
    assert mirror.rows("SELECT count(*) FROM _ticdc_replay.staging") == [(0,)]
    assert mirror.rows("SELECT relname FROM pg_class WHERE relname LIKE 'stage\\_%'") == []


def test_a_connection_that_breaks_before_any_statement_leaves_nothing_half_applied(
    make_database: Callable[[], str], tmp_path: Path
) -> None:
    outcomes: set[type[Exception]] = set()

    def attempt(number: int) -> int:
        mirror = Mirror(make_database())
        changelog = window(mirror, tmp_path / str(number))
        fault = PostgresFault(mirror, number)
        try:
            with fault.before_statements():
                mirror.load(changelog)
        except TransientError as error:
            outcomes.add(type(error))
        assert_whole_or_nothing(mirror)
        mirror.load(changelog)
        assert_loaded(mirror)
        return fault.seen

    assert die_at_statements(attempt, few=8) > 40
    assert CommitStateUnknownError in outcomes or not NIGHTLY
    assert TransientError in outcomes


def test_a_commit_whose_answer_is_lost_is_found_in_the_ledger(mirror: Mirror, changelog: Changelog) -> None:
    outcomes = set()
    for number in itertools.count(1):
        fault = PostgresFault(mirror, number)
        try:
            with fault.after_commits():
                mirror.load(changelog)
        except TransientError as error:
            outcomes.add(type(error))
        assert_whole_or_nothing(mirror)
        if not fault.struck:
            break
    assert CommitStateUnknownError in outcomes
    assert {report.outcome for report in mirror.load(changelog).tables} == {"done_before"}
    assert_loaded(mirror)


def test_a_worker_that_loses_its_connection_while_it_copies_can_be_tried_again(
    mirror: Mirror, changelog: Changelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = stager.stage_rows

    def convert_and_kill(*arguments: Any, **options: Any) -> Any:
        kill(mirror.dsn, "query LIKE 'COPY%'")
        return convert(*arguments, **options)

    monkeypatch.setattr(stager, "stage_rows", convert_and_kill)
    with pytest.raises(TransientError, match="cannot stage rows"):
        mirror.load(changelog)
    assert mirror.rows(ORDERS_NOW) == BEFORE
    monkeypatch.undo()
    mirror.load(changelog)
    assert_loaded(mirror)


def test_a_task_that_runs_twice_stages_its_rows_once(mirror: Mirror, changelog: Changelog) -> None:
    def twice(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        in_process(work, tasks, name)
        return in_process(work, tasks, name)

    report = load_with(mirror, changelog, twice)
    assert [table.upserted for table in report.tables] == [1, 2]
    assert_loaded(mirror)


def test_a_task_that_runs_twice_at_the_same_time_stages_its_rows_once(mirror: Mirror, changelog: Changelog) -> None:
    def both(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(work, [*tasks, *tasks]))
        return results[: len(tasks)]

    load_with(mirror, changelog, both)
    assert_loaded(mirror)


def test_what_a_dead_attempt_left_is_dropped_by_the_next(mirror: Mirror, changelog: Changelog) -> None:
    def die(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name.startswith("stage"):
            kill(mirror.dsn, "datname = current_database()")
        return results

    with pytest.raises(TransientError):
        load_with(mirror, changelog, die)
    assert mirror.rows("SELECT count(*) > 0 FROM _ticdc_replay.staging") == [(True,)]
    mirror.load(changelog)
    assert_loaded(mirror)


def test_loads_of_two_windows_at_once_do_not_touch_each_others_staging(
    mirror: Mirror, artifacts: Path, changelog: Changelog
) -> None:
    later = Changelog(artifacts, 200, 300).rows(ORDERS, [put(210, id=1, v="newest")])

    def with_another_load(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name.startswith("stage"):
            mirror.load(later)
        return results

    report = load_with(mirror, changelog, with_another_load)
    assert mirror.rows(ORDERS_NOW) == [(1, "newest", 210), (3, "new", 120)]
    assert [table.superseded for table in report.tables] == [0, 1]


def test_of_two_loads_of_one_window_at_once_one_applies_it(mirror: Mirror, changelog: Changelog) -> None:
    def with_the_same_load(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name.startswith("stage"):
            mirror.load(changelog)
        return results

    report = load_with(mirror, changelog, with_the_same_load)
    assert {table.outcome for table in report.tables} == {"done_before"}
    assert_loaded(mirror)


@pytest.mark.parametrize(
    ("field", "value", "error", "advice"),
    [
        ("password", "wrong-password", AuthenticationError, "check login and password"),
        ("login", "nobody-known", AuthenticationError, "check login and password"),
        ("schema", "no_database", PermanentError, "check schema"),
        ("port", 1, TransientError, "Connection refused"),
    ],
)
def test_a_target_that_cannot_be_reached_says_why_and_keeps_the_secret(
    mirror: Mirror, changelog: Changelog, field: str, value: Any, error: type[TicdcReplayError], advice: str
) -> None:
    target = msgspec.structs.replace(mirror.connections["target"], **{field: value})
    with pytest.raises(error, match=advice) as raised:
        load(changelog.job(TARGET), Connections({"target": target}), in_process)
    assert "'target'" in str(raised.value)
    assert str(target.password) not in str(raised.value)
