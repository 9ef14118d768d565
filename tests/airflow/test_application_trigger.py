"""What waits for the application of a decode, with a server in place of Kubernetes': leases, errors, and who may end it."""

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest

from tests.support.kubernetes_api import TOKEN, ApiServer, pod
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.domain.errors import TransientError

pytestmark = pytest.mark.airflow

CLAIMS = "file:///claims"
CONFIG = f"""
[sink.kafka-config.large-message-handle]
large-message-handle-option = "claim-check"
claim-check-storage-uri = "{CLAIMS}"
"""


@pytest.fixture
def rig(tmp_path, pipelines, monkeypatch):
    import msgspec

    from ticdc_replay import jobspec
    from ticdc_replay.airflow.application_trigger import ApplicationTrigger
    from ticdc_replay.config.load import load_pipeline
    from ticdc_replay.domain.connections import Connections
    from ticdc_replay.domain.window import Window
    from ticdc_replay.snapshot.manifest import Manifest
    from ticdc_replay.snapshot.pin import PinnedManifest
    from ticdc_replay.stages.context import ReplayContext
    from ticdc_replay.stages.window.jobs import decode_job
    from ticdc_replay.submit.outcome import JobFile

    changefeed = {
        "sink_uri": "kafka://broker:9092/shop?protocol=open-protocol",
        "timezone": "UTC",
        "config": CONFIG,
    }
    file = pipelines.add("shop", {"artifacts": tmp_path.as_uri(), "changefeed": changefeed})
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_KAFKA", '{"conn_type": "kafka", "host": "b"}')
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", '{"conn_type": "postgres", "host": "b"}')
    manifest = Manifest(
        pipeline="shop", changefeed_hash="c", window=Window(0, 100), grade="proven", topics=(), pinned_at_ms=1
    )
    context = ReplayContext(load_pipeline(file), Connections())
    pinned = PinnedManifest(manifest, "manifests/abc.json", "file:///abc.json", reused=False)
    written = jobspec.WrittenJob(jobspec.put(context.artifacts, decode_job(context, pinned)), "def")

    class Rig:
        leases = context.state.leases
        shared = None
        job_file = JobFile(written.uri, Connections())
        application = {
            "id": "driver",
            "attempt": "one",
            "status": "Pending",
            "has_ended": False,
            "diagnostics": "",
            "log": "its log",
        }

        def trigger(self):
            job = msgspec.to_builtins(msgspec.structs.replace(written, shared=self.shared))
            trigger = ApplicationTrigger({"pipeline_file": str(file)}, job, self.application, poll_seconds=0.05)
            trigger._task_instance = SimpleNamespace(dag_id="shop", task_id="decode", run_id="run", map_index=-1)
            return trigger

        def event(self):
            async def first():
                return await anext(self.trigger().run())

            return asyncio.run(first()).payload

        def resume(self, event):
            from ticdc_replay.airflow.operators.replay_steps import Decode
            from ticdc_replay.airflow.operators.spark_job import SparkJobOperator

            operator = SparkJobOperator(task_id="decode", step=Decode(), pipeline_file=str(file))
            return operator.resume({}, event, msgspec.to_builtins(written))

        def holders(self):
            return [lease.holder for lease in self.leases.current(CLAIMS)]

        def decoding(self):
            changelog = context.artifacts.uri(f"runs/{self.shared.run_hash}")
            return [lease.holder for lease in self.leases.current(changelog)]

    with ApiServer() as api, context:
        rig = Rig()
        rig.api = api
        extra = {"deploy-mode": "cluster", "namespace": "replay"}
        spark = {"conn_type": "spark", "host": f"k8s://{api.url}", "password": TOKEN, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
        api.pods["driver"] = pod("driver", "Running", attempt="one")
        yield rig


def renewing():
    return [thread for thread in threading.enumerate() if thread.name.startswith("lease of")]


def test_it_holds_the_lease_of_its_application_and_hands_it_on(rig):
    from ticdc_replay.submit.outcome import JobOutcome

    events = []
    thread = threading.Thread(target=lambda: events.append(rig.event()))
    thread.start()
    wait_for("the lease", lambda: rig.holders() == ["replay driver"])
    rig.job_file.put_outcome("one", JobOutcome("succeeded"))
    rig.api.pods["driver"]["status"] = {"phase": "Failed", "message": "what somebody else printed"}
    thread.join()
    assert (events[0]["status"], events[0]["diagnostics"]) == ("Failed", ""), "its driver has left a word itself"
    assert rig.holders() == ["replay driver"]
    assert renewing() == []


def test_it_holds_the_decode_that_others_wait_for(rig):
    from ticdc_replay.jobspec import SharedDecode

    rig.shared = SharedDecode("manifests/wide.json", "f" * 64)
    thread = threading.Thread(target=rig.event)
    thread.start()
    wait_for("both leases", lambda: rig.holders() == rig.decoding() == ["replay driver"])
    rig.api.pods["driver"]["status"] = {"phase": "Failed", "message": "no memory"}
    thread.join()
    assert rig.holders() == rig.decoding() == ["replay driver"]
    assert renewing() == []


def test_a_lease_that_is_lost_is_taken_again(rig, monkeypatch):
    from ticdc_replay.stages import leases

    monkeypatch.setattr(leases.replaying.__wrapped__, "__kwdefaults__", {"holder": None, "ttl_ms": 3_000})
    thread = threading.Thread(target=rig.event)
    thread.start()
    wait_for("the lease", lambda: rig.holders() == ["replay driver"])
    (lost,) = rig.leases.current(CLAIMS)
    rig.leases.release(lost)
    wait_for("another lease", lambda: [each for each in rig.leases.current(CLAIMS) if each != lost])
    rig.api.pods["driver"]["status"] = {"phase": "Failed", "message": "no memory"}
    thread.join()
    assert rig.holders() == ["replay driver"]
    assert renewing() == []


def test_what_is_away_for_a_moment_is_waited_for(rig, monkeypatch):
    from ticdc_replay.submit.outcome import JobFile

    read, refused = JobFile.read, []

    def away_once(file):
        if not refused:
            refused.append(file)
            raise TransientError("the store is away")
        return read(file)

    monkeypatch.setattr(JobFile, "read", away_once)
    rig.api.pods["driver"]["status"] = {"phase": "Failed", "message": "no memory"}
    assert rig.event()["diagnostics"] == "no memory"
    assert refused


def test_an_error_that_stays_reaches_the_task_whose_next_attempt_finds_the_application(rig):
    rig.api.failing = 403
    event = rig.event()
    with pytest.raises(
        TransientError, match=r"^decode: PermanentError: .* answered 403 .* application driver: it goes on"
    ):
        rig.resume(event)
    assert renewing() == []


def test_a_cancel_while_it_takes_the_lease_leaves_no_renewal(rig):
    trigger, taking, taken = rig.trigger(), threading.Event(), threading.Event()
    hold = trigger._hold

    def slowly(held, engine):
        taking.set()
        assert taken.wait(PATIENCE_S)
        hold(held, engine)

    trigger._hold = slowly

    async def cancelled():
        task = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.to_thread(taking.wait, 300)
        task.cancel("a message")
        await asyncio.sleep(0.1)
        taken.set()
        with pytest.raises(asyncio.CancelledError, match="a message"):
            await task

    asyncio.run(cancelled())
    assert renewing() == []


@pytest.mark.parametrize(("state", "goes_on"), [("deferred", True), ("success", False), (None, False)])
def test_an_application_is_ended_only_where_a_person_has_acted(rig, monkeypatch, state, goes_on):
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", lambda **_: {"run": {"decode": state}})
    asyncio.run(rig.trigger().on_kill())
    assert ("driver" in rig.api.pods) == goes_on


def test_an_application_is_ended_though_the_triggerer_cancels_again(rig, monkeypatch):
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    asked, answered = threading.Event(), threading.Event()

    def slowly(**_):
        asked.set()
        assert answered.wait(PATIENCE_S)
        return {"run": {"decode": "failed"}}

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", slowly)

    async def killed():
        task = asyncio.ensure_future(asyncio.wait_for(rig.trigger().on_kill(), PATIENCE_S))
        await asyncio.to_thread(asked.wait, PATIENCE_S)
        for _ in range(3):  # as a triggerer does, every second
            task.cancel()
            await asyncio.sleep(0.05)
        answered.set()
        await asyncio.to_thread(wait_for, "the end of the application", lambda: "driver" not in rig.api.pods)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(killed())
