"""Changelog → lake tables, against what a person writes on the same engine for the same rows: a MERGE for a mirror, Parquet
files for a history.

``python -m benchmarks.lake`` runs it and writes its part of ``benchmarks/RESULTS.md``; with another number of rows it only
prints. Figures are medians of the runs, in turn; a first run of each does not count. Both mirrors must be equal in the end.
"""

import argparse
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from xxhash import xxh3_128_digest

from benchmarks.jobs import prepare_environment
from benchmarks.measure import Stage, measure
from benchmarks.results import replace_part
from demo.embedded_stack import jars
from ticdc_replay.changelog.cells.types import table_arrow_schema
from ticdc_replay.changelog.files.index import (
    ChangelogIndex,
    DataFile,
    DecodeReport,
    EventCounts,
    MessageCounts,
    TableVersion,
)
from ticdc_replay.changelog.files.layout import INDEX, changelog_root, data_folder
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.tables import Column, TableName, TableSchema
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import LoadJob
from ticdc_replay.schemas.resolve import version_of
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.targets.base import Mirror
from ticdc_replay.targets.load import load, open_target

ROWS = 1_000_000
LARGE = 20_000_000
FEW = 1_000
TIMES = 10
RUNS = 3
KINDS = ["iceberg", "delta"]
CASES = ["mirrors", "histories", "onto_large"]
FILES = 4
TYPES = {
    "id": ColumnType("bigint", declared=True),
    "name": ColumnType("varchar", length=40, declared=True),
    "amount": ColumnType("decimal", length=18, scale=2, declared=True),
    "ts": ColumnType("datetime", scale=6, declared=True),
    "h": ColumnType("char", length=16, declared=True),
    "st": ColumnType("int", declared=True),
    "d": ColumnType("double", declared=True),
    "dt": ColumnType("date", declared=True),
    "flag": ColumnType("tinyint", declared=True),
    "note": ColumnType("varchar", length=100, declared=True),
}
SCHEMA = TableSchema(TableName("shop", "orders"), tuple(Column(*each) for each in TYPES.items()), ("id",), (), 0)
NAMES = list(TYPES)
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,io.delta.sql.DeltaSparkSessionExtension"


def images(ids: np.ndarray[Any, Any], seed: int) -> pa.StructArray:
    """A row of ten columns for each of *ids*."""
    random, count = np.random.default_rng(seed), len(ids)
    amounts = pa.array(random.integers(0, 10**9, count)).cast(pa.decimal128(20, 0)).cast(pa.decimal128(22, 2))
    columns = [
        pa.array(ids, pa.int64()),
        pa.array([f"name-{each % 5000}" for each in range(count)]),
        amounts.cast(pa.decimal128(18, 2)),
        pa.array(random.integers(1_600_000_000_000_000, 1_700_000_000_000_000, count), pa.timestamp("us")),
        pa.array([f"{each:016x}" for each in random.integers(0, 2**62, count)]),
        pa.array(random.integers(0, 100, count), pa.int32()),
        pa.array(random.random(count)),
        pa.array(random.integers(18_000, 20_000, count), pa.int32()).cast(pa.date32()),
        pa.array(random.integers(0, 2, count), pa.int8()),
        pa.array([f"note {each}" for each in random.integers(0, 10**6, count)]),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(table_arrow_schema(SCHEMA).field("after").type))


class Window1:
    """A window in the artefacts: its changelog, and the same rows as plain Parquet for the peer."""

    def __init__(self, folder: Path, number: int, ids: np.ndarray[Any, Any], deletes: int) -> None:
        self.folder = folder
        self.window = Window(number * 1_000_000, (number + 1) * 1_000_000)
        self.run_hash = canonical.digest(f"bench {number} {len(ids)}".encode())
        self.plain = folder / f"plain-{number}-{len(ids)}"
        self.plain.mkdir(parents=True)
        self.rows = len(ids)
        self.deletes = deletes
        layout, files = table_arrow_schema(SCHEMA), []
        for at, part in enumerate(np.array_split(np.arange(len(ids)), FILES if len(ids) >= FILES else 1)):
            image, gone = images(ids[part], number * 100 + at), part < deletes
            commit_ts = pa.array(self.window.from_ts + part % 1_000_000, pa.int64())
            nothing = pa.nulls(len(part), layout.field("after").type)
            arrays = {
                "_op": pa.array(np.where(gone, "delete", "update")),
                "_commit_ts": commit_ts,
                "_topic": pa.array(["topic"] * len(part)),
                "_partition": pa.array(np.full(len(part), at), pa.int32()),
                "_offset": pa.array(np.arange(len(part)), pa.int64()),
                "_index": pa.array(np.zeros(len(part)), pa.int32()),
                "_key": pa.array([xxh3_128_digest(f"id={each}".encode()) for each in ids[part]], pa.binary(16)),
                "_partial": pa.array(np.zeros(len(part), bool)),
                "_split": pa.array(np.zeros(len(part), bool)),
                "before": pa.compute.if_else(pa.array(gone), image, nothing) if deletes else nothing,
                "after": pa.compute.if_else(pa.array(gone), nothing, image) if deletes else image,
            }
            table = pa.Table.from_arrays(
                [arrays.get(field.name, pa.nulls(len(part), field.type)).cast(field.type) for field in layout],
                schema=layout,
            )
            name = f"{data_folder(SCHEMA.name, version_of(SCHEMA))}/{at:03d}.parquet"
            path = folder / changelog_root(self.run_hash) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, path, compression="zstd", row_group_size=100_000)
            first, last = int(commit_ts[0].as_py()), int(commit_ts[-1].as_py())
            files.append(DataFile(name, len(part), path.stat().st_size, min(first, last), max(first, last), "topic"))
            plain = pa.Table.from_arrays([*image.flatten(), commit_ts, pa.array(~gone)], [*NAMES, "_commit_ts", "_put"])
            pq.write_table(plain, self.plain / f"{at}.parquet", compression="zstd")
        self.index = ChangelogIndex(
            pipeline="bench",
            run_hash=self.run_hash,
            input_hash="0" * 64,
            selection=("*.*",),
            library_version="0",
            window=self.window,
            ranges=(),
            topic_ids={"topic": "id"},
            order="commit_ts",
            tables=(TableVersion(SCHEMA, version_of(SCHEMA), True, tuple(files), len(ids)),),
            ddl=(),
            changes=(),
            quarantine_files=(),
            reference_files=(),
            sparse_index_files=(),
            search=SEARCH,
            report=DecodeReport(
                messages=MessageCounts(),
                events=EventCounts(),
                quarantine_reasons={},
                watermark=None,
                undeclared_tables=(),
            ),
        )
        (folder / changelog_root(self.run_hash) / INDEX).write_bytes(canonical.encode(self.index))

    def job(self, target: dict[str, object], *, reload: bool) -> LoadJob:
        """The job that loads it into *target*."""
        return LoadJob(
            library_version="0",
            pipeline="bench",
            artifacts=self.folder.as_uri(),
            artifacts_connection=None,
            index=f"{changelog_root(self.run_hash)}/{INDEX}",
            run_hash=self.run_hash,
            window=self.window,
            target=target,
            tables=("*.*",),
            target_value="stop",
            ddl="apply",
            reload=reload,
        )


def session(folder: Path) -> SparkSession:
    """Spark with two cores and the jars of lake tables."""
    files = sorted(jars.fetch(jars.LAKE, print).glob("*.jar"))
    settings = {
        "spark.jars": ",".join(map(str, files)),
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


class Lake:
    """The tables of one format: that of the mirror, and its twin for the peer."""

    def __init__(self, spark: SparkSession, kind: str, folder: Path) -> None:
        self.spark, self.kind, self.folder = spark, kind, folder
        self.section: dict[str, object] = {"type": kind, "name": "lake", "ledger": (folder / f"ledger-{kind}").as_uri()}
        self._catalog = f"lake_{canonical.digest(str(folder).encode())[:8]}"
        if kind == "iceberg":
            catalog = f"spark.sql.catalog.{self._catalog}"
            settings = {"type": "hadoop", "warehouse": (folder / "iceberg").as_uri(), "cache-enabled": "false"}
            for name, value in settings.items():
                spark.conf.set(f"{catalog}.{name}", value)
            spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
        self.section |= {"catalog": self._catalog} if kind == "iceberg" else {"path": (folder / "delta").as_uri()}
        self.mine, self.twin = self._name("shop"), self._name("twin")

    def drop(self) -> None:
        """Remove all files."""
        shutil.rmtree(self.folder)

    def _name(self, schema: str) -> str:
        if self.kind == "iceberg":
            return f"{self._catalog}.{schema}.orders"
        return f"delta.`{(self.folder / 'delta').as_uri()}/{schema}/orders`"

    def load(self, window: Window1, **keys: str) -> None:
        """Load *window* as the product does; *keys* are more of the target."""
        job = window.job(self.section | keys, reload=False)
        load(job, Connections(), SparkRunner(self.spark).run, 2, SparkSql(self.spark))

    def files_by_hand(self, window: Window1) -> None:
        """The row versions of *window* as Parquet files, by Spark."""
        files = (window.folder / changelog_root(window.run_hash)).glob("data/**/*.parquet")
        cells = [f"coalesce(after.{name}, before.{name}) AS {name}" for name in NAMES]
        cells += ["_commit_ts", "_op", "timestamp_millis(shiftright(_commit_ts, 18)) AS _commit_time"]
        cells += ["_topic", "_partition", "_offset", "_index"]
        rows = self.spark.read.parquet(*[f"file://{each}" for each in files]).selectExpr(*cells)
        rows.write.option("compression", "zstd").parquet((self.folder / f"files-{window.run_hash}").as_uri())

    def fill(self, rows: int, partitioned: bool) -> None:
        """Make both tables with *rows* rows, as a person who has a dump does."""
        columns = (
            "id bigint, name string, amount decimal(18,2), ts timestamp_ntz, h string, st int, d double, dt date, flag int, "
            "note string, _commit_ts bigint NOT NULL"
        )
        properties = "'ticdc-replay.key' = '[\"id\"]', "
        if self.kind == "iceberg":
            properties += (
                "'format-version' = '3', 'write.merge.mode' = 'merge-on-read', 'write.distribution-mode' = 'none', "
                "'write.merge.distribution-mode' = 'none', 'write.update.mode' = 'merge-on-read', "
                "'write.delete.mode' = 'merge-on-read', 'write.parquet.compression-codec' = 'zstd'"
            )
        else:
            properties += (
                "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name', "
                "'delta.feature.timestampNtz' = 'supported'"
            )
        part = f" PARTITIONED BY (truncate({rows // 100}, id))" if partitioned and self.kind == "iceberg" else ""
        made = (
            "id, concat('name-', id % 5000) AS name, CAST(id % 1000000 AS decimal(18,2)) AS amount, "
            "CAST(timestamp_seconds(1600000000 + id % 100000000) AS timestamp_ntz) AS ts, "
            "lpad(hex(id * 2654435761), 16, '0') AS h, "
            "CAST(id % 100 AS int) AS st, id / 7.0D AS d, date_add(DATE '2019-01-01', CAST(id % 2000 AS int)) AS dt, "
            "CAST(id % 2 AS int) AS flag, concat('note ', id % 1000000) AS note, 0L AS _commit_ts"
        )
        for name in (self.mine, self.twin):
            if self.kind == "iceberg":
                self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rsplit('.', 1)[0]}")
            self.spark.sql(f"CREATE TABLE {name} ({columns}) USING {self.kind}{part} TBLPROPERTIES ({properties})")
            self.spark.range(0, rows, 1, max(4, rows // 1_000_000)).createOrReplaceTempView("ids")
            self.spark.sql(f"INSERT INTO {name} SELECT {made} FROM ids")
        target = open_target(read_section(self.section), Connections())
        assert isinstance(target, Mirror)
        target.raise_floor("bench", TableName("shop", "orders"), 1)

    def by_hand(self, window: Window1) -> None:
        """The MERGE that a person writes for rows that are folded already."""
        self.spark.read.parquet(window.plain.as_uri()).createOrReplaceTempView("incoming")
        sets = ", ".join(f"t.{name} = s.{name}" for name in [*NAMES[1:], "_commit_ts"])
        names = ", ".join([*NAMES, "_commit_ts"])
        values = ", ".join(f"s.{name}" for name in [*NAMES, "_commit_ts"])
        self.spark.sql(
            f"MERGE INTO {self.twin} t USING incoming s ON t.id = s.id WHEN MATCHED AND NOT s._put THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} WHEN NOT MATCHED AND s._put THEN INSERT ({names}) VALUES ({values})"
        ).collect()

    def require_equal(self) -> None:
        """Fail if the two tables differ."""
        cells = ", ".join([*NAMES, "_commit_ts"])
        found = [
            self.spark.sql(f"SELECT count(*), sum(hash({cells})), sum(_commit_ts) FROM {name}").collect()[0]
            for name in (self.mine, self.twin)
        ]
        assert found[0] == found[1], found


class Case(NamedTuple):
    """One line of the table: what was loaded, into which format, and the runs of both ways; the first ones do not count."""

    name: str
    rows: int
    load: Stage
    hand: Stage | None

    @property
    def seconds(self) -> float:
        return median(self.load.seconds[1:] or self.load.seconds)

    def line(self) -> str:
        cells = [f"{self.seconds:.2f}", "", "", f"{self.seconds / self.rows * 1e6:,.1f}", f"{self.load.peak:,.0f}"]
        if self.hand is not None:
            hand = median(self.hand.seconds[1:])
            cells[1:3] = f"{hand:.2f}", f"{self.seconds / hand:.2f}"
        return f"| {self.name} | {' | '.join(cells)} |"


def compare(
    name: str, windows: Iterable[Window1], run: Callable[[Window1], None], hand: Callable[[Window1], None] | None
) -> Case:
    """*run* of each of *windows*, and *hand* of the same one in turn."""
    mine, theirs, rows = Stage(name), Stage(name), 0
    for window in windows:
        rows = window.rows
        measure(mine, partial(run, window))
        if hand is not None:
            measure(theirs, partial(hand, window))
        print(f"  {name}: {mine.seconds[-1]:.2f} s, by hand {theirs.seconds[-1:]} s", flush=True)
    return Case(name, rows, mine, theirs if hand is not None else None)


class Bench:
    """All cases, in one session."""

    def __init__(self, folder: Path, rows: int, large: int, runs: int) -> None:
        self.folder, self.rows, self.large, self.runs = folder, rows, large, runs
        self.spark = session(folder)
        self.cases: list[Case] = []
        self._random = np.random.default_rng(7)
        self._number = 1

    def window(self, ids: np.ndarray[Any, Any], deletes: int) -> Window1:
        """A window of rows with *ids*; the first *deletes* of each file are deleted."""
        self._number += 1
        return Window1(self.folder / "artifacts", self._number, ids, deletes)

    def changed(self, rows: int, onto: int) -> Window1:
        """Of *rows*, four fifths are rows that a table of *onto* rows has, of which some are deleted, the rest is new."""
        old, at = self._random.permutation(onto)[: rows * 8 // 10], onto * (2 + self._number)
        return self.window(np.concatenate([old, np.arange(rows - len(old)) + at]), rows // 10)

    def windows(self, make: Callable[[], Window1]) -> Iterator[Window1]:
        """One window more than runs count, each made before it is loaded."""
        return (make() for _ in range(self.runs + 1))

    def mirrors(self, kind: str) -> None:
        """As many changed rows as the table has, and ten times as many."""
        for rows, runs in ((self.rows, self.runs), (self.rows * TIMES, 0)):
            lake = Lake(self.spark, kind, self.folder / f"equal-{rows}")
            lake.fill(rows, partitioned=False)
            hand = lake.by_hand if runs else None
            windows = (self.changed(rows, rows) for _ in range(runs + 1))
            self.cases.append(compare(f"{kind}, mirror | {rows:,} onto {rows:,}", windows, lake.load, hand))
            if runs:
                lake.require_equal()
            lake.drop()

    def histories(self, kind: str) -> None:
        """Row versions that are new, as a table and as files."""
        lake = Lake(self.spark, kind, self.folder / "history")
        run = partial(lake.load, mode="history", schema="history")
        for rows, runs in ((self.rows, self.runs), (self.rows * TIMES, 0)):
            windows = (self.changed(rows, rows) for _ in range(runs + 1))
            hand = lake.files_by_hand if runs else None
            self.cases.append(compare(f"{kind}, history | {rows:,} appended", windows, run, hand))

    def onto_large(self, kind: str) -> None:
        """Rows of one of a hundred partitions and new ones, and few rows anywhere."""
        lake = Lake(self.spark, kind, self.folder / "large")
        lake.fill(self.large, partitioned=True)

        def one_partition() -> Window1:
            new = np.arange(self.rows - self.large // 100) + self.large * (2 + self._number)
            return self.window(np.concatenate([np.arange(self.large // 100), new]), 0)

        name = f"{kind}, mirror | {self.rows:,} onto 1 % of {self.large:,}"
        self.cases.append(compare(name, self.windows(one_partition), lake.load, lake.by_hand))

        def few_rows() -> Window1:
            return self.window(self._random.choice(self.large, FEW, replace=False), FEW // 10)

        name = f"{kind}, mirror | {FEW:,} onto {self.large:,}"
        self.cases.append(compare(name, self.windows(few_rows), lake.load, lake.by_hand))
        lake.require_equal()
        lake.drop()


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=ROWS)
    arguments.add_argument("--large", type=int, default=LARGE)
    arguments.add_argument("--runs", type=int, default=RUNS)
    arguments.add_argument("--kinds", nargs="+", default=KINDS)
    arguments.add_argument("--cases", nargs="+", default=CASES)
    options = arguments.parse_args()
    prepare_environment()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        bench = Bench(Path(name), options.rows, options.large, options.runs)
        for case in options.cases:
            for kind in options.kinds:
                getattr(bench, case)(kind)
        bench.spark.stop()
    lines = [
        f"`python -m benchmarks.lake`: rows of 10 columns, medians of {options.runs} runs, {os.cpu_count()} cores, `local[2]`, "
        f"Python {platform.python_version()}. With {TIMES} times the rows, one run. By hand: a MERGE of the folded rows; for a "
        "history, the same rows as Parquet files of Spark.",
        "",
        "| target | rows | s | by hand | ratio | µs per row | peak MB of a worker |",
        "|---|---|---|---|---|---|---|",
        *(case.line() for case in bench.cases),
    ]
    text = "\n".join(lines)
    print(text)
    if (options.rows, options.large, options.runs, options.kinds, options.cases) == (ROWS, LARGE, RUNS, KINDS, CASES):
        replace_part("lake", text)


if __name__ == "__main__":
    main()
