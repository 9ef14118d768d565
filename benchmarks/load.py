"""Changelog → PostgreSQL against COPY, delete and insert by hand, and Kafka → changelog against its own parts run alone.

``python -m benchmarks.load`` runs it with the Open workload and pure Python, and writes its part of ``benchmarks/RESULTS.md``;
with another number of events it only prints. Figures are medians of the runs; a first run of each does not count.
"""

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession

from benchmarks import by_hand, parts
from benchmarks.jobs import DECODERS, connections, decode_job, prepare_environment, session
from benchmarks.measure import Stage, measure
from benchmarks.pinning import pin_everything
from benchmarks.plain import PROCESSES
from benchmarks.results import replace_part, stages_table
from benchmarks.workload import OPEN, Published, publish
from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.postgres import Postgres
from ticdc_replay import __version__
from ticdc_replay.changelog.files.layout import INDEX
from ticdc_replay.decode.plan.schema_pass import lookup_in
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.load import run_load
from ticdc_replay.jobspec import DecodeJob, LoadJob
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.spark.tasks import SparkRunner

EVENTS = 1_000_000
TOPIC = "workload"
MIRROR = sql.Identifier("shop", "orders")
STAGES = (
    "consume",
    "decode to Arrow",
    "write Parquet",
    "Kafka → changelog",
    "changelog → PostgreSQL",
    "COPY, delete and insert by hand",
)


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=EVENTS)
    arguments.add_argument("--runs", type=int, default=3)
    options = arguments.parse_args()
    prepare_environment()
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,
        Kafka(Path(folder) / "kafka") as kafka,
        Postgres(Path(folder) / "postgres") as postgres,
    ):
        benchmark = Benchmark(Path(folder), kafka.bootstrap, postgres, options.runs)
        text = benchmark.run(publish(kafka.bootstrap, TOPIC, OPEN, options.events))
    print(text)
    if options.events == EVENTS:
        replace_part("load", text)


class Benchmark:
    """One benchmark run in *folder*."""

    def __init__(self, folder: Path, bootstrap: str, postgres: Postgres, runs: int) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.runs = runs
        self.dsn = postgres.dsn
        self.artifacts = f"file://{folder}/artifacts/bench"
        target = Connection(
            "postgres", "postgres", postgres.host, postgres.port, postgres.user, postgres.password, postgres.database
        )
        self.connections = connections(bootstrap, target)
        self.stages = {name: Stage(name) for name in STAGES}

    def run(self, published: Published) -> str:
        """Measure every stage ``runs`` times after one run that is not counted; the results as Markdown."""
        manifest = pin_everything(self.bootstrap, TOPIC, self.artifacts)
        self._parts(manifest.ranges())
        with session("bench", DECODERS["python"]) as spark:
            self._replay(spark, manifest)
        took = {name: stage.median for name, stage in self.stages.items()}
        alone = sum(took[name] for name in STAGES[:3])
        ratios = [
            ("Kafka → changelog / sum of consume, decode, write alone", took["Kafka → changelog"] / alone, "≤ 1.6"),
            (
                "changelog → PostgreSQL / COPY, delete and insert by hand",
                took["changelog → PostgreSQL"] / took["COPY, delete and insert by hand"],
                "≤ 1.5",
            ),
        ]
        command = "python -m benchmarks.load"
        return stages_table(list(self.stages.values()), published.rows, published.size, ratios, command)

    def _parts(self, ranges: list[OffsetRange]) -> None:
        halves = [ranges[at::PROCESSES] for at in range(PROCESSES)]
        history = lookup_in(OPEN.capture, 1 << 28).history
        # One executor per half: what a process prepared is used by the same process.
        pools = [ProcessPoolExecutor(1, get_context("spawn")) for _ in halves]
        try:

            def both(name: str, *calls: partial[int]) -> None:
                stage = self.stages[name]
                for run in range(self.runs + 1):
                    target = stage if run else Stage("first")
                    measure(
                        target,
                        lambda: [
                            job.result() for job in [pool.submit(call) for pool, call in zip(pools, calls, strict=True)]
                        ],
                    )
                print(f"{name}: {stage.median:.2f} s", flush=True)

            both("consume", *[partial(parts.consume, self.bootstrap, half) for half in halves])
            for job in [
                pool.submit(parts.prepare, self.bootstrap, half, OPEN.changefeed, history)
                for pool, half in zip(pools, halves, strict=True)
            ]:
                job.result()
            both("decode to Arrow", *[partial(parts.decode, OPEN.changefeed, history) for _ in halves])
            both("write Parquet", *[partial(parts.write, f"{self.folder}/part{at}.parquet") for at in range(PROCESSES)])
        finally:
            for pool in pools:
                pool.shutdown()

    def _replay(self, spark: SparkSession, manifest: Manifest) -> None:
        dump = self.folder / "mirror.csv"
        for run in range(self.runs + 1):

            def stage(name: str, counted: bool = run > 0) -> Stage:
                return self.stages[name] if counted else Stage("first")

            job = decode_job(manifest, OPEN.changefeed, self.artifacts, f"run{run}")
            measure(stage("Kafka → changelog"), partial(run_decode, SparkRunner(spark), job, self.connections))
            self._drop_mirror()
            load = partial(run_load, SparkRunner(spark), _load_job(job, manifest), self.connections)
            measure(stage("changelog → PostgreSQL"), load)
            if not run:
                print(f"{by_hand.export(self.dsn, MIRROR, dump):,} rows in the mirror", flush=True)
            by_hand.create_target(self.dsn, MIRROR)
            measure(stage("COPY, delete and insert by hand"), partial(by_hand.copy_and_replace, self.dsn, dump))

    def _drop_mirror(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute("DROP SCHEMA IF EXISTS shop CASCADE")
            connection.execute("DROP SCHEMA IF EXISTS _ticdc_replay CASCADE")


def _load_job(decode: DecodeJob, manifest: Manifest) -> LoadJob:
    return LoadJob(
        library_version=__version__,
        pipeline="bench",
        artifacts=decode.artifacts,
        artifacts_connection=None,
        index=f"{decode.changelog_root}/{INDEX}",
        run_hash=decode.run_hash,
        window=manifest.window,
        target={"name": "mirror", "type": "postgres", "connection": "postgres"},
        tables=("*.*",),
        target_value="stop",
        ddl="apply",
    )


if __name__ == "__main__":
    main()
