"""Changelog → lake tables against a MERGE by hand, on the same engine, table and rows.

``python -m benchmarks.lake`` runs it and writes its part of ``benchmarks/RESULTS.md``; with another number of rows it only
prints. Figures are medians of the runs, in turn; a first run of each does not count.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from xxhash import xxh3_128_digest

from benchmarks.jobs import prepare_environment
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
from ticdc_replay.spark.tasks import run_tasks
from ticdc_replay.targets.base import Mirror
from ticdc_replay.targets.load import load, open_target

ROWS = 1_000_000
LARGE = 20_000_000
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
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": (folder / "iceberg").as_uri(),
        "spark.sql.catalog.lake.cache-enabled": "false",
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
        self.section |= {"catalog": "lake"} if kind == "iceberg" else {"path": (folder / "delta").as_uri()}
        self.mine, self.twin = self._name("shop"), self._name("twin")

    def _name(self, schema: str) -> str:
        if self.kind == "iceberg":
            return f"lake.{schema}.orders"
        return f"delta.`{(self.folder / 'delta').as_uri()}/{schema}/orders`"

    def load(self, window: Window1) -> None:
        """Load *window* as the product does."""
        job = window.job(self.section, reload=False)
        load(job, Connections(), partial(run_tasks, self.spark), 2, SparkSql(self.spark))

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


def timed(run: Callable[[], None]) -> float:
    """Seconds that *run* takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def compare(lake: Lake, windows: list[Window1]) -> tuple[float, float]:
    """Medians of our load and of the MERGE by hand, in turn over *windows*; the first does not count."""
    mine, hand = [], []
    for window in windows:
        mine.append(timed(partial(lake.load, window)))
        hand.append(timed(partial(lake.by_hand, window)))
        print(f"  {lake.kind} {window.rows:,} rows: {mine[-1]:.2f} s, by hand {hand[-1]:.2f} s", flush=True)
    lake.require_equal()
    return median(mine[1:]), median(hand[1:])


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=ROWS)
    arguments.add_argument("--large", type=int, default=LARGE)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--kinds", nargs="+", default=["iceberg", "delta"])
    options = arguments.parse_args()
    prepare_environment()
    lines = ["| rows onto rows | format | load | MERGE by hand | ratio |", "|---|---|---|---|---|"]
    random = np.random.default_rng(7)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        spark = session(folder)
        number = 1

        def window(ids: np.ndarray[Any, Any], deletes: int) -> Window1:
            nonlocal number
            number += 1
            return Window1(folder / "artifacts", number, ids, deletes)

        rows, large = options.rows, options.large
        for kind in options.kinds:
            lake = Lake(spark, kind, folder / "equal")
            lake.fill(rows, partitioned=False)
            every = [
                window(
                    np.concatenate(
                        [random.permutation(rows)[: rows * 8 // 10], np.arange(rows // 5) + rows * (2 + at)]
                    ),
                    rows // 10,
                )
                for at in range(options.runs + 1)
            ]
            lines.append(_line(f"{rows:,} onto {rows:,}", kind, *compare(lake, every)))
        for kind in options.kinds:
            lake = Lake(spark, kind, folder / "large")
            lake.section["name"] = "large"
            if kind == "iceberg":
                spark.conf.set("spark.sql.catalog.big", "org.apache.iceberg.spark.SparkCatalog")
                spark.conf.set("spark.sql.catalog.big.type", "hadoop")
                spark.conf.set("spark.sql.catalog.big.warehouse", (folder / "big").as_uri())
                spark.conf.set("spark.sql.catalog.big.cache-enabled", "false")
                lake.section["catalog"] = "big"
                lake.mine, lake.twin = "big.shop.orders", "big.twin.orders"
            lake.fill(large, partitioned=True)
            one = [
                window(np.concatenate([np.arange(large // 100), np.arange(rows - large // 100) + large * (2 + at)]), 0)
                for at in range(options.runs + 1)
            ]
            lines.append(_line(f"{rows:,} onto 1 % of {large:,}", kind, *compare(lake, one)))
            few = [window(random.choice(large, 1_000, replace=False), 100) for _ in range(options.runs + 1)]
            lines.append(_line(f"1,000 onto {large:,}", kind, *compare(lake, few)))
        spark.stop()
    text = "\n".join(lines)
    print(text)
    if (options.rows, options.large) == (ROWS, LARGE):
        replace_part("lake", text)


def _line(what: str, kind: str, mine: float, hand: float) -> str:
    return f"| {what} | {kind} | {mine:.2f} s | {hand:.2f} s | {mine / hand:.2f} |"


if __name__ == "__main__":
    main()
