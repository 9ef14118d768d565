"""Base loads of 1 M and 3 M rows from CSV files into MariaDB and PostgreSQL, against the engine's own bulk load of the files.

``python -m benchmarks.seed`` seeds an empty mirror from a dump of four files, and copies the files into an empty table that is
like the mirror by COPY or LOAD DATA, in turn, and writes its part of ``benchmarks/RESULTS.md``; with other numbers of rows it
only prints. The seed is the changelog of the dump and the load of it, by two processes without Spark. A first run does not count.
"""

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pymysql

from benchmarks.mirrors import runner
from benchmarks.results import replace_part
from demo.embedded_stack.postgres import Postgres
from tests.support import mariadb
from tests.support.replayed_windows import pipeline_for
from tests.support.seeds import request_of, seed_job
from ticdc_replay import jobspec
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.drivers.load import run_load
from ticdc_replay.drivers.local import LocalRunner
from ticdc_replay.drivers.seed import run_seed
from ticdc_replay.mysql_protocol import arguments
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.seed.jobs import check_base
from ticdc_replay.stages.window.jobs import write_load_job

ROWS = (1_000_000, 3_000_000)
RUNS = 3
FILES = 4
GOAL = 1.3
CREATE = """CREATE TABLE `orders` (
  `id` bigint NOT NULL, `customer` int, `amount` decimal(12,2), `weight` double, `created` datetime(3), `mail` varchar(100),
  `note` varchar(200), PRIMARY KEY (`id`)
);
"""
NAMES = ("id", "customer", "amount", "weight", "created", "mail", "note")
_METADATA = (
    "Started dump at: x\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: 460000000000000000\n\tGTID:\n\n"
    "Finished dump at: y\n"
)


def main() -> None:
    """Measure and, at full size, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    programs = mariadb.programs()
    if programs is None:
        parser.error("there is no MariaDB for this machine")
    found = {rows: measured_engines(programs, rows, options.runs) for rows in options.rows}
    text = report(options.runs, found)
    print(text)
    if (tuple(options.rows), options.runs) == (ROWS, RUNS):
        replace_part("seed", text)


def measured_engines(programs: mariadb.Programs, rows: int, runs: int) -> dict[str, dict[str, list[float]]]:
    """Seconds by engine and way, for a dump of *rows* rows."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        dump, files = write_dump(folder / "dump", rows)
        print(f"{rows:,} rows, {sum(file.stat().st_size for file in files) / 1e6:.0f} MB of CSV", flush=True)
        server = {**mariadb.DURABLE, "innodb-buffer-pool-size": "2G", "innodb-log-file-size": "1G"}
        with mariadb.running(folder, programs, server) as connection:
            maria = measured(Maria(connection), folder, dump, files, runs)
        with Postgres(folder / "postgres") as postgres:
            pg = measured(Pg(postgres.create_database("seed")), folder, dump, files, runs)
    return {"MariaDB": maria, "PostgreSQL": pg}


def write_dump(folder: Path, rows: int) -> tuple[Path, list[Path]]:
    """A dump as Dumpling writes it by default, and its files of rows."""
    folder.mkdir()
    (folder / "metadata").write_text(_METADATA)
    (folder / "shop-schema-create.sql").write_text("CREATE DATABASE `shop`;\n")
    (folder / "shop.orders-schema.sql").write_text(CREATE)
    header = ",".join(f'"{name}"' for name in NAMES) + "\r\n"
    files = []
    for number in range(FILES):
        files.append(folder / f"shop.orders.{number:09d}.csv")
        with files[-1].open("w", newline="") as file:
            file.write(header)
            for at in range(number * rows // FILES, (number + 1) * rows // FILES):
                second, minute = at % 60, at // 60 % 60
                created = f"2026-01-{at // 86_400 % 28 + 1:02} {at // 3600 % 24:02}:{minute:02}:{second:02}.250"
                file.write(
                    f'{at},{at % 10_007},{at // 100}.{at % 100:02},{at / 8},"{created}","customer{at % 10_007}@example.com",'
                    f'"{f"note {at} " * 8}"\r\n'
                )
    return folder, files


class Maria:
    """LOAD DATA of one file after the other, in one session."""

    def __init__(self, server: Connection) -> None:
        self.connection = Connection("target", "mysql", server.host, server.port, server.login, server.password)
        self.section: dict[str, object] = {"type": "mysql", "name": "mirror", "connection": "target"}

    def empty(self) -> None:
        """Remove the mirror and its ledger."""
        self._run(
            "DROP DATABASE IF EXISTS hand", "DROP DATABASE IF EXISTS shop", "DROP DATABASE IF EXISTS _ticdc_replay"
        )

    def prepare(self) -> None:
        """Make an empty table like the mirror."""
        self._run("CREATE DATABASE hand", "CREATE TABLE hand.orders LIKE shop.orders")

    def by_hand(self, files: Sequence[Path]) -> None:
        """Copy *files* into that table."""
        columns = ", ".join(NAMES)
        self._run(
            *(
                f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE hand.orders CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' "
                f"OPTIONALLY ENCLOSED BY '\"' LINES TERMINATED BY '\\r\\n' IGNORE 1 LINES ({columns}) SET _commit_ts = 1"
                for file in files
            )
        )

    def _run(self, *statements: str) -> None:
        with (
            pymysql.connect(**arguments(self.connection, 3306), local_infile=True) as opened,
            opened.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
            opened.commit()


class Pg:
    """COPY of one file after the other, in one transaction."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        parts = urlsplit(dsn)
        address = (parts.hostname, parts.port, parts.username, parts.password, parts.path.lstrip("/"))
        self.connection = Connection("target", "postgres", *address)
        self.section: dict[str, object] = {"type": "postgres", "name": "mirror", "connection": "target"}

    def empty(self) -> None:
        """Remove the mirror and its ledger."""
        with psycopg.connect(self._dsn) as session:
            for schema in ("shop", "_ticdc_replay", "hand"):
                session.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())

    def prepare(self) -> None:
        """Make an empty table like the mirror."""
        with psycopg.connect(self._dsn) as session:
            session.execute("CREATE SCHEMA hand")
            session.execute("CREATE TABLE hand.orders (LIKE shop.orders INCLUDING ALL)")
            session.execute("ALTER TABLE hand.orders ALTER _commit_ts SET DEFAULT 1")

    def by_hand(self, files: Sequence[Path]) -> None:
        """Copy *files* into that table."""
        columns = ", ".join(NAMES)
        with psycopg.connect(self._dsn) as session, session.cursor() as cursor:
            for file in files:
                statement = f"COPY hand.orders ({columns}) FROM STDIN (FORMAT csv, HEADER true, NULL '\\N')"
                with cursor.copy(statement.encode()) as copy, file.open("rb") as source:
                    while chunk := source.read(1 << 20):
                        copy.write(chunk)


def measured(engine: Maria | Pg, folder: Path, dump: Path, files: Sequence[Path], runs: int) -> dict[str, list[float]]:
    """Seconds by way."""
    times: dict[str, list[float]] = {"read": [], "load": [], "seed": [], "by hand": []}
    with runner() as local:
        for number in range(runs + 1):
            engine.empty()
            place = folder / "pipeline"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            read, load = seeded(engine, place, dump, local)
            engine.prepare()
            theirs = _timed(lambda: engine.by_hand(files))
            print(f"{engine.section['type']}: read {read:.2f} s, load {load:.2f} s, by hand {theirs:.2f} s", flush=True)
            if number:
                for name, seconds in zip(times, (read, load, read + load, theirs), strict=True):
                    times[name].append(seconds)
    return times


def seeded(engine: Maria | Pg, folder: Path, dump: Path, local: LocalRunner) -> tuple[float, float]:
    """Seconds that the changelog takes, and its load."""
    with pipeline_for(folder, "unused:9092", "topic", targets=[engine.section]) as made:
        loaded = made.loaded
    with ReplayContext(loaded, Connections({"target": engine.connection})) as context:
        job, _ = seed_job(context, request_of(dump))
        read = _timed(lambda: run_seed(local, job, context.connections))
        check_base(context, job.run_hash)
        written = write_load_job(context, job.run_hash, "mirror")
        load = jobspec.decode(context.artifacts.get(written.uri.removeprefix(f"{context.artifacts_uri}/")))
        assert isinstance(load, jobspec.LoadJob)
        return read, _timed(lambda: run_load(local, load, context.connections))


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def report(runs: int, found: dict[int, dict[str, dict[str, list[float]]]]) -> str:
    """The results as Markdown."""
    lines = [
        f"`python -m benchmarks.seed`: rows of {len(NAMES)} columns in {FILES} CSV files, MariaDB {mariadb.VERSION} and "
        f"PostgreSQL, {os.cpu_count()} cores, Python {platform.python_version()}; medians of {runs} runs. The load average at "
        f"the end was {os.getloadavg()[0]:.1f}. What two jobs take before their first row weighs more in the smaller load.",
        "",
        "| engine | rows | changelog, s | load, s | seed, s | min – max s | by hand, s | min – max s | ratio | goal |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for rows, engines in found.items():
        for engine, times in engines.items():
            read, load, ours, theirs = (statistics.median(times[way]) for way in times)
            spans = [f"{min(times[way]):.2f} – {max(times[way]):.2f}" for way in ("seed", "by hand")]
            lines.append(
                f"| {engine} | {rows:,} | {read:.2f} | {load:.2f} | {ours:.2f} | {spans[0]} | {theirs:.2f} | {spans[1]} | "
                f"{ours / theirs:.2f} | ≤ {GOAL} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
