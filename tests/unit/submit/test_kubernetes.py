"""What is asked of Kubernetes, and how its answers are read, by ``tests.support.kubernetes_api``."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kubernetes_api import MARK, TOKEN, ApiServer, pod
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError
from ticdc_replay.submit.cluster import Application
from ticdc_replay.submit.clusters import cluster_of
from ticdc_replay.submit.kubernetes import Kubernetes


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def cluster(api: ApiServer, **changes: Any) -> Kubernetes:
    fields = {"host": f"k8s://{api.url}", "password": TOKEN, "extra": {"deploy-mode": "cluster", "namespace": "replay"}}
    found = cluster_of(Connection("spark_default", "spark", **(fields | changes)))
    assert isinstance(found, Kubernetes)
    return found


def test_running_pods_of_a_job_are_found_the_newest_first(api: ApiServer, tmp_path: Any) -> None:
    ending = pod("d", "Running")
    ending["metadata"]["deletionTimestamp"] = "2026-03-01T00:00:09Z"
    pods = [pod("a", "Pending"), pod("b", "Running", "2026-03-01T00:00:05Z"), pod("c", "Succeeded"), ending]
    api.pods = {each["metadata"]["name"]: each for each in pods}
    found = cluster(api).find(MARK)
    assert [(each.id, each.attempt, each.status) for each in found] == [
        ("b", "attempt-b", "Running"),
        ("a", "attempt-a", "Pending"),
    ]
    assert cluster(api).find("another") == []
    ended = cluster(api).find_attempt("attempt-c")
    assert ended is not None
    assert (ended.id, ended.has_ended) == ("c", True)
    assert cluster(api).find_attempt("another") is None
    assert found[0].log == "kubectl logs --namespace replay b"


@pytest.mark.parametrize(
    ("found", "has_ended", "diagnostics"),
    [
        (pod("a", "Running"), False, ""),
        (pod("a", "Succeeded"), True, ""),
        (
            pod("a", "Failed", containerStatuses=[{"state": {"terminated": {"reason": "Error", "exitCode": 3}}}]),
            True,
            "Error, exited with code 3",
        ),
        (
            pod("a", "Pending", containerStatuses=[{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]),
            False,
            "ImagePullBackOff",
        ),
        (
            pod("a", "Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]),
            False,
            "Unschedulable",
        ),
        (pod("a", "Failed", reason="Evicted", message="low on memory"), True, "Evicted; low on memory"),
    ],
)
def test_what_a_pod_says(api: ApiServer, found: Any, has_ended: bool, diagnostics: str) -> None:
    api.pods = {"a": found}
    seen = cluster(api).look("a")
    assert seen is not None
    assert (seen.has_ended, seen.diagnostics) == (has_ended, diagnostics)


def test_a_pod_that_is_ended_is_gone(api: ApiServer) -> None:
    api.pods = {"a": pod("a", "Running")}
    kubernetes = cluster(api)
    kubernetes.end("a")
    kubernetes.end("a")
    assert kubernetes.look("a") is None


def test_a_key_is_a_secret_that_ends_with_its_pod(api: ApiServer, tmp_path: Any) -> None:
    kubernetes = cluster(api)
    kubernetes.hand_over(b"the key", MARK, "one", tmp_path)
    secret = api.secrets["ticdc-replay-one"]
    assert base64.b64decode(secret["data"]["key"]) == b"the key"
    assert secret["metadata"]["labels"] == {"ticdc-replay/job": MARK, "ticdc-replay/attempt": "one"}
    api.pods = {"a": pod("a", "Running")}
    kubernetes.bind(Application("a", "one", "Running", False, "", ""))
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "a", "uid-a")
    kubernetes.take_back("one")
    kubernetes.take_back("one")
    assert api.secrets == {}


def test_the_properties_of_a_pod(api: ApiServer) -> None:
    kubernetes = cluster(api)
    found = kubernetes.properties(MARK, "one", {"TICDC_REPLAY_CONNECTIONS": kubernetes.envelope_key})
    assert found == {
        "spark.kubernetes.namespace": "replay",
        "spark.kubernetes.driver.label.ticdc-replay/job": MARK,
        "spark.kubernetes.driver.label.ticdc-replay/attempt": "one",
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.driver.secrets.ticdc-replay-one": "/etc/ticdc-replay-key",
        "spark.kubernetes.driverEnv.TICDC_REPLAY_CONNECTIONS": "envelope:/etc/ticdc-replay-key/key",
    }
    assert not any(
        "secrets" in name for name in kubernetes.properties(MARK, "one", {"TICDC_REPLAY_CONNECTIONS": "backends"})
    )


def test_errors(api: ApiServer) -> None:
    with pytest.raises(PermanentError, match="answered 401 to GET pods in namespace replay") as refused:
        cluster(api, password="planted-wrong").find(MARK)
    assert "planted" not in str(refused.value)
    with pytest.raises(ConfigError, match="no pod with a service account"):
        cluster(api, password=None).find(MARK)
    for password in ("planted one", "planted\none", "plantéd"):
        with pytest.raises(ConfigError, match="its password is no token") as refused:
            cluster(api, password=password).find(MARK)
        assert "plant" not in str(refused.value)
    assert cluster(api, password=f"{TOKEN}\n").find(MARK) == []
    with pytest.raises(ConfigError, match="needs extra"):
        cluster(api, extra={"deploy-mode": "cluster"})
    for failing in (429, 500, 503):
        api.failing = failing
        with pytest.raises(TransientError, match=f"answered {failing} to DELETE pods/a"):
            cluster(api).end("a")
    with pytest.raises(TransientError, match="does not answer"):
        cluster(api, host="k8s://http://127.0.0.1:9").find(MARK)


def test_a_standalone_cluster_is_refused() -> None:
    with pytest.raises(ConfigError, match="a standalone cluster runs no Python drivers"):
        cluster_of(Connection("s", "spark", "spark://master", 7077, extra={"deploy-mode": "cluster"}))
    assert cluster_of(Connection("s", "spark", "yarn", extra={"deploy-mode": "client"})) is None
