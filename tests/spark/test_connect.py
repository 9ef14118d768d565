"""Jobs whose tasks run at a Spark Connect server."""

from __future__ import annotations

import gc
import logging
import pickle
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
import pytest
import yaml
from pyspark import TaskContext

from tests.spark.test_reconcile import EVIDENCE, NOW, reference, rows_of, write
from tests.support import connect
from tests.support.changelogs import Changelog, put, table
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.cli.submit import submit
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError, ConfigError, TransientError
from ticdc_replay.domain.progress import report_done
from ticdc_replay.drivers import progress
from ticdc_replay.drivers.runner import Sizes
from ticdc_replay.reconcile.judge import records
from ticdc_replay.spark import session
from ticdc_replay.spark.parquet_files import Sources
from ticdc_replay.spark.reconcile import classify
from ticdc_replay.spark.session import open_session, remote_url
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.targets.base import StoreAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.spark import SparkConnect

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.usefixtures("others_are_classic")]

SECRET = "planted-secret-of-a-connection"


@pytest.fixture(scope="module")
def runner(connection: Connection) -> Iterator[SparkRunner]:
    with open_session("test", server=connection) as spark:
        yield SparkRunner(spark)


class TestTasks:
    def test_results_come_in_the_order_of_the_tasks(self, runner: SparkRunner) -> None:
        def work(number: int) -> int:
            time.sleep(0.01 * (5 - number))
            return 2 * number

        assert runner.run(work, range(5), "double") == [0, 2, 4, 6, 8]

    def test_as_many_tasks_run_as_the_server_has_cores(self, runner: SparkRunner) -> None:
        assert runner.parallelism == 2

    def test_errors_of_the_library_keep_their_types(self, runner: SparkRunner) -> None:
        def work(error: Exception | None) -> None:
            if error is not None:
                raise error

        with pytest.raises(ArtifactCorruptError, match="broken"):
            runner.run(work, [None, ArtifactCorruptError("broken")], "fail")

    def test_one_task_is_tried_again_and_the_others_are_not(self, runner: SparkRunner, tmp_path: Path) -> None:
        def work(number: int) -> int:
            running = TaskContext.get()
            assert running is not None
            attempt = running.attemptNumber()
            (tmp_path / f"{number}.{attempt}").touch()
            if number == 1 and attempt == 0:
                raise TransientError("not yet")
            return attempt

        assert runner.run(work, range(3), "fail at first") == [0, 1, 0]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["0.0", "1.0", "1.1", "2.0"]

    def test_the_last_attempt_brings_its_error_home(self, runner: SparkRunner) -> None:
        def work(_: int) -> None:
            raise TransientError("never")

        with pytest.raises(TransientError, match="never"):
            runner.run(work, [1], "fail")

    @pytest.fixture
    def half(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Path]:
        """A file that is there as soon as the log says that half is done."""
        path = tmp_path / "half"
        monkeypatch.setattr(progress, "DEFAULT_SECONDS", 0.2)
        caplog.set_level(logging.INFO, progress.log.name)

        class Watch(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if "50 %" in record.getMessage():
                    path.touch()

        watch = Watch()
        progress.log.addHandler(watch)
        yield path
        progress.log.removeHandler(watch)

    def test_tasks_tell_how_far_they_are(self, runner: SparkRunner, half: Path) -> None:
        def work(_: int) -> bool:
            def half_is_logged() -> bool:
                report_done(100)
                return half.exists()

            return wait_for("a line that half is done", half_is_logged)

        assert runner.run(work, [1, 2], "count", Sizes([200, 200], "messages")) == [True, True]

    @pytest.mark.skipif(pyspark.__version__ < "4", reason="Spark 3.5 has no progress handlers")
    def test_tasks_that_ended_count_where_no_task_can_tell(
        self, runner: SparkRunner, half: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(progress.Progress, "channel", property(lambda self: None))

        def work(number: int) -> bool:
            return number < 2 or wait_for("a line that half is done", half.exists)

        assert all(runner.run(work, range(4), "count", Sizes([100] * 4, "messages")))


def test_sessions_know_nothing_of_each_other(connection: Connection) -> None:
    with open_session("one", server=connection) as one, open_session("other", server=connection) as other:
        SparkSql(one).set({"spark.sql.shuffle.partitions": "3"})
        one.range(3).createOrReplaceTempView("mine")
        assert other.conf.get("spark.sql.shuffle.partitions") != "3"
        assert not other.catalog.tableExists("mine")


def test_a_session_that_ended_waits_for_no_other_when_it_is_collected(connection: Connection) -> None:
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

    with open_session("ended", server=connection) as spark:
        sessions = [spark]
        del spark
    with ExecutePlanResponseReattachableIterator._lock:  # as a session that starts a thread does
        collecting = threading.Thread(target=lambda: (sessions.clear(), gc.collect()), daemon=True)
        collecting.start()
        collecting.join(PATIENCE_S)
        assert not collecting.is_alive()


def _rows_of(secret: str, _: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"v": [str(len(secret))]})


def test_no_secret_of_a_task_is_kept_or_shown_by_the_server(server: SparkConnect, connection: Connection) -> None:
    secret = SECRET[::-1]
    with open_session("secrets", server=connection) as spark:
        runner = SparkRunner(spark)
        assert runner.run(lambda task: task[::-1], [secret], "reverse") == [SECRET]
        with runner.sql.view("seen", partial(_rows_of, secret), [1], "v string"):
            assert runner.sql.run("SELECT v FROM seen") == [{"v": str(len(secret))}]
    found = [path for path in server.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert found == []
    assert list((server.folder / "events").iterdir()), "there is an event log"


def test_what_travels_in_a_plan_is_sealed(connection: Connection) -> None:
    secret = SECRET[::-1]
    with open_session("plan", server=connection) as spark:
        sent: list[bytes] = []
        client: Any = spark.client
        execute = client._execute_and_fetch_as_iterator

        def seen(request: Any, *arguments: Any, **named: Any) -> Any:
            sent.append(request.SerializeToString())
            return execute(request, *arguments, **named)

        client._execute_and_fetch_as_iterator = seen
        assert SparkRunner(spark).run(len, [secret], "count") == [len(secret)]
    assert len(sent) == 1
    assert b"mapInArrow" in sent[0] or b"outcome" in sent[0], "it is the plan of the tasks"
    assert secret.encode() not in sent[0]


JOIN = """
import pickle, sys
from pathlib import Path
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.spark.exchange import Exchange
from ticdc_replay.spark.reconcile import classify
from ticdc_replay.spark.session import open_session

def fail(task):
    raise ArtifactNotFoundError("a.parquet is gone")

folder = Path(sys.argv[1])
with open_session("join", server=Connection("spark", "spark_connect", sys.argv[2])) as spark:
    joined = classify(spark, *pickle.loads((folder / "asked").read_bytes()))
    try:
        Exchange.of(spark, [0], fail, 2, "fail").totals(lambda bucket, arrived: [])
    except ArtifactNotFoundError as error:
        (folder / "left").write_bytes(pickle.dumps((joined, error)))
"""


def test_a_join_over_spark_connect_leaves_the_same_and_raises_the_same(
    spark: SparkSession, server: SparkConnect, tmp_path: Path
) -> None:
    place, here, there = StoreAddress(tmp_path.as_uri(), None), tmp_path / "here", tmp_path / "there"
    names = [f"{uuid.UUID(int=number)}.json" for number in range(50)]
    objects = [{"name": name, "size": 1, "etag": "e", "last_modified_ms": NOW - 10**8 * 3} for name in names]
    rows = [reference(name, offset, bytes([offset % 16])) for offset, name in enumerate([*names[10:], "x"])]
    inventory = Sources(place, (write(tmp_path, "objects.parquet", records.OBJECTS, objects),))
    references = [Sources(place, (write(tmp_path, "scan.parquet", records.REFERENCES, rows),))]

    expected = classify(spark, inventory, references, EVIDENCE, StoreAddress(here.as_uri(), None), "run", 2)
    asked = (inventory, references, EVIDENCE, StoreAddress(there.as_uri(), None), "run", 2)
    (tmp_path / "asked").write_bytes(pickle.dumps(asked))
    subprocess.run([sys.executable, "-c", JOIN, tmp_path, server.url], check=True, timeout=2 * PATIENCE_S)
    found, error = pickle.loads((tmp_path / "left").read_bytes())

    assert found.summary == expected.summary
    for kind, name in (("objects", "name"), ("references", "object_name")):
        of_both = [sorted(rows_of(folder, joined, kind), key=lambda row: row[name]) for folder, joined in
                   ((here, expected), (there, found))]  # fmt: skip
        assert of_both[0] == of_both[1]
    assert isinstance(error, ArtifactNotFoundError)
    assert str(error) == "a.parquet is gone"


ENDLESS = """
import os, signal, sys, time
from pathlib import Path

from ticdc_replay.domain.connections import Connection
from ticdc_replay.reconcile.judge import records
from ticdc_replay.spark import session
from ticdc_replay.spark.parquet_files import Sources
from ticdc_replay.spark.reconcile import classify
from ticdc_replay.spark.session import open_session
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.submit.signals import ended_by

path = sys.argv[2]


def work(_):
    while True:
        Path(path).touch()
        time.sleep(0.05)


with ended_by(signal.SIGTERM), open_session("endless", server=Connection("spark", "spark_connect", sys.argv[1])) as spark:
    SparkRunner(spark).run(work, [1], "endless")
"""


class TestEnds:
    @pytest.fixture
    def endless(self, server: SparkConnect, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """A driver of a task that never ends, and the file that the task touches as long as it runs."""
        file = tmp_path / "touched"
        driver = subprocess.Popen(
            [sys.executable, "-c", ENDLESS, server.url, str(file)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        wait_for("the task to run", file.exists)
        yield driver, file
        driver.kill()
        driver.wait()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_what_runs_at_the_server_ends_with_the_driver(
        self, endless: tuple[subprocess.Popen[bytes], Path], number: signal.Signals
    ) -> None:
        driver, file = endless
        driver.send_signal(number)
        driver.wait(PATIENCE_S)

        def is_still() -> bool:
            before = file.stat().st_mtime_ns
            time.sleep(3)
            return file.stat().st_mtime_ns == before

        wait_for("the task to end", is_still)

    def test_a_server_that_ends_fails_the_job_for_now(
        self, java_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session, "_RETRIES", 3)
        file = tmp_path / "touched"

        def work(_: int) -> None:
            file.touch()
            time.sleep(PATIENCE_S)

        with connect.server(tmp_path / "server") as own:
            killing = threading.Thread(target=lambda: (wait_for("the task", file.exists), own.stop()))
            killing.start()
            lost = Connection("spark_default", "spark_connect", own.url)
            with (
                pytest.raises(TransientError, match=r"'spark_default': the Spark Connect server failed, was lost"),
                open_session("lost", server=lost) as spark,
            ):
                SparkRunner(spark).run(work, [1], "sleep")
            killing.join()

    @pytest.mark.nightly  # the server's rule: an hour by default
    def test_a_session_is_kept_while_its_driver_does_other_work(
        self, java_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session, "_TOUCHED_EVERY_S", 0.5)
        rule = {"defaultSessionTimeout": "10s", "maintenanceInterval": "1s"}
        properties = {f"spark.connect.session.manager.{name}": value for name, value in rule.items()}
        with connect.server(tmp_path / "server", properties) as own:
            kept = Connection("spark_default", "spark_connect", own.url)
            with open_session("kept", server=kept) as spark:
                time.sleep(20)
                assert spark.range(2).count() == 2


class TestUrl:
    def test_a_token_and_tls_are_those_of_the_connection(self) -> None:
        connection = Connection(
            "spark", "spark_connect", "sc://spark.example/", 15002, "me", "a/b;c", extra={"use_ssl": True}
        )
        url = remote_url(connection, "decode shop")
        assert url == "sc://spark.example:15002/;user_agent=decode%20shop;user_id=me;token=a%2Fb%3Bc;use_ssl=true"

    def test_parameters_in_the_host_stay_beside_the_port(self) -> None:
        connection = Connection("spark", "spark_connect", "sc://spark.example/;use_ssl=true", 443)
        assert remote_url(connection, "decode") == "sc://spark.example:443/;use_ssl=true;user_agent=decode"

    @pytest.mark.parametrize("host", ["http://spark.example", "spark.example/path"])
    def test_a_host_that_is_none_is_refused(self, host: str) -> None:
        with pytest.raises(ConfigError, match=r"'spark': host .* is not sc://<host>"):
            remote_url(Connection("spark", "spark_connect", host), "decode")

    def test_a_connection_without_host_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"'spark'.*host"):
            remote_url(Connection("spark", "spark_connect"), "decode")


class Deployed:
    """A load of one row into Parquet files, as the command submits it."""

    def __init__(self, folder: Path, connection: Connection) -> None:
        self.folder, self.connection = folder, connection
        target = {"name": "lake", "type": "parquet", "uri": (folder / "lake").as_uri()}
        declared = {
            "name": "shop",
            "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
            "connections": {"kafka": "kafka"},
            "artifacts": (folder / "artifacts").as_uri(),
            "schedule": {"start": "2026-03-01T00:00:00Z"},
            "targets": [target],
        }
        self.file = folder / "shop.yaml"
        self.file.write_text(yaml.safe_dump(declared), encoding="utf-8")
        changelog = Changelog(folder / "changelog", 0, 100)
        changelog.rows(table("shop.orders", {"id": ColumnType("bigint", declared=True)}), [put(10, id=1)])
        self.job = folder / "job.json"
        self.job.write_bytes(canonical.encode(changelog.job(target)))

    def submit(self, master: str | None = None) -> None:
        connections = Connections({"spark_default": self.connection})
        with ReplayContext(load_pipeline(self.file), connections) as context:
            submit(self.job.as_uri(), context, master)

    @property
    def files(self) -> list[Path]:
        return list((self.folder / "lake").glob("pipeline/fold/**/*.parquet"))


@pytest.fixture
def deployed(tmp_path: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Deployed:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return Deployed(tmp_path, connection)


class TestDriver:
    def test_a_job_runs_by_the_connection_of_the_pipeline(self, deployed: Deployed) -> None:
        deployed.submit()
        assert len(deployed.files) == 1

    def test_a_master_may_name_a_server(self, deployed: Deployed, server: SparkConnect) -> None:
        deployed.connection = Connection("spark_default", "spark", "local[1]")
        deployed.submit(server.url)
        assert len(deployed.files) == 1

    def test_a_token_in_a_command_line_is_refused(self, deployed: Deployed) -> None:
        with pytest.raises(ConfigError, match="token in a command line"):
            deployed.submit("sc://spark.example:15002/;token=abc")

    def test_a_server_that_is_away_fails_the_job_for_now(self, deployed: Deployed) -> None:
        deployed.connection = Connection("spark_default", "spark_connect", "127.0.0.1", 9)
        with pytest.raises(TransientError, match=r"no Spark Connect server answers at 127.0.0.1:9"):
            deployed.submit()
        assert deployed.files == []
