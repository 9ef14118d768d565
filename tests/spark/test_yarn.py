"""Jobs whose drivers are applications of YARN: Hadoop's own daemons, with one node."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from tests.spark.test_secrets import CATALOG_SECRETS, catalog_of, load_into_a_lake, require_hidden
from tests.support.waiting import wait_for
from tests.support.yarn import Yarn
from ticdc_replay.cli import submit as command
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.submit.cluster import ClusterDriver, mark_of, prepare
from ticdc_replay.submit.clusters import cluster_of
from ticdc_replay.submit.commands import spark_submit_command
from ticdc_replay.submit.submitter import Submission
from ticdc_replay.submit.yarn import Yarn as YarnCluster

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture
def spark(yarn: Yarn) -> Connection:
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.address}
    return Connection("spark_default", "spark", "yarn", extra=extra)


class Load:
    """A load into a lake of *folder*, whose catalog has planted secrets."""

    def __init__(self, folder: Path, yarn: Yarn, spark: Connection) -> None:
        (folder / "lake").mkdir()
        self.uri = load_into_a_lake(folder)
        self.file = folder / "shop.yaml"
        pipeline = yaml.safe_load(self.file.read_text())
        pipeline["spark"]["conf"] |= yarn.properties
        self.file.write_text(yaml.safe_dump(pipeline))
        catalog = Connection("catalog", "generic", extra=catalog_of(folder / "lake"))
        self.connections = Connections({"catalog": catalog, "spark_default": spark})
        cluster = cluster_of(spark)
        assert cluster is not None
        self.cluster = cluster

    def context(self) -> ReplayContext:
        return ReplayContext(load_pipeline(self.file), self.connections)

    def driver(self) -> tuple[ClusterDriver, Submission]:
        declared = self.context().declared
        submission = Submission(self.uri, self.connections, declared)
        prepare(submission, self.cluster, declared)
        line = spark_submit_command(submission, "yarn", ["--deploy-mode", "cluster"])
        return ClusterDriver(submission, self.cluster, line, os.environ, declared), submission


@pytest.fixture
def load(
    java_home: Path, tmp_path: Path, yarn: Yarn, spark: Connection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Load]:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
    yield Load(tmp_path, yarn, spark)
    for application in yarn.applications():
        if application["state"] not in ("FINISHED", "FAILED", "KILLED"):
            YarnCluster(spark).end(application["id"])


@contextmanager
def command_lines() -> Iterator[set[str]]:
    """The command lines of all processes of this machine meanwhile."""
    seen: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.add(file.read_bytes().decode(errors="replace"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def test_a_command_waits_for_its_application_and_no_secret_is_in_what_yarn_and_spark_say_or_keep(
    load: Load, yarn: Yarn, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with load.context() as context, command_lines() as seen:
        command.submit(load.uri, context, None)
    (application,) = [each for each in yarn.applications() if mark_of(load.uri) in each["applicationTags"]]
    assert (application["state"], application["finalStatus"]) == ("FINISHED", "SUCCEEDED")
    assert [path.name for path in tmp_path.glob("*.sealed")] == []
    require_hidden(tmp_path, "".join(capfd.readouterr()), is_loaded=True)
    assert any("org.apache.spark.deploy.yarn.ApplicationMaster" in line for line in seen)
    for secret in CATALOG_SECRETS.values():
        assert [line for line in seen if secret in line] == []
        assert [path for path, text in yarn.written() if secret in text] == []
    assert list(yarn.folder.rglob("container_tokens")) == [], "the key ends with its container"


def test_a_driver_s_own_error_reaches_who_submitted(load: Load, tmp_path: Path) -> None:
    driver, submission = load.driver()
    with driver:
        driver.start()
        sealed = tmp_path / f"job.{submission.attempt}.sealed"
        content = bytearray(sealed.read_bytes())
        content[40] ^= 1
        sealed.write_bytes(content)
        with pytest.raises(PermanentError, match=r"^load: ConfigError: the envelope of attempt \w+ was altered"):
            driver.wait(lambda line: None)
    assert not sealed.exists()


def test_a_later_attempt_takes_the_application_that_runs_and_a_cancelled_one_is_ended(load: Load, yarn: Yarn) -> None:
    first, submitted = load.driver()
    with first:
        first.start()
        first.release()  # as where its process was killed
    second, submission = load.driver()
    with second:
        second.start()
        assert first.application is not None
        assert second.application is not None
        assert second.application.id == first.application.id
        assert submission.attempt == submitted.attempt
        second.cancel()
        with pytest.raises(TransientError, match="the job was cancelled"):
            second.wait(lambda line: None)
    tagged = [each for each in yarn.applications() if mark_of(load.uri) in each["applicationTags"]]
    assert len(tagged) == 1
    wait_for("the end of the application", lambda: load.cluster.find(mark_of(load.uri)) == [])
    found = load.cluster.look(first.application.id)
    assert found is not None
    assert (found.status, found.has_ended) == ("KILLED", True)
    first.look()
    with pytest.raises(TransientError, match=r"ended as KILLED, and its driver left no outcome: .* Its log: http"):
        first.settled()


def test_what_yarn_does_not_know_and_who_does_not_answer(load: Load, spark: Connection) -> None:
    assert load.cluster.look("application_1_0001") is None
    assert load.cluster.find("ticdc-replay-of-nobody") == []
    away = {**spark.extra, "yarn_resourcemanager_webapp_address": "127.0.0.1:9"}
    with pytest.raises(TransientError, match=r"ResourceManager at http://127\.0\.0\.1:9 does not answer"):
        YarnCluster(Connection("s", "spark", "yarn", extra=away)).find("any")
    with pytest.raises(ConfigError, match="needs the address of the ResourceManager"):
        YarnCluster(Connection("s", "spark", "yarn"))
