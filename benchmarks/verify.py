"""Comparing equal tables: ``verify`` against a count and a checksum that a person writes, in the same ranges on both sides.

``python -m benchmarks.verify`` fills MariaDB, and a mirror in PostgreSQL and one in Iceberg, with equal rows. It compares each
three times by both ways, in turn. With 10 M rows it writes its parts of ``benchmarks/RESULTS.md``. By hand, ranges are known,
both sides work at the same time, and text is taken as each engine prints it. A statement at Iceberg has as many ranges as one of
``verify``, and Spark runs already.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import psycopg
import pymysql
import yaml
from pyspark.sql import SparkSession

from benchmarks import lake
from benchmarks.jobs import prepare_environment
from benchmarks.results import replace_part
from demo.embedded_stack.postgres import Postgres
from tests.support import mariadb
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.tables import TableName
from ticdc_replay.drivers.verify import run_here
from ticdc_replay.large_messages import source_statements
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.upkeep.mirrors import raise_floor
from ticdc_replay.stages.upkeep.verify import verify
from ticdc_replay.verify.compare import RANGE_ROWS, Pace
from ticdc_replay.verify.readers import MOST_RANGES

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
LAKE_TABLE = (
    "CREATE TABLE lake.shop.orders (id bigint, customer int, status string, amount decimal(12,2), weight double, "
    "created timestamp_ntz, mail string, note string, _commit_ts bigint NOT NULL) USING iceberg "
    "TBLPROPERTIES ('ticdc-replay.key' = '[\"id\"]', 'format-version' = '3', 'write.parquet.compression-codec' = 'zstd')"
)
LAKE_ROWS = (
    "INSERT INTO lake.shop.orders SELECT id, CAST(id % 10007 AS int), array('new', 'paid', 'sent')[CAST(id % 3 AS int)], "
    "CAST(id / 100 AS decimal(12,2)), id / 8.0D, CAST(timestamp_seconds(1767225600 + id) AS timestamp_ntz), "
    "concat('customer', id % 10007, '@example.com'), repeat(concat('note ', id, ' '), 8), 500L FROM range(1, {rows} + 1)"
)
COLUMNS = "id, customer, status, amount, weight, created, mail, note"
BY_HAND_SOURCE = (
    f"SELECT COUNT(*), BIT_XOR(CAST(CONV(LEFT(MD5(CONCAT_WS(',', {COLUMNS})), 16), 16, 10) AS UNSIGNED)) FROM shop.orders "
    "WHERE id >= %s AND id < %s"
)
BY_HAND_POSTGRES = (
    f"SELECT count(*), bit_xor(('x' || left(md5(concat_ws(',', {COLUMNS})), 16))::bit(64)::bigint) FROM shop.orders "
    "WHERE id >= %s AND id < %s"
)
BY_HAND_LAKE = (
    f"SELECT count(*), bit_xor(CAST(conv(left(md5(concat_ws(',', {COLUMNS})), 16), 16, -10) AS bigint)) FROM lake.shop.orders "
    "WHERE id >= {first} AND id < {end} GROUP BY (id - {first}) DIV {size} ORDER BY (id - {first}) DIV {size}"
)

IdRange = tuple[int, int]
"""From an id up to one that is not in it any more."""


class Mirror(ABC):
    """A mirror with the rows of the source."""

    part: ClassVar[str]
    """Its part of the results."""
    name: ClassVar[str]
    ranges_at_once: ClassVar[int]
    """How many ranges one statement of ``verify`` has."""
    section: dict[str, object]
    connections: tuple[Connection, ...] = ()

    @abstractmethod
    def run_job(self, uri: str, context: ReplayContext) -> None:
        """Run the job of a comparison."""

    @abstractmethod
    def counts(self, ranges: Sequence[IdRange]) -> list[int]:
        """How many rows each of *ranges* has; a checksum of them is made, too."""


class InPostgres(Mirror):
    """The mirror in the database at *dsn*."""

    part, name, ranges_at_once = "verify", "PostgreSQL", 1

    def __init__(self, dsn: str, session: psycopg.Connection, rows: int) -> None:
        parts = urlsplit(dsn)
        address = (parts.hostname, parts.port, parts.username, parts.password, parts.path.lstrip("/"))
        self.section = {"name": "mirror", "type": "postgres", "connection": "target"}
        self.connections = (Connection("target", "postgres", *address),)
        self._session = session
        self._session.execute(MIRROR_TABLE)
        self._session.execute(MIRROR_ROWS.format(rows=rows))
        self._session.execute("VACUUM ANALYZE shop.orders")

    def run_job(self, uri: str, context: ReplayContext) -> None:
        raise AssertionError("databases are compared without a job")

    def counts(self, ranges: Sequence[IdRange]) -> list[int]:
        return [int(self._session.execute(BY_HAND_POSTGRES, part).fetchall()[0][0]) for part in ranges]


class InIceberg(Mirror):
    """The mirror in a lake below *folder*."""

    part, name, ranges_at_once = "verify_iceberg", "Iceberg", MOST_RANGES

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self._spark = spark
        settings = {"type": "hadoop", "warehouse": (folder / "tables").as_uri(), "cache-enabled": "false"}
        self.section = {"name": "mirror", "type": "iceberg", "catalog": "lake", "ledger": (folder / "ledger").as_uri()}
        self.section["settings"] = settings
        for name, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.lake.{name}", value)
        spark.conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        for statement in ("CREATE NAMESPACE lake.shop", LAKE_TABLE, LAKE_ROWS.format(rows=rows)):
            spark.sql(statement)

    def run_job(self, uri: str, context: ReplayContext) -> None:
        job = jobspec.read(context.artifacts, uri)
        assert isinstance(job, jobspec.VerifyJob)
        run_here(job, context.connections, SparkSql(self._spark), lambda line: None)

    def counts(self, ranges: Sequence[IdRange]) -> list[int]:
        statement = BY_HAND_LAKE.format(first=ranges[0][0], end=ranges[-1][1], size=RANGE_ROWS)
        return [row[0] for row in self._spark.sql(statement).collect()]


@contextmanager
def mirror_of(kind: str, folder: Path, rows: int) -> Iterator[Mirror]:
    """A filled mirror of *kind*, with its server or its Spark."""
    if kind == "postgres":
        with Postgres(folder / "postgres") as postgres:
            dsn = postgres.create_database("mirror")
            with psycopg.connect(dsn, autocommit=True) as session:
                yield InPostgres(dsn, session, rows)
        return
    prepare_environment()
    spark = lake.session(folder)
    yield InIceberg(spark, folder, rows)
    spark.stop()


KINDS = ["postgres", "iceberg"]


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=ROWS)
    arguments.add_argument("--mirrors", nargs="+", choices=KINDS, default=KINDS)
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
    ):
        fill(source, options.rows)
        for kind in options.mirrors:
            folder = Path(name, kind)
            folder.mkdir()
            with mirror_of(kind, folder, options.rows) as mirror:
                text = table(mirror, options.rows, measured(source, mirror, folder, options.rows))
            print(text)
            if options.rows == ROWS:
                replace_part(mirror.part, text)


def measured(source: Connection, mirror: Mirror, folder: Path, rows: int) -> dict[str, list[float]]:
    """Seconds of each run of both ways."""
    connections = Connections({each.conn_id: each for each in (source, *mirror.connections)})
    times: dict[str, list[float]] = {"verify": [], "by hand": []}
    with ReplayContext(load_pipeline(pipeline(folder, mirror)), connections) as context:
        raise_floor(context, "mirror", TableName("shop", "orders"), AT, holds_all_rows=True)
        for run in range(RUNS + 1):
            ours, theirs = timed_verify(context, mirror, rows), timed_by_hand(source, mirror, rows)
            if run:  # the first one warms the servers' caches
                times["verify"].append(ours)
                times["by hand"].append(theirs)
    return times


def fill(source: Connection, rows: int) -> None:
    """The rows of the source."""
    mariadb.execute(
        source,
        "CREATE TABLE mysql.tidb (VARIABLE_NAME varchar(64), VARIABLE_VALUE varchar(1024))",
        "INSERT INTO mysql.tidb VALUES ('tikv_gc_safe_point', '19700101-00:00:00 +0000')",
        "CREATE DATABASE shop",
        "USE shop",
        SOURCE_TABLE,
        SOURCE_ROWS.format(rows=rows),
    )


def pipeline(folder: Path, mirror: Mirror) -> Path:
    """The file of a pipeline with *mirror*."""
    declared = {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://b:9092/shop?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka", "source": "source"},
        "artifacts": (folder / "artifacts").as_uri(),
        "tables": ["shop.*"],
        "schedule": {"start": "2026-01-01T00:00:00Z"},
        "targets": [mirror.section],
    }
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump(declared))
    return file


def timed_verify(context: ReplayContext, mirror: Mirror, rows: int) -> float:
    """Seconds of a comparison without pauses."""
    begun = time.perf_counter()
    report = verify(context, "mirror", at=AT, pace=Pace(1.0), submit=lambda uri: mirror.run_job(uri, context))
    took = time.perf_counter() - begun
    [found] = report.tables
    assert (report.is_equal, found.findings.source_rows, found.findings.mirror_rows) == (True, rows, rows), report
    return took


def timed_by_hand(source: Connection, mirror: Mirror, rows: int) -> float:
    """Seconds of a checksum by hand in the same ranges."""
    ranges = [(first, first + RANGE_ROWS) for first in range(1, rows + 1, RANGE_ROWS)]
    assert source.host is not None
    assert source.port is not None

    with (
        pymysql.connect(host=source.host, port=source.port, user=mariadb.USER, password=mariadb.PASSWORD) as upstream,
        ThreadPoolExecutor(2) as pool,
    ):
        cursor = upstream.cursor()

        def at_source(some: Sequence[IdRange]) -> list[int]:
            found = []
            for part in some:
                cursor.execute(BY_HAND_SOURCE, part)
                found.append(int(cursor.fetchall()[0][0]))
            return found

        begun = time.perf_counter()
        for at in range(0, len(ranges), mirror.ranges_at_once):
            some = ranges[at : at + mirror.ranges_at_once]
            counts = [pool.submit(at_source, some), pool.submit(mirror.counts, some)]
            assert counts[0].result() == counts[1].result()
        return time.perf_counter() - begun


def table(mirror: Mirror, rows: int, times: dict[str, list[float]]) -> str:
    """The results as Markdown."""
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    ratio = medians["by hand"] / medians["verify"]
    lines = [
        f"`python -m benchmarks.verify`: {rows:,} rows of 8 columns, ranges of {RANGE_ROWS:,} rows, MariaDB "
        f"{mariadb.VERSION} and {mirror.name}, {os.cpu_count()} cores, Python {platform.python_version()}; medians of {RUNS} "
        f"runs. The load average at the end was {os.getloadavg()[0]:.1f}: above 2 or so, other programs took a part of the time.",
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
