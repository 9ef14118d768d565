"""Whatever breaks, and whenever: no row is half applied in MySQL, where DDL ends transactions, and the next load brings the
mirror to the same end state."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.support.changelogs import Changelog, delete, put, table
from tests.support.deaths import die_at_statements
from tests.support.in_process import in_process
from tests.support.lost_sessions import MysqlFault
from tests.support.target_rigs import MysqlRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import (
    CommitStateUnknownError,
    PermanentError,
    TargetMismatchError,
    TicdcReplayError,
    TransientError,
)
from ticdc_replay.domain.tables import TableName
from ticdc_replay.mysql_protocol import arguments
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.targets.load import load
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.mysql import session as mysql_session
from ticdc_replay.targets.mysql import staging as mysql_staging
from ticdc_replay.targets.mysql.bulk import BulkConnection
from ticdc_replay.targets.mysql.mirror import MysqlMirror
from ticdc_replay.targets.mysql.settings import MysqlSettings

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT, "old": INT})
RENAMED = table("shop.orders", {"id": INT, "name": TEXT, "n": INT, "m": INT})
NEXT = table("shop.orders", {"id": INT, "w": TEXT})
IN_LEDGER = "SELECT count(*) FROM _ticdc_replay.ledger WHERE target_table = 'orders' AND from_ts = 100"


def first(artifacts: Path) -> Changelog:
    rows = [put(10, id=1, v="old", old=1), put(10, id=2, v="old", old=2), delete(20, id=9)]
    return Changelog(artifacts, 0, 100).rows(ORDERS, rows)


def plain(artifacts: Path) -> Changelog:
    rows = [put(110, id=1, v="new", old=1), delete(115, id=2), put(120, id=3, v="new", old=3)]
    return Changelog(artifacts, 100, 200).rows(ORDERS, rows, files=2)


def altered(artifacts: Path) -> Changelog:
    return (
        Changelog(artifacts, 100, 200)
        .ddl(
            140,
            "ALTER TABLE orders RENAME COLUMN v TO name, DROP COLUMN old, ADD COLUMN n BIGINT DEFAULT 7, ADD COLUMN m BIGINT",
        )
        .rows(RENAMED, [put(150, id=1, name="new", n=1, m=2), delete(151, id=2)])
    )


def truncated(artifacts: Path) -> Changelog:
    return Changelog(artifacts, 100, 200).ddl(140, "TRUNCATE TABLE orders").rows(ORDERS, [put(150, id=5, v="x", old=5)])


def dropped(artifacts: Path) -> Changelog:
    return (
        Changelog(artifacts, 100, 200)
        .ddl(140, "DROP TABLE orders")
        .ddl(145, "CREATE TABLE orders (id BIGINT PRIMARY KEY, w VARCHAR(20))")
        .rows(NEXT, [put(150, id=1, w="x")])
    )


WINDOWS: dict[str, tuple[Callable[[Path], Changelog], str, list[tuple[Any, ...]]]] = {
    "rows": (plain, "id, v, old, _commit_ts", [(1, "new", 1, 110), (3, "new", 3, 120)]),
    "altered": (altered, "id, name, n, m, _commit_ts", [(1, "new", 1, 2, 150)]),
    "truncated": (truncated, "id, v, old, _commit_ts", [(5, "x", 5, 150)]),
    "dropped": (dropped, "id, w, _commit_ts", [(1, "x", 150)]),
    "soft deletes": (
        plain,
        "id, v, _commit_ts, _is_deleted",
        [(1, "new", 110, 0), (2, None, 115, 1), (3, "new", 120, 0), (9, None, 20, 1)],
    ),
}


def end_state(mirror: MysqlRig, columns: str) -> list[tuple[Any, ...]]:
    return mirror.rows(f"SELECT {columns} FROM shop.orders ORDER BY id")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", list(WINDOWS))
def test_a_session_that_is_lost_at_any_statement(
    mysql_mirror: MysqlRig, tmp_path: Path, name: str, after: bool, request: pytest.FixtureRequest
) -> None:
    window, columns, expected = WINDOWS[name]
    policies = {"drop": "apply"}
    server = mysql_mirror.server

    def attempt(number: int) -> int:
        mirror, artifacts = MysqlRig(server), tmp_path / str(number)
        mirror.section["deletes"] = "soft" if name == "soft deletes" else "hard"
        mirror.load(first(artifacts))
        fault = MysqlFault(mirror, number, after=after)
        with fault.watching():
            try:
                mirror.load(window(artifacts), **policies)
            except (TransientError, CommitStateUnknownError):
                assert fault.struck
        if mirror.rows(IN_LEDGER) == [(1,)]:
            assert end_state(mirror, columns) == expected
        # An older window comes between: whatever was begun must not mislead it.
        mirror.load(first(artifacts), reload=True, **policies)
        mirror.load(window(artifacts), **policies)
        assert end_state(mirror, columns) == expected
        mirror.load(window(artifacts), reload=True, **policies)
        assert end_state(mirror, columns) == expected
        assert mirror.rows("SELECT count(*) FROM _ticdc_replay.begun_changes") == [(0,)]
        assert mirror.rows("SELECT count(*) FROM _ticdc_replay.staging") == [(0,)]
        return fault.seen

    die_at_statements(attempt)


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_parts_that_were_committed_before_a_load_broke_are_applied_again(
    mysql_mirror: MysqlRig, artifacts: Path, monkeypatch: pytest.MonkeyPatch, deletes: str
) -> None:
    """Then an older window is loaded, whose rows must not replace those of the parts."""
    rows = [put(110, id=at, v="new", old=at) for at in range(2500)] + [delete(111, id=9000)]
    late = Changelog(artifacts, 100, 200).rows(ORDERS, rows)
    target: dict[str, object] = {"rows_per_commit": 1000, "deletes": deletes}
    commits = 0
    real = mysql_session.merge

    def breaking(connection: Any, *given: Any, **options: Any) -> Any:
        commit = connection.commit

        def once() -> None:
            nonlocal commits
            commits += 1
            commit()
            if commits == 2:
                raise pymysql.err.OperationalError(2013, "lost")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connection, "commit", once)
            return real(connection, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(mysql_session, "merge", breaking)
        with pytest.raises(TransientError):
            mysql_mirror.load(late, target)
    ((applied,),) = mysql_mirror.rows("SELECT count(*) FROM shop.orders")
    assert applied in (2000, 2001)
    older = [put(50, id=at, v="older", old=at) for at in (1, 2400, 9000)]
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, older), target)
    report = mysql_mirror.load_table(late, target=target)
    assert (report.upserted, report.tombstones, report.superseded) == (2500, 1, 0)
    found = mysql_mirror.rows("SELECT count(*), min(v), max(v), max(id) FROM shop.orders WHERE v IS NOT NULL")
    assert found == [(2500, "new", "new", 2499)]
    last = mysql_mirror.rows("SELECT v, _commit_ts FROM shop.orders WHERE id = 9000")
    assert last == ([(None, 111)] if deletes == "soft" else [])


@contextlib.contextmanager
def transactions() -> Iterator[list[int]]:
    """How many rows the transactions of a load, or of what a person does, have changed, one by one."""
    changed = [0]

    class Watched(pymysql.connections.Connection):  # type: ignore[type-arg]
        def query(self, sql: Any, unbuffered: bool = False) -> int:
            done = super().query(sql, unbuffered)
            if (sql if isinstance(sql, str) else sql.decode()).lstrip().startswith(("INSERT", "UPDATE", "DELETE")):
                changed[-1] += done
            return done

        def commit(self) -> None:
            super().commit()
            changed.append(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pymysql, "connect", lambda **given: Watched(**given))
        yield changed


@pytest.mark.parametrize("late", ["column", "truncate", "tombstones"])
def test_no_transaction_changes_more_rows_than_may_be_committed_at_once(
    mysql_mirror: MysqlRig, artifacts: Path, late: str
) -> None:
    """TiDB keeps a transaction in memory, and ends one that is too large: also of what changes a whole mirror."""
    target: dict[str, object] = {"rows_per_commit": 1000}
    rows = [put(10, id=at, v="old", old=at) for at in range(2500)]
    if late == "tombstones":
        rows = [delete(10, id=at) for at in range(2500)] + [put(11, id=-1, v="new", old=0)]
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, rows), target)
    window, schema, cells = Changelog(artifacts, 100, 200), ORDERS, {"v": "new", "old": 0}
    if late == "column":
        window.ddl(140, "ALTER TABLE orders ADD COLUMN n BIGINT DEFAULT 7")
        schema = table("shop.orders", {"id": INT, "v": TEXT, "old": INT, "n": INT}, valid_from=140)
        cells["n"] = 0
    elif late == "truncate":
        window.ddl(140, "TRUNCATE TABLE orders")
    mysql_mirror.load(Changelog(artifacts, 200, 300).rows(schema, [put(210, id=9000, **cells)]), target)
    with transactions() as changed:
        if late == "tombstones":
            mysql_mirror.raise_floor("shop.orders", 200, target)
        else:
            mysql_mirror.load(window, target)
    assert sum(changed) > 2500
    assert max(changed) < 1100, "beside the rows there is the ledger"
    left = {"column": "count(*), min(n), max(n)", "truncate": "count(*), min(id)", "tombstones": "count(*), min(id)"}
    expected = {"column": (2501, 0, 7), "truncate": (1, 9000), "tombstones": (2, -1)}
    assert mysql_mirror.rows(f"SELECT {left[late]} FROM shop.orders") == [expected[late]]


def test_a_task_that_runs_twice_stages_its_rows_once(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    """The second run begins when the first has ended well, and may still be at it while the rows are merged."""
    mysql_mirror.load(first(artifacts))
    late: list[Future[Any]] = []
    with ThreadPoolExecutor(4) as pool:

        def twice(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
            results = in_process(work, tasks, name)
            late.extend(pool.submit(work, task) for task in tasks if name.startswith("stage"))
            return results

        job = plain(artifacts).job(mysql_mirror.section)
        (report,) = load(job, mysql_mirror.connections, twice).tables
        assert (report.upserted, report.tombstones, report.superseded) == (2, 1, 0)
        for each in late:
            with contextlib.suppress(TicdcReplayError):  # its table may be gone
                each.result()
    assert len(late) > 0
    assert end_state(mysql_mirror, "id, v") == [(1, "new"), (3, "new")]


def test_a_task_that_breaks_between_two_files_is_tried_again(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    """TiDB commits what is staged in parts."""
    rows = [put(110, id=at, v="new", old=at) for at in range(9)]
    changelog = Changelog(artifacts, 100, 200).rows(ORDERS, rows, files=3)
    loads = 0
    real = BulkConnection.load

    def breaking(connection: Any, *given: Any) -> None:
        nonlocal loads
        loads += 1
        if loads == 3:
            raise pymysql.err.OperationalError(2013, "lost")
        real(connection, *given)

    def tried_again(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        with pytest.raises(TransientError, match="lost"):
            in_process(work, tasks, name)
        return in_process(work, tasks, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BulkConnection, "load", breaking)
        (report,) = load(changelog.job(mysql_mirror.section), mysql_mirror.connections, tried_again).tables
    assert (report.upserted, loads) == (9, 6)
    assert end_state(mysql_mirror, "id, v") == [(at, "new") for at in range(9)]


def test_rows_that_are_gone_from_staging_stop_the_load(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    mysql_mirror.load(first(artifacts))

    def emptied(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        for (stage,) in mysql_mirror.rows("SELECT name FROM _ticdc_replay.staging"):
            mysql_mirror.execute(f"TRUNCATE TABLE _ticdc_replay.{stage}")
        return results

    with pytest.raises(TransientError, match="0 rows are staged, and workers reported 3"):
        load(plain(artifacts).job(mysql_mirror.section), mysql_mirror.connections, emptied)
    assert end_state(mysql_mirror, "id, v") == [(1, "old"), (2, "old")]


def test_a_lock_that_the_server_took_back_stops_the_commit(
    mysql_mirror: MysqlRig, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mysql_mirror.load(first(artifacts))
    real = mysql_session.merge

    def losing(connection: Any, *given: Any, **options: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT RELEASE_ALL_LOCKS()")
            cursor.fetchall()
        return real(connection, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(mysql_session, "merge", losing)
        with pytest.raises(TransientError, match="the server has taken back the lock"):
            mysql_mirror.load(plain(artifacts))
    assert end_state(mysql_mirror, "id, v") == [(1, "old"), (2, "old")]


def test_a_column_that_becomes_too_long_for_its_index_loses_it(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    short = table(
        "shop.mails", {"id": INT, "mail": ColumnType("varchar", length=100, declared=True)}, unique=[["mail"]]
    )
    wide = table("shop.mails", {"id": INT, "mail": ColumnType("varchar", length=1000, declared=True)})
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(short, [put(10, id=1, mail="a")]))
    known = definition_from_sql(short.name, "CREATE TABLE mails (id BIGINT PRIMARY KEY, mail VARCHAR(100) UNIQUE)")
    window = Changelog(artifacts, 100, 200).knows(known)
    window.ddl(140, "ALTER TABLE mails MODIFY mail VARCHAR(1000)", table="shop.mails")
    report = mysql_mirror.load_table(window.rows(wide, [put(150, id=1, mail="b" * 1000)]))
    assert any("is too long for it" in line for line in report.ddl)
    assert mysql_mirror.rows("SELECT mail FROM shop.mails") == [("b" * 1000,)]


def test_a_column_that_an_index_of_several_has_is_dropped_in_tidb(
    mysql_mirror: MysqlRig, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TiDB refuses that as long as the index is there (``isColumnCanDropWithIndex``), and the upstream's was a unique one."""
    of_several = "SELECT 1 FROM information_schema.statistics WHERE table_name = 'orders' AND seq_in_index = 2"

    class Refusing(pymysql.connections.Connection):  # type: ignore[type-arg]
        def query(self, sql: Any, unbuffered: bool = False) -> int:
            if "DROP COLUMN" in str(sql) and mysql_mirror.rows(of_several):
                raise pymysql.err.OperationalError(8200, "can't drop column old with composite index covered")
            return super().query(sql, unbuffered)

    indexed = table("shop.orders", {"id": INT, "v": TEXT, "old": INT}, unique=[["v", "old"]])
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(indexed, [put(10, id=1, v="x", old=1)]))
    assert mysql_mirror.rows(of_several)
    look = mysql_staging.look
    monkeypatch.setattr(mysql_staging, "look", lambda connection: look(connection)._replace(is_tidb=True))
    monkeypatch.setattr(pymysql, "connect", lambda **given: Refusing(**given))
    window = Changelog(artifacts, 100, 200).ddl(140, "ALTER TABLE orders DROP INDEX u, DROP COLUMN old")
    report = mysql_mirror.load_table(
        window.rows(table("shop.orders", {"id": INT, "v": TEXT}), [put(150, id=2, v="y")]), drop="apply"
    )
    assert any(line.startswith("DROP INDEX") for line in report.ddl)
    assert mysql_mirror.rows("SELECT * FROM shop.orders ORDER BY id") == [(1, "x", 10), (2, "y", 150)]


def test_a_default_ends_with_the_rows_that_showed_it(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    old = table("shop.orders", {"id": INT})
    noted = table("shop.orders", {"id": INT, "n": INT, "note": ColumnType("text", declared=True)})
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(old, [put(10, id=1)]))
    added = Changelog(artifacts, 100, 200).ddl(
        140, "ALTER TABLE orders ADD COLUMN n BIGINT DEFAULT 7, ADD COLUMN note TEXT"
    )
    mysql_mirror.load(added.rows(noted, [put(150, id=2, n=1, note="x")]))
    assert mysql_mirror.rows("SELECT id, n, note FROM shop.orders ORDER BY id") == [(1, 7, None), (2, 1, "x")]
    emptied = Changelog(artifacts, 200, 300).ddl(240, "TRUNCATE TABLE orders")
    mysql_mirror.load(emptied.rows(noted, [put(250, id=3, n=None, note=None)]), drop="apply")
    mysql_mirror.execute("INSERT INTO shop.orders (id, _commit_ts) VALUES (4, 250)")
    assert mysql_mirror.rows("SELECT id, n, note FROM shop.orders ORDER BY id") == [(3, None, None), (4, None, None)]


def test_a_load_waits_for_another_and_a_dead_one_is_cleared_up(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    mysql_mirror.load(first(artifacts))
    mysql_mirror.execute(
        "INSERT INTO _ticdc_replay.staging (name, attempt, target_schema, target_table) "
        "VALUES ('stage_dead_0_0', 'dead', 'shop', 'orders')"
    )
    mysql_mirror.execute("CREATE TABLE _ticdc_replay.stage_dead_0_0 (id int)")
    mysql_mirror.load(plain(artifacts))
    assert mysql_mirror.rows("SELECT count(*) FROM _ticdc_replay.staging") == [(0,)]
    assert not mysql_mirror.has_table("_ticdc_replay.stage_dead_0_0")


def test_a_missing_privilege_and_a_read_only_server_are_told_apart(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    if "TiDB" in mysql_mirror.rows("SELECT version()")[0][0]:
        pytest.skip("the server's test user, who may do all, is the only one")
    mysql_mirror.load(first(artifacts))
    mysql_mirror.execute("DROP USER IF EXISTS reader@'127.0.0.1'")
    mysql_mirror.execute("CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'secret'")
    mysql_mirror.execute("GRANT SELECT ON *.* TO reader@'127.0.0.1'")
    reader = {**mysql_mirror.connections.by_id, "target": as_user(mysql_mirror, "reader", "secret")}
    mysql_mirror.connections = type(mysql_mirror.connections)(reader)
    with pytest.raises(PermanentError, match="grant the login the missing privilege"):
        mysql_mirror.load(plain(artifacts))
    mysql_mirror.connections = type(mysql_mirror.connections)(
        {"target": as_user(mysql_mirror, "reader", "another secret")}
    )
    with pytest.raises(TicdcReplayError, match="check login and password") as refused:
        mysql_mirror.load(plain(artifacts))
    assert "another secret" not in str(refused.value)


def test_rows_newer_than_the_ledger_knows_are_not_replaced(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    mysql_mirror.load(first(artifacts))
    mysql_mirror.execute("UPDATE shop.orders SET v = 'by hand', _commit_ts = 900 WHERE id = 1")
    with pytest.raises(TargetMismatchError, match="rows that are newer than every window"):
        mysql_mirror.load(plain(artifacts))
    mysql_mirror.load(plain(artifacts), reload=True)
    found = [(1, "by hand", 1, 900), (3, "new", 3, 120)]
    assert end_state(mysql_mirror, "id, v, old, _commit_ts") == found


def test_a_table_without_transactions_is_refused(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    if "TiDB" in mysql_mirror.rows("SELECT version()")[0][0]:
        pytest.skip("TiDB has one engine")
    mysql_mirror.execute("CREATE DATABASE shop")
    mysql_mirror.execute("CREATE TABLE shop.orders (id bigint PRIMARY KEY, _commit_ts bigint NOT NULL) ENGINE = MyISAM")
    with pytest.raises(TargetMismatchError, match="has the engine MyISAM, which has no transactions"):
        mysql_mirror.load(first(artifacts))


@pytest.mark.parametrize("broken", ["swap", "rename"])
def test_a_login_without_rights_on_it_leaves_what_broke_to_others(
    mysql_mirror: MysqlRig,
    artifacts: Path,
    broken: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two pipelines without `schema` share the server, and each has databases of its own."""
    if "TiDB" in mysql_mirror.rows("SELECT version()")[0][0]:
        pytest.skip("the server's test user, who may do all, is the only one")
    orders, own = TableName("shop", "orders"), table("other.items", {"id": INT})
    mysql_mirror.load(first(artifacts))
    mirror = mysql_mirror.changeable()
    assert isinstance(mirror, MysqlMirror)
    if broken == "swap":
        mysql_mirror.load(first(artifacts), {"schema": mirror.beside(orders).db_schema})
        with monkeypatch.context() as patch:
            patch.setattr(mysql_session.tables_swap, "rename", broken_rename)
            with pytest.raises(BrokenError):
                mirror.replace("pipeline", orders, [], ())
    else:
        with mirror.session("break") as session:
            session.rename_tables({Relation("shop", "orders"): Relation("shop", "sold")}, 100)
    noted = f"SELECT count(*) > 0 FROM _ticdc_replay.{broken}s"
    mysql_mirror.execute("CREATE DATABASE other")
    mysql_mirror.execute("DROP USER IF EXISTS other@'127.0.0.1'")
    mysql_mirror.execute("CREATE USER other@'127.0.0.1' IDENTIFIED BY 'secret'")
    for database in ("other", "_ticdc_replay"):
        mysql_mirror.execute(f"GRANT ALL ON `{database}`.* TO other@'127.0.0.1'")
    everybody, connections = mysql_mirror.connections, type(mysql_mirror.connections)
    mysql_mirror.connections = connections({"target": as_user(mysql_mirror, "other", "secret")})
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(own, [put(10, id=1)]), tables=("other.*",))
    assert mysql_mirror.rows("SELECT id FROM other.items") == [(1,)]
    left = 'of "shop"."orders" that broke is left for others to end'
    assert any(left in message for message in caplog.messages)
    mysql_mirror.execute("GRANT SELECT ON *.* TO other@'127.0.0.1'")
    with pytest.raises(PermanentError, match="grant the login the missing privilege"):
        mysql_mirror.load(plain(artifacts))
    assert mysql_mirror.rows(noted) == [(1,)]
    mysql_mirror.connections = everybody
    mysql_mirror.load(plain(artifacts))
    assert mysql_mirror.rows(noted) == [(0,)]
    assert mysql_mirror.rows("SELECT id, v FROM shop.orders ORDER BY id") == [(1, "new"), (3, "new")]


class BrokenError(Exception):
    """The session ends here."""


def broken_rename(*_: object) -> None:
    raise BrokenError


def as_user(mirror: MysqlRig, login: str, password: str) -> Any:
    import msgspec

    return msgspec.structs.replace(mirror.server, conn_id="target", login=login, password=password)


def test_a_foreign_key_does_not_order_the_loads(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    """Tables are committed one by one, so a child may come before its parent."""
    items = table("shop.items", {"id": INT, "order_id": INT})
    mysql_mirror.load(first(artifacts).rows(items, [put(10, id=1, order_id=1)]))
    mysql_mirror.execute(
        "ALTER TABLE shop.items ADD FOREIGN KEY (order_id) REFERENCES shop.orders (id) ON DELETE CASCADE"
    )
    gone = Changelog(artifacts, 100, 200).rows(ORDERS, [delete(110, id=1)]).rows(items, [put(120, id=2, order_id=77)])
    mysql_mirror.load(gone)
    assert mysql_mirror.rows("SELECT id, order_id FROM shop.items ORDER BY id") == [(1, 1), (2, 77)]
    with pymysql.connect(**arguments(mysql_mirror.server, 3306)) as session, session.cursor() as cursor:
        cursor.execute("SELECT @@foreign_key_checks")
        assert cursor.fetchone() == (1,)
    assert MysqlSettings(mysql_mirror.connections["target"]).conn_id == "target"
