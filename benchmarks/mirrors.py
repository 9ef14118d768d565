"""1 M changed rows onto 1 M rows: a load of a window into MariaDB and PostgreSQL, against the statements of a person.

``python -m benchmarks.mirrors`` fills a mirror and a table by hand with equal rows, then replaces all of them by each way, in
turn, and writes its part of ``benchmarks/RESULTS.md``; with another number of rows it only prints. The window is a changelog of
four files, loaded by two processes without Spark. By hand, the rows are in a text file of the engine, in the order of their
commits, as in the window: COPY, or LOAD DATA, into a table without index, then DELETE and INSERT, or INSERT … ON DUPLICATE KEY
UPDATE. A first run does not count.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pymysql
import xxhash

from benchmarks.results import replace_part
from demo.embedded_stack.postgres import Postgres
from tests.support import mariadb
from tests.support.changelogs import Changelog, table
from ticdc_replay.changelog.cells.types import table_arrow_schema
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.drivers.load import run_load
from ticdc_replay.drivers.local import LocalRunner
from ticdc_replay.mysql_protocol import arguments

ROWS = 1_000_000
RUNS = 3
PROCESSES = 2
FILES = 4
GOAL = 1.3


def _declared(base: Any, **details: Any) -> ColumnType:
    return ColumnType(base, declared=True, **details)


ORDERS = table(
    "shop.orders",
    {
        "id": _declared("bigint"),
        "customer": _declared("int"),
        "status": _declared("enum", elements=("new", "paid", "sent")),
        "amount": _declared("decimal", length=12, scale=2),
        "weight": _declared("double"),
        "created": _declared("datetime", scale=3),
        "mail": _declared("varchar", length=100),
        "note": _declared("varchar", length=200),
    },
)
COLUMNS = "id, customer, status, amount, weight, created, mail, note, _commit_ts"
ORDER = "_commit_ts, id"


def main() -> None:
    """Measure and, at full size, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args()
    programs = mariadb.programs()
    if programs is None:
        parser.error("there is no MariaDB for this machine")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        windows = [window(folder, number, options.rows) for number in range(RUNS + 2)]
        server = {**mariadb.DURABLE, "innodb-buffer-pool-size": "2G", "innodb-log-file-size": "1G"}
        with mariadb.running(folder, programs, server) as connection:
            maria = measured(windows, mysql_ways(connection, folder))
        with Postgres(folder / "postgres") as postgres:
            pg = measured(windows, postgres_ways(postgres.create_database("mirrors"), folder))
    text = report(options.rows, {"MariaDB": maria, "PostgreSQL": pg})
    print(text)
    if options.rows == ROWS:
        replace_part("mirrors", text)


def window(folder: Path, number: int, rows: int) -> Changelog:
    """A window in which every row changes, in the files that decode would write."""
    begin = 1_000 * (number + 1)
    made = Changelog(folder / "artifacts", begin, begin + 1_000)
    for part in range(FILES):
        at = np.arange(part, rows, FILES)
        made.file(ORDERS, changed_rows(at[np.argsort(at % 900, kind="stable")], begin, number))
    return made


def changed_rows(at: npt.NDArray[np.int64], begin: int, number: int) -> pa.Table:
    """The rows with the keys *at*, as the changelog has them."""
    schema = table_arrow_schema(ORDERS)
    image = schema.field("after").type
    cells = {
        "id": at,
        "customer": (at + number) % 10_007,
        "status": np.array(["new", "paid", "sent"])[(at + number) % 3],
        "amount": [f"{each // 100}.{each % 100:02}" for each in (at + number).tolist()],
        "weight": (at + number) / 8,
        "created": np.datetime64("2026-01-01T00:00:00", "us") + at.astype("timedelta64[s]"),
        "mail": [f"customer{each % 10_007}@example.com" for each in at.tolist()],
        "note": [f"note {each + number} " * 8 for each in at.tolist()],
    }
    own = {
        "_op": np.full(len(at), "insert"),
        "_commit_ts": begin + 1 + at % 900,
        "_topic": np.full(len(at), "topic"),
        "_partition": np.zeros(len(at), np.int32),
        "_offset": at + 1,
        "_index": np.zeros(len(at), np.int32),
        "_key": [xxhash.xxh3_128_digest(each.to_bytes(8)) for each in at.tolist()],
        "_partial": np.zeros(len(at), np.bool_),
        "_split": np.zeros(len(at), np.bool_),
        "after": pa.StructArray.from_arrays(
            [pa.array(cells[each.name]).cast(each.type) for each in image], fields=list(image)
        ),
    }
    columns = [
        pa.array(own[each.name]).cast(each.type) if each.name in own else pa.nulls(len(at), each.type)
        for each in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


class Ways:
    """How the rows of a window get into an engine."""

    def __init__(
        self,
        section: dict[str, object],
        connection: Connection,
        export: Callable[[], None],
        by_hand: Callable[[], None],
    ) -> None:
        self.section, self.connection, self.export, self.by_hand = section, connection, export, by_hand

    def load(self, changelog: Changelog, local: LocalRunner) -> float:
        """Load *changelog*; the seconds it takes."""
        job = msgspec.structs.replace(changelog.job(self.section), reload=False)
        began = time.monotonic()
        run_load(local, job, Connections({"target": self.connection}))
        return time.monotonic() - began


@contextmanager
def runner() -> Iterator[LocalRunner]:
    """Two processes that have started. Those of all runs, as executors of Spark are: modules are imported by the first one."""
    with ProcessPoolExecutor(PROCESSES, get_context("fork")) as pool:
        for started in [pool.submit(os.getpid) for _ in range(PROCESSES)]:
            started.result()
        yield LocalRunner(pool, PROCESSES)


def measured(windows: list[Changelog], ways: Ways) -> dict[str, list[float]]:
    """Seconds by way. The first window fills the tables, the second does not count."""
    times: dict[str, list[float]] = {"load": [], "by hand": []}
    with runner() as local:
        for number, changelog in enumerate(windows):
            ours = ways.load(changelog, local)
            ways.export()
            began = time.monotonic()
            ways.by_hand()
            theirs = time.monotonic() - began
            print(f"{ways.section['type']}: load {ours:.2f} s, by hand {theirs:.2f} s", flush=True)
            if number > 1:
                times["load"].append(ours)
                times["by hand"].append(theirs)
    return times


def mysql_ways(server: Connection, folder: Path) -> Ways:
    """MariaDB: by hand, LOAD DATA and ON DUPLICATE KEY UPDATE in one transaction."""
    file = folder / "maria.txt"

    @contextmanager
    def session() -> Iterator[Any]:
        with pymysql.connect(**arguments(server, 3306), local_infile=True) as opened, opened.cursor() as cursor:
            yield cursor
            opened.commit()

    def export() -> None:
        file.unlink(missing_ok=True)
        with session() as cursor:
            cursor.execute(f"SELECT {COLUMNS} FROM shop.orders ORDER BY {ORDER} INTO OUTFILE '{file}'")
            cursor.execute("CREATE DATABASE IF NOT EXISTS hand")
            cursor.execute("CREATE TABLE IF NOT EXISTS hand.orders LIKE shop.orders")

    def by_hand() -> None:
        replaced = ", ".join(f"{name} = VALUES({name})" for name in COLUMNS.split(", ")[1:])
        with session() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE hand.incoming AS SELECT * FROM shop.orders LIMIT 0")
            cursor.execute(
                f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE hand.incoming CHARACTER SET utf8mb4 ({COLUMNS})"
            )
            cursor.execute(
                f"INSERT INTO hand.orders ({COLUMNS}) SELECT {COLUMNS} FROM hand.incoming ON DUPLICATE KEY UPDATE {replaced}"
            )

    section: dict[str, object] = {"type": "mysql", "name": "mirror", "connection": "target"}
    return Ways(section, msgspec.structs.replace(server, conn_id="target"), export, by_hand)


def postgres_ways(dsn: str, folder: Path) -> Ways:
    """PostgreSQL: by hand, COPY, DELETE and INSERT in one transaction."""
    file = folder / "postgres.csv"

    def export() -> None:
        with psycopg.connect(dsn) as session, session.cursor() as cursor, file.open("wb") as target:
            with cursor.copy(
                f"COPY (SELECT {COLUMNS} FROM shop.orders ORDER BY {ORDER}) TO STDOUT (FORMAT csv)".encode()
            ) as copy:
                for chunk in copy:
                    target.write(chunk)
            cursor.execute("CREATE TABLE IF NOT EXISTS by_hand (LIKE shop.orders INCLUDING ALL)")

    def by_hand() -> None:
        with psycopg.connect(dsn) as session, session.cursor() as cursor:
            cursor.execute("CREATE TEMP TABLE incoming (LIKE by_hand) ON COMMIT DROP")
            with (
                cursor.copy(f"COPY incoming ({COLUMNS}) FROM STDIN (FORMAT csv)".encode()) as copy,
                file.open("rb") as source,
            ):
                while chunk := source.read(1 << 20):
                    copy.write(chunk)
            cursor.execute("DELETE FROM by_hand USING incoming WHERE by_hand.id = incoming.id")
            cursor.execute("INSERT INTO by_hand SELECT * FROM incoming")

    parts = urlsplit(dsn)
    address = (parts.hostname, parts.port, parts.username, parts.password, parts.path.lstrip("/"))
    section: dict[str, object] = {"type": "postgres", "name": "mirror", "connection": "target"}
    return Ways(section, Connection("target", "postgres", *address), export, by_hand)


def report(rows: int, found: dict[str, dict[str, list[float]]]) -> str:
    """The results as Markdown."""
    lines = [
        f"`python -m benchmarks.mirrors`: {rows:,} changed rows of 8 columns onto as many, MariaDB {mariadb.VERSION} and "
        f"PostgreSQL, {os.cpu_count()} cores, Python {platform.python_version()}; medians of {RUNS} runs. The load average at "
        f"the end was {os.getloadavg()[0]:.1f}.",
        "",
        "| engine | load, s | min – max s | by hand, s | min – max s | ratio | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    for engine, times in found.items():
        ours, theirs = (statistics.median(times[way]) for way in ("load", "by hand"))
        spans = [f"{min(times[way]):.2f} – {max(times[way]):.2f}" for way in ("load", "by hand")]
        lines.append(
            f"| {engine} | {ours:.2f} | {spans[0]} | {theirs:.2f} | {spans[1]} | {ours / theirs:.2f} | ≤ {GOAL} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
