"""``ticdc-replay plan``: what windows would cost, and what they would stop at."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.integration.cli.conftest import Shop
from tests.integration.snapshot.feed import START_MS, at
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain import tso
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.state.runs import Run

pytestmark = pytest.mark.integration

OBJECTS = [f"{number:08x}-0000-4000-8000-000000000000.json" for number in range(2)]


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """One row and one resolved-ts a second in each of two partitions."""
    shop = make_shop(2)
    shop.feed.seconds(40, 125)
    return shop


def plan_of(shop: Shop, *options: str, window: Window | None = None) -> tuple[int, dict[str, Any]]:
    """Exit code and plan."""
    done = shop.command("plan", "--json", *options, window=window or shop.window)
    assert done.stdout, (done.stderr, done.exception)
    return done.exit_code, json.loads(done.stdout)


def test_a_plan_tells_what_a_window_holds_and_keeps_nothing(shop: Shop) -> None:
    code, plan = plan_of(shop, "--cores", "4")
    (window,) = plan["windows"]
    assert (code, plan["is_refused"], window["refusals"], window["grade"]) == (0, False, [], "proven")
    assert (window["input"], window["partitions"], window["messages"]) == ("kafka", 2, 304)
    assert 120 <= window["rows"] <= 180
    assert window["wanted"] <= window["rows"]
    assert [(table["table"], table["is_known"]) for table in window["tables"]] == [("shop.orders", False)]
    assert window["tables"][0]["rows"] == window["wanted"]
    assert window["bytes"] > 10_000
    assert window["seconds"] > 0
    assert "open-protocol on 4 cores" in plan["rates"]
    assert shop.context().state.manifests.of_window("shop", shop.window) is None
    assert list((shop.folder / "artifacts").rglob("*.json")) == []
    shown = shop.command("plan", window=shop.window).stdout
    assert "304 messages" in shown
    assert "shop.orders: 100 %" in shown


def test_windows_of_a_backfill_are_told_one_by_one_and_together(shop: Shop) -> None:
    begin = tso.from_ms(START_MS + 60_000)
    code, plan = plan_of(shop, "--every", "1m", window=Window(begin, tso.from_ms(START_MS + 240_000)))
    assert code == 0
    first, second, third = plan["windows"]
    assert first["messages"] == 304
    assert (second["waits_for"] is None, third["waits_for"] is None) == (False, False)
    shown = shop.command("plan", "--every", "1m", window=Window(begin, tso.from_ms(START_MS + 240_000))).stdout
    assert "3 windows: 304 messages" in shown
    assert "the run would wait: resolved-ts to reach" in shown
    assert shop.command("plan", "--every", "1w", window=shop.window).exit_code == 2


def test_a_plan_is_for_the_tables_and_the_end_that_the_run_would_have(shop: Shop) -> None:
    _, narrow = plan_of(shop, "--table", "shop.items", "--pin", "head")
    (window,) = narrow["windows"]
    assert (window["wanted"], window["tables"], window["messages"]) == (0, [], 320)
    assert window["rows"] > 0


def test_the_rates_of_earlier_runs_count_before_those_of_benchmarks(shop: Shop) -> None:
    _, before = plan_of(shop)
    counts = {"messages_bytes": 1_000, "decode_ms": 10_000, "events_written": 10, "load_ms": 1_000}
    shop.context().state.runs.record(
        Run(
            pipeline="shop",
            run_hash="r",
            window=Window(1, 2),
            input_hash="i",
            status="done",
            started_at_ms=1,
            counts=counts,
        )
    )
    _, plan = plan_of(shop)
    assert plan["rates"] == "rates of the last 1 run of this pipeline"
    (window,) = plan["windows"]
    assert window["seconds"] == pytest.approx(40 + window["bytes"] / 100 + window["wanted"] / 10)
    assert window["seconds"] > before["windows"][0]["seconds"]


def expire(kafka: Kafka, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    cut = TopicPartition(topic, 0, offset)
    admin.delete_records([cut])[cut].result(PATIENCE_S)


def test_a_window_that_kafka_has_expired_is_refused_pinned_before_or_not(shop: Shop, kafka: Kafka) -> None:
    pin(shop.context(), Window(at(61), at(120)))
    code, plan = plan_of(shop, window=Window(at(61), at(120)))
    assert (code, plan["windows"][0]["input"]) == (0, "manifest")
    expire(kafka, shop.feed.topic, 100)
    for window, says in (
        (shop.window, "oldest time that can be replayed"),
        (Window(at(61), at(120)), "Kafka has removed"),
    ):
        code, plan = plan_of(shop, window=window)
        assert (code, plan["is_refused"]) == (1, True)
        assert says in plan["windows"][0]["refusals"][0]
        assert "refused: 1 of 1 windows can't be replayed completely" in shop.command("plan", window=window).stdout


def test_a_window_that_can_not_be_proven_is_refused_where_the_policy_stops(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop()
    shop.feed.seconds(70, 125)
    code, plan = plan_of(shop)
    assert code == 1
    assert "can't be proven complete" in plan["windows"][0]["refusals"][0]
    assert plan["windows"][0]["grade"] == "unproven"
    code, plan = plan_of(make_shop_allowing(shop))
    assert (code, plan["windows"][0]["grade"], len(plan["windows"][0]["reasons"])) == (0, "unproven", 1)


def make_shop_allowing(shop: Shop) -> Shop:
    text = shop.file.read_text()
    shop.file.write_text(text + "policies: {unproven: allow}\n")
    return shop


def test_a_topic_that_is_gone_and_spark_properties_that_can_not_be_are_refused(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(spark={"conf": {"executor.memory": "4g", "spark.executor.memory": "lots"}})
    shop.file.write_text(shop.file.read_text().replace(f"9092/{shop.feed.topic}", "9092/no-such-topic"))
    code, plan = plan_of(shop)
    refusals = plan["windows"][0]["refusals"]
    assert code == 1
    assert len(refusals) == 3
    assert "executor.memory: 4g: spark-submit passes over" in refusals[0]
    assert "spark.executor.memory: lots: is not a size" in refusals[1]
    assert "no-such-topic does not exist" in refusals[2]


def test_rows_of_which_only_the_key_was_sent_are_refused_unless_something_makes_them_whole(shop: Shop) -> None:
    for second in range(41, 125):
        shop.feed.row(0, second, only_key=True)
    shop.feed.flush()
    code, plan = plan_of(shop, "--pin", "head")
    assert code == 1
    assert "have only their key" in plan["windows"][0]["refusals"][0]
    shop.file.write_text(shop.file.read_text() + "policies: {handle_key_only: quarantine}\n")
    assert plan_of(shop, "--pin", "head")[0] == 0


def test_claim_check_objects_are_counted_by_a_sample_and_refused_where_they_are_gone(shop: Shop) -> None:
    for name in OBJECTS:
        (Path(shop.claims) / name).write_bytes(b"x" * 1_000)
    for second in range(41, 125):
        shop.feed.row(0, second, claim_check=f"{shop.claims.as_uri()}/{OBJECTS[second % 2]}")
    shop.feed.flush()
    code, plan = plan_of(shop, "--pin", "head")
    (window,) = plan["windows"]
    assert code == 0
    assert 20 <= window["claim_checks"] <= 120
    assert window["claim_check_bytes"] == 1_000 * window["claim_checks"]
    for name in OBJECTS:
        (shop.claims / name).unlink()
    code, plan = plan_of(shop, "--pin", "head")
    assert code == 1
    assert "claim-check objects are gone: 2 of 2 in a sample" in plan["windows"][0]["refusals"][0]
