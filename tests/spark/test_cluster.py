"""The jobs on a standalone cluster whose executors share nothing with the driver but Kafka and S3.

Executors run a Python that has no package at all: what they need comes in the archive of ``scripts/package-executors``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import psycopg
import pyarrow.parquet as pq
import pytest
import yaml

from demo.embedded_stack.ports import free_ports
from demo.embedded_stack.spark import SparkCluster, SparkConnect
from demo.sample import contents
from demo.sample.publish import publish as publish_sample
from demo.verify import verify
from tests.conftest import s3_client_of
from tests.support.waiting import PATIENCE_S
from ticdc_replay import jobspec
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.cli.submit import submit
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.progress import SECONDS_VARIABLE
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.progress import brief
from ticdc_replay.reconcile.judge.report import ReconciliationReport
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.stages.window.watermark import require_watermark
from ticdc_replay.storage import open_store
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.reconcile import record_scan, survey, take_inventory, write_reconcile_job
from ticdc_replay.store_stages.reconcile_report import publish_reconciliation
from ticdc_replay.submit.private_file import private_file
from ticdc_replay.submit.properties import job_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka
    from demo.embedded_stack.postgres import Postgres
    from demo.embedded_stack.s3 import MotoServer

# Each time, test_secrets.py and tests/airflow run jobs by spark-submit, and test_connect.py at a server: on one machine.
pytestmark = [pytest.mark.spark, pytest.mark.integration]

CHECKOUT = Path(__file__).resolve().parents[2]
WINDOWS = contents.windows()
WHOLE = Window(WINDOWS[0].from_ts, WINDOWS[-1].to_ts)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make package`` makes for executors."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, CHECKOUT / "scripts" / "package-executors", "--out", out], check=True, timeout=PATIENCE_S
    )
    (made,) = out.glob("ticdc-replay-executors-*.tar.gz")
    assert list(out.glob("ticdc_replay-*.whl")), "Airflow's machines install the wheel beside it"
    return made


@pytest.fixture(scope="module")
def cluster(servers_folder: Path, java_home: Path) -> Iterator[SparkCluster]:
    with SparkCluster(servers_folder / "spark") as started:
        yield started


class Deployment:
    """A pipeline and its store on the sample, with everything in S3 and a Kafka that asks for a password."""

    def __init__(self, folder: Path, kafka: Kafka, s3: MotoServer, database: str, state: Path) -> None:
        self.folder, self._kafka, self._s3 = folder, kafka, s3
        self.dsn = database
        self.bucket = f"cluster-{uuid4().hex[:8]}"
        client = s3_client_of(s3)
        client.create_bucket(Bucket=self.bucket)
        self.published = publish_sample(kafka.bootstrap, self.bucket, client, self.bucket, "claim-check/")
        at = psycopg.conninfo.conninfo_to_dict(database)
        self.connections = Connections(
            {
                "kafka": Connection(
                    "kafka",
                    "kafka",
                    extra={
                        "bootstrap.servers": kafka.sasl_bootstrap,
                        "security.protocol": "SASL_PLAINTEXT",
                        "sasl.mechanism": kafka.sasl_mechanism,
                        "sasl.username": kafka.sasl_username,
                        "sasl.password": kafka.sasl_password,
                    },
                ),
                "s3": Connection(
                    "s3",
                    "aws",
                    login=s3.access_key,
                    password=s3.secret_key,
                    extra={"endpoint_url": s3.endpoint, "region_name": s3.region},
                ),
                "warehouse": Connection(
                    "warehouse",
                    "postgres",
                    str(at["host"]),
                    int(str(at["port"])),
                    str(at["user"]),
                    str(at["password"]),
                    str(at["dbname"]),
                ),
                "state": Connection("state", "sqlite", host=str(state)),
            },
            artifacts="s3",
        )
        self.write(f"s3://{self.bucket}/artifacts", {})

    @property
    def secrets(self) -> list[bytes]:
        """What must stand nowhere."""
        return [self._s3.secret_key.encode(), self._kafka.sasl_password.encode()]

    def write(self, artifacts: str, spark: dict[str, str]) -> None:
        """The files of the deployment, with *spark* as ``spark.conf``."""
        uri = f"s3://{self.bucket}/claim-check"
        places = {"artifacts": artifacts, "schedule": {"start": "2026-03-02T00:00:00Z"}, "spark": {"conf": spark}}
        connections = {"artifacts": "s3", "state": "state"} if artifacts.startswith("s3:") else {}
        pipeline: dict[str, Any] = {
            "name": "shop",
            "changefeed": {
                "sink_uri": f"kafka://broker:9092/{self.bucket}?protocol=open-protocol&partition-num=3&max-message-bytes=4000",
                "timezone": "Asia/Shanghai",
                "config": "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'\n"
                f"claim-check-storage-uri = '{uri}'\n",
            },
            "connections": {"kafka": "kafka", "claim_check": "s3", **connections},
            "limits": {"split_bytes": 1_500_000},
            "targets": [
                {"name": "warehouse", "type": "postgres", "connection": "warehouse"},
                {"name": "lake", "type": "parquet", "uri": f"s3://{self.bucket}/lake", "connection": "s3"},
            ],
        }
        store = {
            "name": "claims",
            "uri": uri,
            "pipelines": ["shop"],
            "owners_complete": True,
            "connections": {"store": "s3", **connections},
        }
        for name, document in (("pipelines/shop.yaml", pipeline), ("stores/claims.yaml", store)):
            file = self.folder / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(yaml.safe_dump(document | places))
        self._written = artifacts, spark

    @contextmanager
    def elsewhere(self, artifacts: str, spark: dict[str, str]) -> Iterator[None]:
        """The files say so, as ``write`` has it, until this ends."""
        before = self._written
        self.write(artifacts, spark)
        try:
            yield
        finally:
            self.write(*before)

    def replay(self) -> ReplayContext:
        return ReplayContext(load_pipeline(self.folder / "pipelines/shop.yaml"), self.connections)

    def store(self) -> StoreContext:
        return StoreContext(load_store(self.folder / "stores/claims.yaml", self.folder / "pipelines"), self.connections)


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, s3: MotoServer, postgres: Postgres
) -> Iterator[Deployment]:
    folder, name = tmp_path_factory.mktemp("deployment"), f"cluster_{uuid4().hex[:12]}"
    yield Deployment(folder, kafka, s3, postgres.create_database(name), folder / "state.db")
    postgres.drop_database(name)


class Watch(threading.Thread):
    """Looks for *secrets* where anybody may look while jobs run: in command lines, and on the pages of driver and master."""

    def __init__(self, secrets: list[bytes], pages: list[str]) -> None:
        super().__init__(daemon=True)
        self._secrets, self._pages = secrets, pages
        self._ended = threading.Event()
        self.seen: set[str] = set()
        self.looked_at: dict[str, bytes] = {}

    def run(self) -> None:
        while not self._ended.wait(0.5):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    words = process.read_bytes()
                except OSError:  # it ended meanwhile
                    continue
                if b"spark" in words:  # the servers of other tests may have theirs
                    self._look(f"command line {words.decode(errors='replace')}", words)
            for page in self._pages:
                try:
                    with urllib.request.urlopen(page, timeout=1) as answer:
                        content = answer.read()
                except OSError:  # the driver is not there yet, or gone again
                    continue
                self.looked_at[page] = content
                self._look(page, content)

    def _look(self, place: str, content: bytes) -> None:
        if any(secret in content for secret in self._secrets):
            self.seen.add(place)

    def end(self) -> None:
        self._ended.set()
        self.join()


class Cluster:
    """Submits the entry scripts to the cluster, as Airflow's operator does."""

    def __init__(self, cluster: SparkCluster, deployment: Deployment, python: Path, folder: Path) -> None:
        self.running, self.deployment, self.folder = cluster, deployment, folder
        self.python = python
        self.events = folder / "events"
        self.events.mkdir()
        (self.ui_port,) = free_ports(1)
        self.bare = {
            "spark.pyspark.python": str(python),
            "spark.executorEnv.TICDC_REPLAY_PYTHON": str(python),
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "800m",
            "spark.ui.enabled": "true",
            "spark.ui.port": str(self.ui_port),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.compress": "false",
        }

    def submit(self, script: str, uri: str, context: ReplayContext | StoreContext) -> tuple[int, str]:
        """Exit code and log of the job in *script* on the spec at *uri*."""
        declared = context.store if isinstance(context, StoreContext) else context.pipeline
        artifacts = declared.connections.artifacts
        connections = msgspec.structs.replace(self.deployment.connections, artifacts=artifacts)
        with private_file(connections) as private:
            done = subprocess.run(
                [
                    *(Path(sys.executable).with_name("spark-submit"), "--master", self.running.master.url),
                    *(
                        f"--conf={name}={value}"
                        for name, value in job_properties(declared, script.removesuffix(".py")).items()
                    ),
                    *(CHECKOUT / "spark_jobs" / script, uri),
                ],
                env={
                    **os.environ,
                    **self.running.environment(),
                    "PYSPARK_DRIVER_PYTHON": sys.executable,
                    jobspec.CONNECTIONS_FILE_VARIABLE: str(private),
                    SECONDS_VARIABLE: "0.2",
                },
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE_S,
            )
        return done.returncode, done.stdout

    def run(self, script: str, uri: str, context: ReplayContext | StoreContext) -> str:
        code, log = self.submit(script, uri, context)
        assert code == 0, log
        return log

    def server(self, folder: Path, properties: dict[str, str]) -> SparkConnect:
        """A Spark Connect server on the cluster, with *properties* beside what executors need anyway."""
        of_executors = {name: value for name, value in self.bare.items() if not name.startswith("spark.ui.")}
        return SparkConnect(folder, cluster=self.running, properties={**of_executors, **properties})

    def run_at(self, server: SparkConnect, uri: str, context: ReplayContext | StoreContext) -> str:
        """The log of the job at *uri*, which runs at *server*."""
        spark = Connection("spark_default", "spark_connect", server.url)
        connections = Connections(
            {**context.connections.by_id, "spark_default": spark}, context.declared.connections.artifacts
        )
        context = type(context)(context.loaded, connections)
        with context, redirect_stderr(StringIO()) as log:
            submit(uri, context, None)
        return log.getvalue()


@pytest.fixture(scope="module")
def jobs(cluster: SparkCluster, deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "bare"], check=True, timeout=PATIENCE_S)
    return Cluster(cluster, deployment, folder / "bare" / "bin" / "python", folder)


class Replayed:
    """What a replay and a reconciliation on the cluster left: the decode by spark-submit, the other jobs at a Spark Connect
    server there."""

    decode_job: jobspec.DecodeJob
    index: ChangelogIndex
    logs: dict[str, str]
    watch: Watch
    report: ReconciliationReport


@pytest.fixture(scope="module")
def replayed(jobs: Cluster, deployment: Deployment, archive: Path) -> Replayed:
    deployment.write(f"s3://{deployment.bucket}/artifacts", {**jobs.bare, **packaged(archive)})
    result = Replayed()
    result.logs = {}
    driver = f"http://127.0.0.1:{jobs.ui_port}"
    result.watch = Watch(deployment.secrets, [f"{driver}/environment/", f"{driver}/executors/"])
    result.watch.start()
    try:
        with deployment.replay() as replay:
            require_watermark(replay, WHOLE)
            decode = write_decode_job(replay, pin(replay, WHOLE))
            result.decode_job = decode_job(decode.uri, replay)
            result.logs["decode"] = jobs.run("decode.py", decode.uri, replay)
            result.index = read_index(replay.artifacts, decode.run_hash)
        deployment.write(f"s3://{deployment.bucket}/artifacts", {})
        with jobs.server(jobs.folder / "server", packaged_for_server(archive)) as server:
            with deployment.store() as store:  # nobody has recorded the decode yet, so all is scanned
                surveyed = survey(store)
                assert surveyed.scan_job is not None
                result.logs["scan"] = jobs.run_at(server, surveyed.scan_job.uri, store)
                record_scan(store, surveyed.scan_job.uri)
                job = write_reconcile_job(store, surveyed.name, take_inventory(store, surveyed.name))
                result.logs["reconcile"] = jobs.run_at(server, job.uri, store)
                result.report = publish_reconciliation(store, job.run_hash)
            with deployment.replay() as replay:
                check(replay, decode.run_hash)
                for target in ("warehouse", "lake"):
                    load = write_load_job(replay, decode.run_hash, target)
                    result.logs[target] = jobs.run_at(server, load.uri, replay)
            result.logs["server"] = server.log.read_text()
    finally:
        result.watch.end()
    return result


def test_the_changelog_is_that_of_local_mode(
    replayed: Replayed, deployment: Deployment, spark: SparkSession, tmp_path: Path
) -> None:
    with deployment.replay() as replay:
        on_cluster = rows(replay, replayed.decode_job.run_hash)
    with deployment.elsewhere(tmp_path.as_uri(), {}), deployment.replay() as local:
        written = write_decode_job(local, pin(local, WHOLE))
        run_decode(SparkRunner(spark), decode_job(written.uri, local), deployment.connections)
        assert rows(local, written.run_hash) == on_cluster
    assert len(on_cluster) == replayed.index.report.events.written


def test_the_mirror_holds_what_the_sample_says(replayed: Replayed, deployment: Deployment) -> None:
    checks = verify(deployment.dsn)
    assert [(check.table, check.differences) for check in checks if not check.equal] == []
    assert {check.table: check.rows for check in checks} == contents.summary()["rows"]


def test_the_lake_holds_every_row_version_and_the_last_of_each_row(replayed: Replayed, deployment: Deployment) -> None:
    lake = open_store(f"s3://{deployment.bucket}/lake", deployment.connections["s3"])
    filesystem, root = lake.arrow_filesystem()

    def operations(kind: str) -> list[str]:
        names = [file.name for file in lake.list() if f"/{kind}/" in file.name and file.name.endswith(".parquet")]
        files = [pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) for name in names]
        return [each for file in files for each in file.read(["_op"])["_op"].to_pylist()]

    assert len(operations("changelog")) == replayed.index.report.events.written
    alive = [each for each in operations("fold") if each != "delete"]
    assert len(alive) == sum(contents.summary()["rows"].values())


def test_scan_and_join_find_every_reference(replayed: Replayed) -> None:
    totals = replayed.report.totals()
    named = [each for each in contents.objects() if not each.orphan]
    assert totals["references.present"] + totals["references.duplicate"] >= len(named)
    assert totals["references.missing"] == 0
    assert totals["objects.referenced"] == len(named)


def test_no_secret_stands_where_anybody_may_look(
    replayed: Replayed, deployment: Deployment, cluster: SparkCluster, jobs: Cluster
) -> None:
    watch = replayed.watch
    assert watch.seen == set()
    assert {page.rpartition("/")[0].rpartition("/")[2] for page in watch.looked_at} == {"environment", "executors"}
    assert any(b"spark.executorEnv.TICDC_REPLAY_PYTHON" in page for page in watch.looked_at.values())
    logs = [path for path in jobs.events.rglob("*") if path.is_file()]
    written = [path for path in cluster.executor_files() if "deps" not in path.parts and path.suffix != ".gz"]
    left = [*written, *(server.log for server in (cluster.master, *cluster.workers))]
    assert any(path.name == "stderr" for path in left)
    assert len(logs) >= 2, "of the decode and of the server"
    for secret in [*deployment.secrets, cluster.secret.encode()]:
        assert [str(path) for path in [*logs, *left] if secret in path.read_bytes()] == []
        assert [name for name, log in replayed.logs.items() if secret.decode() in log] == []


def test_a_job_brings_the_archive_to_a_spark_connect_server_without_it(
    replayed: Replayed, deployment: Deployment, jobs: Cluster, archive: Path, tmp_path: Path
) -> None:
    place = (tmp_path / "artifacts").as_uri()
    with (
        jobs.server(tmp_path / "server", {}) as server,
        deployment.elsewhere(place, packaged(archive)),
        deployment.replay() as replay,
    ):
        written = write_decode_job(replay, pin(replay, WHOLE))
        jobs.run_at(server, written.uri, replay)
        brought = rows(replay, written.run_hash)
    with deployment.replay() as replay:
        assert rows(replay, replayed.decode_job.run_hash) == brought


def test_the_log_tells_how_far_the_decode_is(replayed: Replayed) -> None:
    log = replayed.logs["decode"]
    found = re.findall(r"INFO ticdc_replay\.drivers\.progress: decode: (\d+) % of ([\d.]+ k) messages", log)
    assert {total for _, total in found} == {brief(sum(1 for _ in contents.messages()))}
    shares = [int(share) for share, _ in found]
    assert shares == sorted(shares)
    assert re.search(r"ticdc_replay\.drivers\.runner: decode: \d+ tasks in", log)


def test_what_executors_lack_is_told_before_any_work(replayed: Replayed, jobs: Cluster, deployment: Deployment) -> None:
    """They have no library here, and each process has the folder to itself: it is in the working folder of whoever looks."""
    place = "file:///proc/self/cwd/artifacts"
    job = msgspec.structs.replace(replayed.decode_job, artifacts=f"{place}/shop", artifacts_connection=None)
    folder = jobs.folder / "artifacts" / "shop"
    folder.mkdir(parents=True)
    (folder / "job.json").write_bytes(canonical.encode(job))
    with deployment.elsewhere(place, jobs.bare), deployment.replay() as replay:
        code, log = jobs.submit("decode.py", f"{place}/shop/job.json", replay)
    assert code == jobspec.EXIT_PERMANENT, log
    assert "executors can't run this job: there is no pyarrow, which every task needs, nor the library" in log
    assert "Run on a cluster" in log
    assert list(folder.iterdir()) == [folder / "job.json"]


def packaged(archive: Path) -> dict[str, str]:
    """What ``spark.conf`` says of *archive*."""
    return {"spark.archives": f"{archive}#deps", "spark.pyspark.python": "deps/bin/python"}


def packaged_for_server(archive: Path) -> dict[str, str]:
    """What the properties of a Spark Connect server say of it: each session's Python starts in a folder of its own."""
    return {"spark.archives": f"{archive}#deps", "spark.sql.execution.pyspark.python": "../deps/bin/python"}


def decode_job(uri: str, context: ReplayContext) -> jobspec.DecodeJob:
    job = jobspec.decode(context.artifacts.get(uri.removeprefix(f"{context.artifacts_uri}/")))
    assert isinstance(job, jobspec.DecodeJob)
    return job


def rows(context: ReplayContext, run_hash: str) -> list[str]:
    """The rows of a changelog as sorted text, whatever files they are in."""
    filesystem, base = context.artifacts.arrow_filesystem()
    index = read_index(context.artifacts, run_hash)
    found = []
    for table in index.tables:
        for file in table.files:
            path = f"{base}/{changelog_root(run_hash)}/{file.name}"
            for row in pq.read_table(path, filesystem=filesystem, partitioning=None).to_pylist():
                found.append(f"{table.schema.name} {table.version} {row!r}")
    return sorted(found)
