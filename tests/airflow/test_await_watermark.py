"""Waiting for a window: the task looks first, then the trigger waits, and what it saw decides what the task does."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest

from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import (
    AuthenticationError,
    ConfigError,
    PermanentError,
    PolicyStopError,
    WatermarkNotReachedError,
)

pytestmark = pytest.mark.airflow

HOUR = (datetime(2026, 3, 1, 0, tzinfo=UTC), datetime(2026, 3, 1, 1, tzinfo=UTC))
FROM_TS, TO_TS = map(tso.from_datetime, HOUR)
ANSWERS = {"from": None, "to": None, "tables": ["shop.*"], "targets": ["lake"]}
ANSWERS |= {"dry_run": False, "repin": False, "reload": False, "pin": None}
CONTEXT = {"params": ANSWERS, "data_interval_start": HOUR[0], "data_interval_end": HOUR[1]}


def resolved(commit_ts):
    """An Open Protocol watermark: key and value of its message."""
    event = json.dumps({"ts": commit_ts, "t": 3}).encode()
    return (1).to_bytes(8, "big") + len(event).to_bytes(8, "big") + event, bytes(8)


@pytest.fixture
def topic(kafka, make_topic, pipelines, monkeypatch):
    """A topic with one partition for the pipeline ``live``, and how TiCDC's watermark moves in it."""
    from confluent_kafka import Producer

    name = make_topic(1, {"retention.ms": "-1"})  # the records are months old
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_KAFKA", json.dumps({"conn_type": "kafka", "host": kafka.bootstrap}))
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "postgres", "host": "db"}))
    pipelines.add(
        "live",
        {
            "changefeed": {"sink_uri": f"kafka://b/{name}?protocol=open-protocol&partition-num=1", "timezone": "UTC"},
            "artifacts": pipelines.path.as_uri(),
        },
    )

    class Topic:
        def reaches(self, commit_ts):
            producer = Producer({"bootstrap.servers": kafka.bootstrap})
            key, value = resolved(commit_ts)
            producer.produce(name, key=key, value=value, timestamp=tso.physical_ms(commit_ts) + 350)
            assert producer.flush(PATIENCE_S) == 0

    topic = Topic()
    topic.reaches(FROM_TS)
    return topic


@pytest.fixture
def task(pipelines):
    from ticdc_replay.airflow.operators.await_watermark import AwaitWatermarkOperator

    return AwaitWatermarkOperator(task_id="await_watermark", pipeline_file=str(pipelines.path / "live.yaml"), dag=None)


def trigger(pipelines, seconds):
    from ticdc_replay.airflow.trigger import WatermarkTrigger

    made = WatermarkTrigger(
        str(pipelines.path / "live.yaml"),
        FROM_TS,
        TO_TS,
        poll_seconds=1,
        deadline=(datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(),
    )
    path, arguments = made.serialize()
    assert path == "ticdc_replay.airflow.trigger.WatermarkTrigger"
    return WatermarkTrigger(**json.loads(json.dumps(arguments)))


async def first_event(made):
    return (await anext(made.run())).payload


@pytest.mark.parametrize("operator", ["await_watermark.AwaitWatermarkOperator", "snapshot.SnapshotOperator"])
def test_a_run_for_tables_that_the_pipeline_does_not_have_fails_at_once(pipelines, monkeypatch, operator):
    module, _, name = operator.partition(".")
    kind = getattr(import_module(f"ticdc_replay.airflow.operators.{module}"), name)
    for connection in ("SHOP_KAFKA", "WAREHOUSE"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{connection}", json.dumps({"conn_type": "kafka", "host": "192.0.2.1"}))
    pipelines.add("live", {"artifacts": pipelines.path.as_uri()})
    task = kind(task_id="t", pipeline_file=str(pipelines.path / "live.yaml"), dag=None)
    with pytest.raises(ConfigError, match=r"tables hr\.people, which no pattern of pipeline live covers: shop\.\*"):
        task.execute(CONTEXT | {"params": ANSWERS | {"tables": ["shop.orders", "hr.people"]}})


@pytest.mark.integration
def test_a_window_that_is_complete_is_not_deferred(topic, task):
    topic.reaches(TO_TS)
    assert "reached" in task.execute(CONTEXT)


@pytest.mark.integration
def test_a_window_that_is_not_complete_is_left_to_the_trigger(topic, task):
    from airflow.sdk.exceptions import TaskDeferred

    with pytest.raises(TaskDeferred) as deferred:
        task.execute(CONTEXT)
    assert deferred.value.method_name == "resume"
    _, arguments = deferred.value.trigger.serialize()
    assert set(arguments) == {"pipeline_file", "from_ts", "to_ts", "poll_seconds", "deadline"}
    wait = datetime.fromisoformat(arguments["deadline"]) - datetime.now(UTC)
    assert timedelta(minutes=239) < wait <= timedelta(minutes=240)


@pytest.mark.integration
def test_a_window_that_has_a_manifest_is_not_waited_for_unless_it_is_pinned_anew(topic, task, pipelines):
    from airflow.sdk.exceptions import TaskDeferred

    from ticdc_replay.domain.window import Window
    from ticdc_replay.state import open_state
    from ticdc_replay.state.manifests import WindowManifest

    state = open_state(f"sqlite:///{pipelines.path}/state.db")
    state.manifests.register(WindowManifest("live", Window(FROM_TS, TO_TS), "f" * 64, "manifests/f.json", 1))
    state.close()
    assert "has a manifest already" in task.execute(CONTEXT)
    with pytest.raises(TaskDeferred):
        task.execute(CONTEXT | {"params": ANSWERS | {"repin": True}})


@pytest.mark.integration
def test_the_trigger_fires_when_the_watermark_comes(topic, pipelines):
    async def scenario():
        waiting = asyncio.create_task(first_event(trigger(pipelines, 60)))
        await asyncio.sleep(3)
        assert not waiting.done()
        await asyncio.to_thread(topic.reaches, TO_TS)
        return await waiting

    assert asyncio.run(scenario())["outcome"] == "reached"


@pytest.mark.integration
def test_the_trigger_gives_up_at_its_deadline_and_says_where_it_stands(topic, pipelines):
    event = asyncio.run(first_event(trigger(pipelines, 0)))
    assert event["outcome"] == "late"
    assert event["message"]


def test_an_error_that_will_not_pass_ends_the_wait(pipelines, monkeypatch):
    pipelines.add("live", {"connections": {"kafka": "nowhere"}})
    event = asyncio.run(first_event(trigger(pipelines, 60)))
    assert (event["outcome"], event["error"]) == ("failed", "ConfigError")
    assert "'nowhere' is not defined in Airflow" in event["message"]


@pytest.mark.parametrize(
    ("event", "error", "message"),
    [
        ({"outcome": "late", "message": "partition 0 is at X"}, WatermarkNotReachedError, "partition 0 is at X"),
        ({"outcome": "failed", "error": "AuthenticationError", "message": "no"}, AuthenticationError, "no"),
        ({"outcome": "failed", "error": "SomethingNew", "message": "no"}, PermanentError, "no"),
    ],
)
def test_the_task_fails_with_what_the_trigger_saw(task, event, error, message):
    with pytest.raises(error, match=message):
        task.resume(CONTEXT, event)


def test_the_task_goes_on_when_the_watermark_came(task):
    assert task.resume(CONTEXT, {"outcome": "reached", "message": "all there"}) == "all there"


def test_a_watermark_that_does_not_come_is_not_waited_for_twice():
    from airflow.sdk import RetryAction

    from ticdc_replay.airflow.dags.arguments import retry_policy
    from ticdc_replay.domain import errors

    policy = retry_policy()
    actions = {
        kind: policy.evaluate(kind("x"), 1, 3).action
        for kind in (errors.WatermarkNotReachedError, errors.PolicyStopError, errors.TransientError, ValueError)
    }
    assert actions == {
        errors.WatermarkNotReachedError: RetryAction.FAIL,
        errors.PolicyStopError: RetryAction.FAIL,
        errors.TransientError: RetryAction.RETRY,
        ValueError: RetryAction.DEFAULT,
    }


@pytest.fixture
def snapshot(pipelines):
    from ticdc_replay.airflow.operators.snapshot import SnapshotOperator

    return SnapshotOperator(task_id="snapshot", pipeline_file=str(pipelines.path / "live.yaml"), dag=None)


DRY = CONTEXT | {"params": ANSWERS | {"dry_run": True}}


@pytest.mark.integration
def test_a_dry_run_waits_for_nothing_and_says_so(topic, task, snapshot):
    assert "1 lagging" in task.execute(DRY)
    summary = snapshot.execute(DRY)
    assert (summary["complete_in_kafka"], summary["messages"], summary["grade"]) == (False, 0, None)


@pytest.mark.integration
def test_a_dry_run_fails_where_the_run_could_not_be_complete(topic, snapshot, pipelines):
    file = pipelines.path / "live.yaml"
    file.write_text(file.read_text().replace("b/topic-", "b/no-topic-"))
    with pytest.raises(PolicyStopError, match=r"can't be replayed completely: topic no-topic-\S+ does not exist"):
        snapshot.execute(DRY)
