"""A database that goes back to an earlier commit, and one whose disk is full: loads that are repeated bring the rest."""

import resource
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.support import mariadb
from tests.support.changelogs import Changelog, base, delete, put, table
from tests.support.target_rigs import MirrorRig, MysqlRig, PostgresRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.mysql_protocol import identifier, is_system_schema

pytestmark = pytest.mark.integration

BIGINT, TEXT = ColumnType("bigint", declared=True), ColumnType("text", declared=True)
ORDERS = table("shop.orders", {"id": BIGINT, "v": TEXT})
WIDER = table("shop.orders", {"id": BIGINT, "v": TEXT, "w": BIGINT}, valid_from=230)


@pytest.fixture(params=["postgres", "mysql", "tidb"])
def database(request: pytest.FixtureRequest) -> MirrorRig:
    """An empty mirror whose ledger is in the database that may be lost."""
    if request.param == "postgres":
        return PostgresRig(request.getfixturevalue("make_database")())
    return MysqlRig(request.getfixturevalue(f"{request.param}_server"))


def replica_of(rig: MirrorRig) -> Callable[[], None]:
    """Copy the database as it is now; what is returned puts the copy in its place, as a failover to a late replica does."""
    return _replica_of_postgres(rig) if isinstance(rig, PostgresRig) else _replica_of_mysql(rig)


def _replica_of_postgres(rig: PostgresRig) -> Callable[[], None]:
    name = urlsplit(rig.dsn).path[1:]
    copy = f"{name}_replica"

    def run(*statements: str) -> None:
        with psycopg.connect(rig.dsn, dbname="postgres", autocommit=True) as connection:
            for statement in statements:
                connection.execute(
                    SQL(statement).format(name=Identifier(name), copy=Identifier(copy))  # type: ignore[arg-type]
                )

    run("CREATE DATABASE {copy} TEMPLATE {name}")
    return lambda: run("DROP DATABASE {name} WITH (FORCE)", "ALTER DATABASE {copy} RENAME TO {name}")


def _replica_of_mysql(rig: MirrorRig) -> Callable[[], None]:
    def tables() -> list[tuple[str, str]]:
        query = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        return [(schema, name) for schema, name in rig.rows(query) if not is_system_schema(schema)]

    copied = tables()
    for schema in {schema for schema, _ in copied}:
        rig.execute(f"CREATE DATABASE {identifier(f'{schema} copy')}")
    for schema, name in copied:
        copy = f"{identifier(f'{schema} copy')}.{identifier(name)}"
        rig.execute(f"CREATE TABLE {copy} LIKE {identifier(schema)}.{identifier(name)}")
        rig.execute(f"INSERT INTO {copy} SELECT * FROM {identifier(schema)}.{identifier(name)}")

    def fail_over() -> None:
        for schema, name in tables():
            if not schema.endswith(" copy"):
                rig.execute(f"DROP TABLE {identifier(schema)}.{identifier(name)}")
        for schema, name in copied:
            place = f"{identifier(schema)}.{identifier(name)}"
            rig.execute(f"RENAME TABLE {identifier(f'{schema} copy')}.{identifier(name)} TO {place}")

    return fail_over


@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_loads_that_a_failover_lost_are_repeated(database: MirrorRig, artifacts: Path, order: tuple[int, ...]) -> None:
    first = base(artifacts, 100).rows(ORDERS, [put(100, op="upsert", id=number, v="first") for number in range(1, 6)])
    lost = Changelog(artifacts, 200, 300).rows(ORDERS, [put(210, id=1, v="lost"), delete(220, id=2)])
    lost.ddl(230, "ALTER TABLE shop.orders ADD w BIGINT DEFAULT 7").rows(WIDER, [put(240, id=6, v="lost", w=1)])
    after = Changelog(artifacts, 300, 400).rows(WIDER, [put(310, id=3, v="after", w=2), put(320, id=2, v="again", w=3)])
    database.load(first)
    fail_over = replica_of(database)
    database.load(lost)
    assert database.load_table(lost).outcome == "done_before"
    fail_over()
    assert database.rows("SELECT id, v FROM shop.orders WHERE id < 3 ORDER BY id") == [(1, "first"), (2, "first")]
    for number in order:
        report = database.load_table((lost, after)[number])
        assert report.outcome == "loaded"
    assert database.load_table(lost).outcome == "done_before"
    assert database.rows("SELECT id, v, w, _commit_ts FROM shop.orders ORDER BY id") == [
        (1, "lost", 7, 210),
        (2, "again", 3, 320),
        (3, "after", 2, 310),
        (4, "first", 7, 100),
        (5, "first", 7, 100),
        (6, "lost", 1, 240),
    ]


ROOM = 24 << 20
"""Bytes that a file of the server may have; its own at the start have 12 MiB at most."""


@pytest.fixture
def small_server(tmp_path: Path, mariadb_programs: mariadb.Programs) -> Iterator[MysqlRig]:
    """A MariaDB whose disk has room for ``ROOM`` bytes of each table."""
    limited = ("sh", "-c", f"trap '' XFSZ; ulimit -S -f {ROOM // 512}; exec \"$@\"", "sh")
    programs = mariadb_programs._replace(server=(*limited, *mariadb_programs.server))
    with mariadb.running(tmp_path, programs, {"innodb-log-file-size": "8M"}) as connection:
        yield MysqlRig(connection)


def test_a_full_disk_is_transient_and_the_load_goes_on_once_there_is_room(
    small_server: MysqlRig, artifacts: Path
) -> None:
    first = Changelog(artifacts, 1, 100).rows(ORDERS, [put(10, id=number, v="x") for number in range(100)])
    small_server.load(first)
    second = Changelog(artifacts, 100, 200).rows(
        ORDERS, [put(110, id=number, v="y" * 20_000) for number in range(2_000)]
    )
    with pytest.raises(TransientError, match="is full"):
        small_server.load(second)
    assert small_server.rows("SELECT count(*), min(v), max(v) FROM shop.orders") == [(100, "x", "x")]
    [(folder, file)] = small_server.rows("SELECT @@datadir, @@pid_file")
    pid = int(Path(folder, file).read_text())
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
    assert small_server.load_table(second).outcome == "loaded"
    assert small_server.rows("SELECT count(*), min(v) FROM shop.orders") == [(2_000, "y" * 20_000)]
