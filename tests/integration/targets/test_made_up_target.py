"""A kind of target that a package registers from outside: a pipeline plans, decodes, checks, loads and publishes with it.

``tests/data/acme-lines`` is the package, as CONTRIBUTING.md's recipe makes it; it lies on ``sys.path`` as an installed one does.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import Feed, at
from tests.support.in_process import in_process
from tests.support.replayed_windows import pipeline_for, replay
from ticdc_replay import jobspec
from ticdc_replay.airflow.dags import docs
from ticdc_replay.domain import canonical
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.load.begin_load import begin_load
from ticdc_replay.stages.load.check import ddl_stops
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.load.lineage import loaded
from ticdc_replay.stages.load.publish import publish
from ticdc_replay.stages.window.jobs import write_load_job
from ticdc_replay.stages.window.plan import plan
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration

WINDOW = Window(at(60), at(90))


@pytest.fixture
def feed(producer: Producer, make_topic: Callable[..., str]) -> Feed:
    """One row a second of ``shop.orders``, which is truncated in between."""
    feed = Feed(producer, make_topic(1, {"retention.ms": "-1"}), 1)
    feed.seconds(40, 75)
    feed.ddl(75, "TRUNCATE TABLE orders")
    feed.seconds(75, 125)
    return feed


@pytest.mark.usefixtures("made_up_target")
def test_a_pipeline_replays_into_a_target_of_another_package(feed: Feed, kafka: Kafka, tmp_path: Path) -> None:
    section = {"name": "log", "type": "lines", "uri": (tmp_path / "lines").as_uri()}
    with pipeline_for(tmp_path, kafka.bootstrap, feed.topic, targets=[section]) as context:
        (planned,) = plan(context, [WINDOW]).windows
        assert (planned.refusals, [each.table for each in planned.tables]) == ((), ["shop.orders"])

        index = replay(context, WINDOW)
        assert ddl_stops(index, context.pipeline) == {}
        job = write_load_job(context, index.run_hash, "log")
        begin_load(context, job.uri)
        spec = jobspec.decode(context.artifacts.get(job.uri.removeprefix(f"{context.artifacts_uri}/")))
        assert isinstance(spec, jobspec.LoadJob)
        report = load(spec, context.connections, in_process)
        context.artifacts.put(report.name, canonical.encode(report))
        publish(context, index.run_hash, ["log"])

        (table,) = report.tables
        lines = (tmp_path / f"lines/{index.run_hash}/shop.orders.jsonl").read_text().splitlines()
        assert [json.loads(line)["after"]["id"] for line in lines] == [second * 1000 for second in range(60, 90)]
        assert (table.events, table.upserted) == (30, 30)
        (held,) = coverage(context.pipeline, context.state)
        assert [(span.window, span.held.quality) for span in held.target.spans] == [(WINDOW, "complete")]
        assert [dataset.name for dataset in loaded(context, report).outputs] == [
            f"{tmp_path}/lines/{index.run_hash}/shop.orders.jsonl"
        ]
        assert "Lines of JSON below" in docs.dag(context.loaded)
        assert "Lines of JSON below" in docs.load("shop", context.pipeline.targets[0])
