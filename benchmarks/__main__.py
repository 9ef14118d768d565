"""Kafka → changelog → PostgreSQL on one million events, against its own parts and against PostgreSQL's COPY by hand.

``make bench`` runs it and writes ``benchmarks/RESULTS.md``. Figures are medians of the runs; ratios are those of medians of one
call, since machines drift. Peak memory is the largest resident set of one Python worker.
"""

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from psycopg import sql
from pyspark.sql import SparkSession

from benchmarks import by_hand, parts
from benchmarks.measure import Stage, measure
from benchmarks.pinning import manifest_name, pin_everything
from benchmarks.results import write_results
from benchmarks.workload import publish, repeated
from demo.embedded_stack import java
from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.postgres import Postgres
from ticdc_replay import __version__
from ticdc_replay.captures import Capture
from ticdc_replay.changelog.layout import INDEX
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.config.pipeline import LimitsSection
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.jobspec import DecodeJob, Limits, LoadJob
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.spark.decode import run_decode
from ticdc_replay.spark.load import run_load
from ticdc_replay.spark.session import open_session

CAPTURE = Path(__file__).parent / "captures" / "open"
TOPIC = "workload"
PARTITIONS = 4
PROCESSES = 2
MIRROR = sql.Identifier("shop", "orders")


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--runs", type=int, default=3)
    options = arguments.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(java.find_home())
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,
        Kafka(Path(folder) / "kafka") as kafka,
        Postgres(Path(folder) / "postgres") as postgres,
    ):
        Benchmark(Path(folder), kafka.bootstrap, postgres, options.runs).run(options.events)


class Benchmark:
    """One benchmark run in *folder*."""

    def __init__(self, folder: Path, bootstrap: str, postgres: Postgres, runs: int) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.runs = runs
        self.dsn = postgres.dsn
        self.artifacts = f"file://{folder}/artifacts/bench"
        self.connections = Connections(
            {
                "kafka": Connection("kafka", "kafka", extra={"bootstrap.servers": bootstrap}),
                "postgres": Connection(
                    "postgres",
                    "postgres",
                    postgres.host,
                    postgres.port,
                    postgres.user,
                    postgres.password,
                    postgres.database,
                ),
            }
        )
        self.changefeed = Changefeed(protocol="open-protocol", topic=TOPIC, timezone="Asia/Shanghai")
        self.stages = {
            name: Stage(name)
            for name in (
                "consume", "decode to Arrow", "write Parquet", "Kafka → changelog",
                "changelog → PostgreSQL", "COPY, delete and insert by hand",
            )
        }  # fmt: skip

    def run(self, events: int) -> None:
        """Measure every stage ``runs`` times after one run that is not counted."""
        capture = list(Capture(CAPTURE).messages())
        per_repeat = sum((message.key or b"").count(b'"t":1}') for message in capture)
        messages = list(repeated(capture, max(1, round(events / per_repeat))))
        size = sum(len(message.key or b"") + len(message.value or b"") for message in messages)
        rows = sum((message.key or b"").count(b'"t":1}') for message in messages)
        print(f"publishing {rows:,} events ...", flush=True)
        publish(self.bootstrap, TOPIC, messages, PARTITIONS)
        messages.clear()
        manifest = pin_everything(self.bootstrap, TOPIC, self.artifacts)
        self._parts(manifest.ranges())
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        self._replay(open_session("bench"), manifest)
        spark.stop()
        stage = self.stages
        alone = sum(stage[name].median for name in ("consume", "decode to Arrow", "write Parquet"))
        ratios = [
            (
                "Kafka → changelog / sum of consume, decode, write alone",
                stage["Kafka → changelog"].median / alone,
                "≤ 1.6",
            ),
            (
                "changelog → PostgreSQL / COPY, delete and insert by hand",
                stage["changelog → PostgreSQL"].median / stage["COPY, delete and insert by hand"].median,
                "≤ 1.5",
            ),
            (
                "Kafka → changelog, rate / consume, rate",
                stage["consume"].median / stage["Kafka → changelog"].median,
                "",
            ),
        ]
        print(write_results(list(stage.values()), rows, size, ratios, "make bench"))

    def _parts(self, ranges: list[OffsetRange]) -> None:
        halves = [ranges[at::PROCESSES] for at in range(PROCESSES)]
        history = self._history()
        # One executor per half: what a process prepared is used by the same process.
        pools = [ProcessPoolExecutor(1, get_context("spawn")) for _ in halves]
        try:

            def both(name: str, *calls: partial[int]) -> None:
                stage = self.stages[name]
                for run in range(self.runs + 1):
                    target = stage if run else Stage("warm-up")
                    measure(
                        target,
                        lambda: [
                            job.result() for job in [pool.submit(call) for pool, call in zip(pools, calls, strict=True)]
                        ],
                    )
                print(f"{name}: {stage.median:.2f} s", flush=True)

            both("consume", *[partial(parts.consume, self.bootstrap, half) for half in halves])
            for job in [
                pool.submit(parts.prepare, self.bootstrap, half, self.changefeed, history)
                for pool, half in zip(pools, halves, strict=True)
            ]:
                job.result()
            both("decode to Arrow", *[partial(parts.decode, self.changefeed, history) for _ in halves])
            both("write Parquet", *[partial(parts.write, f"{self.folder}/part{at}.parquet") for at in range(PROCESSES)])
        finally:
            for pool in pools:
                pool.shutdown()

    def _history(self) -> SchemaHistory:
        from ticdc_replay.codecs.registry import codec_for
        from ticdc_replay.domain.events import DdlEvent

        codec = codec_for(self.changefeed, 1 << 28)
        events = [event for message in Capture(CAPTURE).messages() for event in codec.decode(message)]
        return SchemaHistory().with_ddls([event for event in events if isinstance(event, DdlEvent)])

    def _replay(self, spark: SparkSession, manifest: Manifest) -> None:
        dump = self.folder / "mirror.csv"
        for run in range(self.runs + 1):
            counted = run > 0
            job = self._decode_job(manifest, run)
            stage = self.stages["Kafka → changelog"] if counted else Stage("warm-up")
            measure(stage, partial(run_decode, spark, job, self.connections))
            self._drop_mirror()
            stage = self.stages["changelog → PostgreSQL"] if counted else Stage("warm-up")
            measure(stage, partial(run_load, spark, self._load_job(job, manifest), self.connections))
            if not counted:
                print(f"{by_hand.export(self.dsn, MIRROR, dump):,} rows in the mirror", flush=True)
            by_hand.create_target(self.dsn, MIRROR)
            stage = self.stages["COPY, delete and insert by hand"] if counted else Stage("warm-up")
            measure(stage, partial(by_hand.copy_and_replace, self.dsn, dump))

    def _drop_mirror(self) -> None:
        import psycopg

        with psycopg.connect(self.dsn) as connection:
            connection.execute("DROP SCHEMA IF EXISTS shop CASCADE")
            connection.execute("DROP SCHEMA IF EXISTS _ticdc_replay CASCADE")

    def _decode_job(self, manifest: Manifest, run: int) -> DecodeJob:
        return DecodeJob(
            library_version=f"{__version__}-run{run}",
            pipeline="bench",
            artifacts=self.artifacts,
            artifacts_connection=None,
            kafka_connection="kafka",
            claim_check_connection=None,
            manifest=manifest_name(manifest),
            input_hash=manifest.input_hash,
            changefeed=self.changefeed,
            tables=("*.*",),
            limits=Limits(**LimitsSection().model_dump()),
        )

    def _load_job(self, decode: DecodeJob, manifest: Manifest) -> LoadJob:
        return LoadJob(
            library_version=__version__,
            pipeline="bench",
            artifacts=self.artifacts,
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
