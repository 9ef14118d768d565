"""A base whose rows go into the table that becomes the mirror: whatever runs twice, breaks or comes between, the mirror is what a
merge would have made."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelogs import Changelog, Row, base, delete, put, table
from tests.support.deaths import die_at_statements
from tests.support.in_process import in_process
from tests.support.lost_sessions import MysqlFault, PostgresFault
from tests.support.target_rigs import MirrorRig, MysqlRig, PostgresRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import (
    CommitStateUnknownError,
    TargetMismatchError,
    TicdcReplayError,
    TransientError,
    UnrepresentableValueError,
)
from ticdc_replay.targets.base import LoadReport
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration

SNAPSHOT = 100
INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT, "version": INT}, unique=[["v"]], valid_from=SNAPSHOT)
ITEMS = table("shop.items", {"id": INT}, valid_from=SNAPSHOT)
LINES = table("shop.lines", {"id": INT}, valid_from=SNAPSHOT)
ROWS = [(number, f"v{number}", -number, SNAPSHOT) for number in range(1, 8)]
SELECT = 'SELECT id, v, "version", _commit_ts FROM shop.orders ORDER BY id'
Work = Callable[[Any], Any]


@pytest.fixture(params=["postgres", "mysql"])
def make_database_mirror(request: pytest.FixtureRequest) -> Callable[[], MirrorRig]:
    """Makes empty mirrors in one kind of database."""
    if request.param == "postgres":
        make: Callable[[], str] = request.getfixturevalue("make_database")
        return lambda: PostgresRig(make())
    server = request.getfixturevalue("mysql_server")
    return lambda: MysqlRig(server)


@pytest.fixture
def database(make_database_mirror: Callable[[], MirrorRig]) -> MirrorRig:
    return make_database_mirror()


def upsert(**cells: Any) -> Row:
    return put(SNAPSHOT, op="upsert", **cells)


def dump(artifacts: Path) -> Changelog:
    """Seven orders in three files, and one item."""
    rows = [upsert(id=number, v=text, version=version) for number, text, version, _ in ROWS]
    return base(artifacts, SNAPSHOT).rows(ORDERS, rows, files=3).rows(ITEMS, [upsert(id=7)])


def load_with(rig: MirrorRig, changelog: Changelog, execute: Any, **changes: Any) -> LoadReport:
    return load(changelog.job(rig.section, **changes), rig.connections, execute, 3)


def assert_loaded(rig: MirrorRig) -> None:
    assert rig.rows(SELECT) == ROWS
    assert rig.rows("SELECT id FROM shop.items") == [(7,)]
    assert rig.rows("SELECT count(*) FROM _ticdc_replay.staging") == [(0,)]
    left = "SELECT table_name FROM information_schema.tables WHERE table_schema = '_ticdc_replay' AND table_name LIKE 'stage\\_%'"
    assert rig.rows(left) == []


def indexed(rig: MirrorRig) -> set[tuple[str, bool]]:
    """The columns that begin an index, and whether it is unique."""
    if isinstance(rig, PostgresRig):
        return set(
            rig.rows(
                "SELECT a.attname, i.indisunique FROM pg_index i JOIN pg_attribute a "
                "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indrelid = 'shop.orders'::regclass"
            )
        )
    found = rig.rows(
        "SELECT column_name, non_unique = 0 FROM information_schema.statistics "
        "WHERE table_schema = 'shop' AND table_name = 'orders'"
    )
    return {(name, bool(unique)) for name, unique in found}


def test_rows_of_several_tasks_are_one_table_with_its_indexes(database: MirrorRig, artifacts: Path) -> None:
    staged: list[Any] = []

    def watched(work: Work, tasks: Sequence[Any], name: str) -> list[Any]:
        staged.extend(piece.version_column for task in tasks for piece in task.pieces)
        return in_process(work, tasks, name)

    report = load_with(database, dump(artifacts), watched)
    assert set(staged) == {"_commit_ts"}
    assert {each.table.table: each.upserted for each in report.tables} == {"orders": 7, "items": 1}
    assert_loaded(database)
    assert indexed(database) == {("id", True), ("v", False)}
    database.load(Changelog(artifacts, 100, 200).rows(ORDERS, [put(150, id=1, v="new", version=0), delete(151, id=2)]))
    assert database.rows(SELECT) == [(1, "new", 0, 150), *ROWS[2:]]


def test_a_task_that_runs_twice_brings_its_rows_once(database: MirrorRig, artifacts: Path) -> None:
    def twice(work: Work, tasks: Sequence[Any], name: str) -> list[Any]:
        first = in_process(work, tasks, name)
        assert in_process(work, tasks, name) == first
        return first

    load_with(database, dump(artifacts), twice)
    assert_loaded(database)


def test_a_task_that_runs_twice_at_the_same_time_brings_its_rows_once(database: MirrorRig, artifacts: Path) -> None:
    def both(work: Work, tasks: Sequence[Any], name: str) -> list[Any]:
        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(work, [*tasks, *tasks]))
        assert results[: len(tasks)] == results[len(tasks) :]
        return results[: len(tasks)]

    load_with(database, dump(artifacts), both)
    assert_loaded(database)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_session_that_is_lost_at_any_statement(
    make_database_mirror: Callable[[], MirrorRig], tmp_path: Path, *, after: bool
) -> None:
    def attempt(number: int) -> int:
        rig, artifacts = make_database_mirror(), tmp_path / str(number)
        if isinstance(rig, PostgresRig):
            fault: Any = PostgresFault(rig, number)
            watching = fault.after_commits() if after else fault.before_statements()
        else:
            assert isinstance(rig, MysqlRig)
            fault = MysqlFault(rig, number, after=after)
            watching = fault.watching()
        with watching:
            try:
                rig.load(dump(artifacts))
            except (TransientError, CommitStateUnknownError):
                assert fault.struck
        if rig.has_table("shop.orders"):
            assert rig.rows(SELECT) in ([], ROWS)
        # An older window comes between, of which the dump has all that is left.
        rig.load(Changelog(artifacts, 10, 50).rows(ORDERS, [put(20, id=1, v="old", version=1), put(21, id=9, v="x")]))
        try:
            rig.load(dump(artifacts))
        except TargetMismatchError as refused:  # nothing of the base was known when the older window was loaded
            assert "holds rows" in str(refused)  # noqa: PT017
            assert [row[0] for row in rig.rows(SELECT)] == [1, 9]
        else:
            assert_loaded(rig)
        return int(fault.seen)

    die_at_statements(attempt)


def test_of_two_loads_at_once_one_fills_the_mirror(database: MirrorRig, artifacts: Path) -> None:
    def with_the_same_load(work: Work, tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        database.load(dump(artifacts))
        return results

    report = load_with(database, dump(artifacts), with_the_same_load)
    assert {each.outcome for each in report.tables} == {"done_before"}
    assert_loaded(database)


def test_a_table_that_a_person_makes_meanwhile_is_not_replaced(database: MirrorRig, artifacts: Path) -> None:
    def meanwhile(work: Work, tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        database.execute("CREATE SCHEMA IF NOT EXISTS shop")
        database.execute('CREATE TABLE shop.orders (id bigint PRIMARY KEY, v varchar(20), "version" bigint, extra int)')
        return results

    with pytest.raises(TicdcReplayError, match=r"made by another load|does not fit"):
        load_with(database, dump(artifacts), meanwhile)
    assert database.rows("SELECT extra FROM shop.orders") == []


def test_rows_that_are_gone_from_staging_stop_the_load(database: MirrorRig, artifacts: Path) -> None:
    def emptied(work: Work, tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        for (stage,) in database.rows("SELECT name FROM _ticdc_replay.staging WHERE target_table = 'orders'"):
            database.execute(f"TRUNCATE TABLE _ticdc_replay.{stage}")
        return results

    with pytest.raises(TransientError, match=r"0 rows of .* are staged, and workers reported 7"):
        load_with(database, dump(artifacts), emptied)
    database.load(dump(artifacts))
    assert_loaded(database)


def test_a_key_in_two_files_is_refused(database: MirrorRig, artifacts: Path) -> None:
    twice = dump(artifacts).rows(ORDERS, [upsert(id=5, v="secret", version=1)])
    for execute in (in_process, _backwards):
        with pytest.raises(TargetMismatchError, match=r"shop\.orders: a row has a key that another row") as refused:
            load_with(database, twice, execute)
        assert "secret" not in str(refused.value)
        assert not database.has_table("shop.orders")


def _backwards(work: Work, tasks: Sequence[Any], name: str) -> list[Any]:
    return in_process(work, tasks[::-1], name)[::-1]


def test_values_without_room_stop_the_load_or_are_set_aside(database: MirrorRig, artifacts: Path) -> None:
    """In one of the tasks; a second run of it gives the same result."""
    narrow = table("shop.orders", {"id": INT, "v": ColumnType("decimal", length=4, scale=1)}, valid_from=1)
    rows = [upsert(id=number, v=Decimal(number)) for number in range(4)]
    wide = upsert(id=9, v=None)._replace(exact={"v": b"12345.67"})
    made = base(artifacts, SNAPSHOT).rows(narrow, [*rows, wide], files=2)
    with pytest.raises(UnrepresentableValueError):
        database.load(made)
    assert not database.has_table("shop.orders")

    def twice(work: Work, tasks: Sequence[Any], name: str) -> list[Any]:
        first = in_process(work, tasks, name)
        assert in_process(work, tasks, name) == first
        return first

    (report,) = load_with(database, made, twice, target_value="quarantine").tables
    assert (report.upserted, report.quarantined, len(report.quarantine_files)) == (4, 1, 1)
    assert [row[0] for row in database.rows("SELECT id FROM shop.orders ORDER BY id")] == [0, 1, 2, 3]


def test_types_that_staging_has_otherwise_are_merged(database: MirrorRig, artifacts: Path) -> None:
    """Bits in MySQL, decimals of unknown precision in PostgreSQL."""
    mixed = table(
        "shop.orders",
        {"id": INT, "b": ColumnType("bit", length=8, declared=True), "d": ColumnType("decimal")},
        valid_from=SNAPSHOT,
    )
    made = base(artifacts, SNAPSHOT).rows(mixed, [upsert(id=1, b=5, d="1.50"), upsert(id=2, b=None, d=None)])
    assert database.load_table(made).upserted == 2
    found = database.rows("SELECT id, CAST(b AS decimal(4)), d FROM shop.orders ORDER BY id")
    assert found == [(1, 5, Decimal("1.5")), (2, None, None)]


def test_soft_deletes_begin_with_rows_that_are_there(database: MirrorRig, artifacts: Path) -> None:
    database.section["deletes"] = "soft"
    database.load(dump(artifacts))
    database.load(Changelog(artifacts, 100, 200).rows(ORDERS, [delete(150, id=2)]))
    found = database.rows("SELECT id FROM shop.orders WHERE NOT _is_deleted ORDER BY id")
    assert found == [(row[0],) for row in ROWS if row[0] != 2]


def test_default_privileges_of_a_schema_hold_for_what_becomes_a_mirror(
    make_database: Callable[[], str], artifacts: Path
) -> None:
    rig = PostgresRig(make_database())
    rig.execute("DO $$ BEGIN CREATE ROLE direct_reader; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    rig.execute("CREATE SCHEMA shop")
    rig.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT SELECT ON TABLES TO direct_reader")
    rig.load(dump(artifacts))
    grants = "SELECT privilege_type FROM information_schema.role_table_grants WHERE grantee = 'direct_reader'"
    assert rig.rows(grants + " AND table_schema = 'shop' AND table_name = 'orders'") == [("SELECT",)]
    assert_loaded(rig)
    keys = "SELECT conname FROM pg_constraint WHERE conrelid = 'shop.orders'::regclass AND contype = 'p'"
    assert rig.rows(keys) == [("orders_pkey",)]
    assert rig.rows("SELECT relpersistence FROM pg_class WHERE oid = 'shop.orders'::regclass") == [("p",)]


def test_what_an_event_trigger_gives_each_new_table_stays(make_database: Callable[[], str], artifacts: Path) -> None:
    rig = PostgresRig(make_database())
    rig.execute("CREATE SCHEMA shop")
    rig.execute(
        "CREATE FUNCTION guard() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE made record; BEGIN "
        "FOR made IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP "
        "IF made.schema_name = 'shop' AND made.command_tag = 'CREATE TABLE' THEN "
        "EXECUTE 'ALTER TABLE ' || made.object_identity || ' ENABLE ROW LEVEL SECURITY'; END IF; END LOOP; END $$"
    )
    rig.execute("CREATE EVENT TRIGGER guard ON ddl_command_end EXECUTE FUNCTION guard()")
    rig.load(dump(artifacts))
    assert rig.rows("SELECT relrowsecurity FROM pg_class WHERE oid = 'shop.orders'::regclass") == [(True,)]
    assert_loaded(rig)
    assert indexed(rig) == {("id", True), ("v", False)}
    twice = base(artifacts, SNAPSHOT, "twice").rows(LINES, [upsert(id=1), upsert(id=1)])
    with pytest.raises(TargetMismatchError, match="a row has a key that another row"):
        rig.load(twice)


def test_a_table_without_room_names_the_remedy(database: MirrorRig, artifacts: Path) -> None:
    wide = {f"c{number}": INT for number in range(1_700)}
    made = base(artifacts, SNAPSHOT).rows(
        table("shop.wide", {"id": INT, **wide}, valid_from=1), [upsert(id=1, **dict.fromkeys(wide, 1))]
    )
    with pytest.raises(TicdcReplayError, match="column selector"):
        database.load(made)
