"""A submitter of applications, with another program in place of spark-submit and a server in place of Kubernetes."""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.changelogs import Changelog
from tests.support.kubernetes_api import NAMESPACE, TOKEN, ApiServer, pod
from tests.support.waiting import wait_for
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import PermanentError, TransientError
from ticdc_replay.submit import cluster as module
from ticdc_replay.submit.cluster import ClusterDriver, mark_of, prepare
from ticdc_replay.submit.clusters import cluster_of
from ticdc_replay.submit.outcome import JobOutcome
from ticdc_replay.submit.submitter import Submission

MAKES_A_POD = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {"Authorization": "Bearer " + sys.argv[3]}, method="POST")
urllib.request.urlopen(request)
"""


class Rig:
    """A load whose driver is a pod of *api*."""

    def __init__(self, folder: Path, api: ApiServer) -> None:
        self.folder, self.api = folder, api
        target = {"name": "pg", "type": "postgres", "connection": "warehouse"}
        pipeline = {
            "name": "shop",
            "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
            "connections": {"kafka": "kafka"},
            "artifacts": (folder / "artifacts").as_uri(),
            "schedule": {"start": "2026-03-01T00:00:00Z"},
            "targets": [target],
        }
        (folder / "shop.yaml").write_text(yaml.safe_dump(pipeline))
        self.declared: Pipeline = load_pipeline(folder / "shop.yaml").pipeline
        job = folder / "job.json"
        job.write_bytes(canonical.encode(Changelog(folder / "changelog", 0, 100).job(target)))
        self.uri = job.as_uri()
        extra = {"deploy-mode": "cluster", "namespace": "replay"}
        found = cluster_of(Connection("spark", "spark", f"k8s://{api.url}", password=TOKEN, extra=extra))
        assert found is not None
        self.cluster = found

    def driver(self, *command: str) -> tuple[ClusterDriver, Submission]:
        """One whose spark-submit is *command*; by default one that makes a pod."""
        connections = Connections({"warehouse": Connection("warehouse", "postgres", "db", password="planted")})
        submission = Submission(self.uri, connections, self.declared)
        prepare(submission, self.cluster, self.declared)
        made = pod("driver", "Running", mark=mark_of(self.uri), attempt=submission.attempt)
        makes = [sys.executable, "-c", MAKES_A_POD, f"{self.api.url}{NAMESPACE}/pods", json.dumps(made), TOKEN]
        return ClusterDriver(submission, self.cluster, command or makes, os.environ, self.declared), submission

    def ends(self, phase: str, **status: Any) -> None:
        self.api.pods["driver"]["status"] = {"phase": phase, **status}

    @property
    def sealed(self) -> list[Path]:
        return list(self.folder.glob("*.sealed"))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(module, "POLL_S", 0.05)
    with ApiServer() as api:
        yield Rig(tmp_path, api)


def test_an_application_has_the_outcome_that_its_driver_left(rig: Rig) -> None:
    driver, submission = rig.driver()
    with driver:
        driver.start()
        (secret,) = rig.api.secrets.values()
        assert secret["metadata"]["ownerReferences"][0]["name"] == "driver"
        (sealed,) = rig.sealed
        assert b"planted" not in sealed.read_bytes()
        submission.file.put_outcome(submission.attempt, JobOutcome("succeeded", counts={"events": 3}))
        rig.ends("Succeeded")
        assert driver.wait(lambda line: None).counts == {"events": 3}
    assert (rig.sealed, rig.api.secrets) == ([], {})
    assert "driver" in rig.api.pods, "its log stays"


@pytest.mark.parametrize(
    ("phase", "code", "kind"),
    [("Succeeded", 0, TransientError), ("Failed", 1, TransientError), ("Failed", 3, PermanentError)],
)
def test_one_without_an_outcome_has_failed(rig: Rig, phase: str, code: int, kind: type[Exception]) -> None:
    driver, _ = rig.driver()
    with driver:
        driver.start()
        rig.ends(phase, containerStatuses=[{"state": {"terminated": {"reason": "Error", "exitCode": code}}}])
        with pytest.raises(
            kind, match=rf"^load: application driver ended as {phase}, and its driver left no outcome: "
        ) as found:
            driver.wait(lambda line: None)
    assert type(found.value) is kind
    assert str(found.value).endswith("Its log: kubectl logs --namespace replay driver")


def test_an_application_that_somebody_removed_has_ended(rig: Rig) -> None:
    driver, _ = rig.driver()
    with driver:
        driver.start()
        del rig.api.pods["driver"]
        with pytest.raises(TransientError, match="the cluster does not know it any more"):
            driver.wait(lambda line: None)


def test_spark_submit_finds_the_spark_of_this_python(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own scripts ask the first ``python3`` of PATH, and the command may be started without this Python's folder there."""
    monkeypatch.setenv("PATH", os.defpath)
    driver, _ = rig.driver("sh", "-c", "command -v python3; exit 1")
    with driver, pytest.raises(TransientError, match=rf"Its last lines:\n{Path(sys.executable).parent}/python3$"):
        driver.start()


def test_a_later_attempt_takes_what_runs(rig: Rig) -> None:
    first, submitted = rig.driver()
    with first:
        first.start()
        first.release()
    second, submission = rig.driver("false")
    with second:
        second.start()
        submission.file.put_outcome(submitted.attempt, JobOutcome("succeeded"))
        rig.ends("Succeeded")
        second.wait(lambda line: None)
    assert submission.attempt == submitted.attempt


def test_leaving_ends_what_runs(rig: Rig) -> None:
    driver, _ = rig.driver()
    with driver:
        driver.start()
    assert (rig.api.pods, rig.api.secrets, rig.sealed) == ({}, {}, [])


def test_a_cluster_that_does_not_answer_leaves_a_word_of_what_may_go_on(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    driver, _ = rig.driver()
    with caplog.at_level(logging.ERROR), driver:
        driver.start()
        rig.api.failing = 503
    assert "load: application driver may go on" in caplog.text


def test_a_submission_that_fails_leaves_nothing(rig: Rig) -> None:
    driver, _ = rig.driver("sh", "-c", "echo no such queue; exit 1")
    with driver, pytest.raises(TransientError, match=r"(?s)ended with code 1, .*\nno such queue$"):
        driver.start()
    assert (rig.api.secrets, rig.sealed) == ({}, [])


def test_a_submission_that_is_cancelled_ends(rig: Rig) -> None:
    driver, _ = rig.driver("sleep", "600")
    failed: list[Exception] = []

    def start() -> None:
        try:
            driver.start()
        except TransientError as error:
            failed.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    wait_for("spark-submit", lambda: driver._process)
    began = time.monotonic()
    driver.cancel()
    thread.join()
    assert time.monotonic() - began < 300
    assert "the job was cancelled" in str(failed[0])
    assert (rig.api.secrets, rig.sealed) == ({}, [])


def test_a_submission_that_the_cluster_may_have_taken_keeps_its_key(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FOUND_WITHIN_S", 0.5)
    driver, _ = rig.driver("true")
    asked = rig.cluster.find_attempt

    def away(attempt: str) -> None:
        rig.api.failing = 503
        asked(attempt)

    monkeypatch.setattr(rig.cluster, "find_attempt", away)
    with driver, pytest.raises(TransientError, match="names no application of this attempt"):
        driver.start()
    assert len(rig.api.secrets) == len(rig.sealed) == 1


def test_a_cluster_that_does_not_answer_for_a_moment_costs_no_attempt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, times = rig.cluster.find_attempt, iter([503, 503])

    def away(attempt: str) -> object:
        rig.api.failing = next(times, 0)
        return asked(attempt)

    monkeypatch.setattr(rig.cluster, "find_attempt", away)
    driver, _ = rig.driver()
    with driver:
        driver.start()
        assert driver.application is not None
        driver.release()


def test_an_application_that_failed_at_once_says_why(rig: Rig) -> None:
    driver, submission = rig.driver("true")
    failed = pod(
        "driver",
        "Failed",
        mark=mark_of(rig.uri),
        attempt=submission.attempt,
        containerStatuses=[{"state": {"terminated": {"reason": "Error", "exitCode": 3}}}],
    )
    rig.api.pods["driver"] = failed
    with driver:
        driver.start()
        with pytest.raises(PermanentError, match="exited with code 3"):
            driver.wait(lambda line: None)


def test_a_cancel_while_an_application_is_found_ends_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = rig.driver()
    with first:
        first.start()
        first.release()
    driver, _ = rig.driver("false")
    find = rig.cluster.find

    def cancelled(mark: str) -> object:
        driver.cancel()
        return find(mark)

    monkeypatch.setattr(rig.cluster, "find", cancelled)
    with driver, pytest.raises(TransientError, match="the job was cancelled"):
        driver.start()
    assert (rig.api.pods, rig.api.secrets, rig.sealed) == ({}, {}, [])
    with pytest.raises(TransientError, match="the job was cancelled"):
        driver.release()


def test_what_a_killed_submitter_left_is_removed_by_a_later_attempt(rig: Rig) -> None:
    killed, _ = rig.driver("true")
    killed._sealed(rig.folder)
    (left,) = rig.sealed
    os.utime(left, (0, 0))
    (secret,) = rig.api.secrets
    driver, submission = rig.driver()
    with driver:
        driver.start()
        assert [submission.attempt in each.name for each in rig.sealed] == [True]
        assert secret not in rig.api.secrets


def test_spark_submit_gets_no_secret_of_the_machine_s_cloud_identity(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    seen = rig.folder / "environment"
    driver, submission = rig.driver("sh", "-c", f"env > {seen}; exit 1")
    submission.connections = Connections({"store": Connection("store", "aws")})
    with driver, pytest.raises(TransientError, match="ended with code 1"):
        driver.start()
    assert "AWS_REGION=eu-west-1" in seen.read_text()
    assert "planted" not in seen.read_text()
