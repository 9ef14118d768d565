"""Comparing equal tables: ``verify`` against a count and a checksum that a person writes, in the same ranges in both databases.

``python -m benchmarks.verify`` fills MariaDB and PostgreSQL with equal rows, and compares them three times by each way, in turn.
With 10 M rows it writes its part of ``benchmarks/RESULTS.md``. By hand, ranges are known, both databases work at the same time,
and text is taken as each engine prints it.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pymysql
import yaml

from benchmarks.results import replace_part
from demo.embedded_stack.postgres import Postgres
from tests.support import mariadb
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.tables import TableName
from ticdc_replay.large_messages import source_statements
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.upkeep.mirrors import raise_floor
from ticdc_replay.stages.upkeep.verify import verify
from ticdc_replay.verify.compare import RANGE_ROWS, Pace

ROWS = 10_000_000
RUNS = 3
GOAL = 0.8
AT = 1_000
SOURCE_TABLE = (
    "CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer int NOT NULL, status enum('new','paid','sent') NOT NULL, "
    "amount decimal(12,2), weight double, created datetime(3) NOT NULL, mail varchar(100), note text) CHARSET utf8mb4"
)
SOURCE_ROWS = (
    "INSERT INTO shop.orders SELECT seq, seq % 10007, 1 + seq % 3, seq / 100, seq / 8, "
    "'2026-01-01 00:00:00.000' + INTERVAL seq SECOND, CONCAT('customer', seq % 10007, '@example.com'), "
    "REPEAT(CONCAT('note ', seq, ' '), 8) FROM seq_1_to_{rows}"
)
MIRROR_TABLE = (
    'CREATE SCHEMA shop; CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer integer, status text COLLATE "C", '
    'amount numeric(12,2), weight double precision, created timestamp(3), mail text COLLATE "C", note text COLLATE "C", '
    "_commit_ts bigint NOT NULL)"
)
MIRROR_ROWS = (
    "INSERT INTO shop.orders SELECT n, n % 10007, (ARRAY['new','paid','sent'])[1 + n % 3], n / 100.0, n / 8.0, "
    "timestamp '2026-01-01' + n * interval '1 second', 'customer' || n % 10007 || '@example.com', "
    "repeat('note ' || n || ' ', 8), 500 FROM generate_series(1, {rows}) n"
)
COLUMNS = "id, customer, status, amount, weight, created, mail, note"
BY_HAND_SOURCE = (
    f"SELECT COUNT(*), BIT_XOR(CAST(CONV(LEFT(MD5(CONCAT_WS(',', {COLUMNS})), 16), 16, 10) AS UNSIGNED)) FROM shop.orders "
    "WHERE id >= %s AND id < %s"
)
BY_HAND_MIRROR = (
    f"SELECT count(*), bit_xor(('x' || left(md5(concat_ws(',', {COLUMNS})), 16))::bit(64)::bigint) FROM shop.orders "
    "WHERE id >= %s AND id < %s"
)


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=ROWS)
    options = arguments.parse_args()
    programs = mariadb.programs()
    if programs is None:
        arguments.error("there is no MariaDB for this machine")
    # MariaDB has no snapshots; nothing changes here.
    source_statements.at_snapshot = lambda tso: Statement("SET @tidb_snapshot = %s", (str(tso),))
    source_statements.GENTLE = ()
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as name,
        mariadb.running(Path(name), programs, {"innodb-buffer-pool-size": "4G"}) as source,
        Postgres(Path(name) / "postgres") as postgres,
    ):
        dsn = postgres.create_database("mirror")
        fill(source, dsn, options.rows)
        with ReplayContext(load_pipeline(pipeline(Path(name))), connections(source, dsn)) as context:
            raise_floor(context, "mirror", TableName("shop", "orders"), AT, holds_all_rows=True)
            times: dict[str, list[float]] = {"verify": [], "by hand": []}
            for run in range(RUNS + 1):
                ours, theirs = timed_verify(context, options.rows), timed_by_hand(source, dsn, options.rows)
                if run:  # the first one warms the servers' caches
                    times["verify"].append(ours)
                    times["by hand"].append(theirs)
    text = table(options.rows, times)
    print(text)
    if options.rows == ROWS:
        replace_part("verify", text)


def fill(source: Connection, dsn: str, rows: int) -> None:
    """Equal rows in both databases."""
    mariadb.execute(
        source,
        "CREATE TABLE mysql.tidb (VARIABLE_NAME varchar(64), VARIABLE_VALUE varchar(1024))",
        "INSERT INTO mysql.tidb VALUES ('tikv_gc_safe_point', '19700101-00:00:00 +0000')",
        "CREATE DATABASE shop",
        "USE shop",
        SOURCE_TABLE,
        SOURCE_ROWS.format(rows=rows),
    )
    with psycopg.connect(dsn, autocommit=True) as mirror:
        mirror.execute(MIRROR_TABLE)
        mirror.execute(MIRROR_ROWS.format(rows=rows))
        mirror.execute("VACUUM ANALYZE shop.orders")


def pipeline(folder: Path) -> Path:
    """The file of a pipeline with a mirror."""
    declared = {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://b:9092/shop?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka", "source": "source"},
        "artifacts": (folder / "artifacts").as_uri(),
        "tables": ["shop.*"],
        "schedule": {"start": "2026-01-01T00:00:00Z"},
        "targets": [{"name": "mirror", "type": "postgres", "connection": "target"}],
    }
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump(declared))
    return file


def connections(source: Connection, dsn: str) -> Connections:
    """Those that the pipeline names."""
    parts = urlsplit(dsn)
    address = (parts.hostname, parts.port, parts.username, parts.password, parts.path.lstrip("/"))
    return Connections({"source": source, "target": Connection("target", "postgres", *address)})


def timed_verify(context: ReplayContext, rows: int) -> float:
    """Seconds of a comparison without pauses."""
    begun = time.perf_counter()
    report = verify(context, "mirror", at=AT, pace=Pace(1.0))
    took = time.perf_counter() - begun
    [found] = report.tables
    assert (report.is_equal, found.findings.source_rows, found.findings.mirror_rows) == (True, rows, rows), report
    return took


def timed_by_hand(source: Connection, dsn: str, rows: int) -> float:
    """Seconds of a checksum by hand in the same ranges."""
    ranges = [(first, first + RANGE_ROWS) for first in range(1, rows + 1, RANGE_ROWS)]
    assert source.host is not None
    assert source.port is not None

    with (
        pymysql.connect(host=source.host, port=source.port, user=mariadb.USER, password=mariadb.PASSWORD) as upstream,
        psycopg.connect(dsn) as mirror,
        ThreadPoolExecutor(2) as pool,
    ):
        cursor = upstream.cursor()

        def at_source(part: tuple[int, int]) -> int:
            cursor.execute(BY_HAND_SOURCE, part)
            return int(cursor.fetchall()[0][0])

        def at_mirror(part: tuple[int, int]) -> int:
            return int(mirror.execute(BY_HAND_MIRROR, part).fetchall()[0][0])

        begun = time.perf_counter()
        for part in ranges:
            counts = [pool.submit(at_source, part), pool.submit(at_mirror, part)]
            assert counts[0].result() == counts[1].result()
        return time.perf_counter() - begun


def table(rows: int, times: dict[str, list[float]]) -> str:
    """The results as Markdown."""
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    ratio = medians["by hand"] / medians["verify"]
    lines = [
        f"`python -m benchmarks.verify`: {rows:,} rows of 8 columns, ranges of {RANGE_ROWS:,} rows, MariaDB "
        f"{mariadb.VERSION} and PostgreSQL, {os.cpu_count()} cores, Python {platform.python_version()}; medians of {RUNS} runs. "
        f"The load average at the end was {os.getloadavg()[0]:.1f}: above 2 or so, other programs took a part of the time.",
        "",
        "| | s | min – max s | k rows/s |",
        "|---|---|---|---|",
    ]
    for name, seconds in times.items():
        lines.append(
            f"| {name} | {medians[name]:.2f} | {min(seconds):.2f} – {max(seconds):.2f} | {rows / medians[name] / 1e3:,.0f} |"
        )
    lines += ["", "| ratio | value | goal |", "|---|---|---|"]
    lines.append(f"| speed of verify / by hand | {ratio:.2f} | ≥ {GOAL} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
