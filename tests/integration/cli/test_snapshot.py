"""``ticdc-replay snapshot`` with a pin policy of its own."""

from collections.abc import Callable

import pytest
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.integration.cli.conftest import Shop
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.integration


def test_a_run_may_end_its_window_elsewhere_than_the_pipeline_does_but_not_without_pinning_it_anew(
    make_shop: Callable[..., Shop],
) -> None:
    shop = make_shop()
    shop.feed.seconds(40, 130)
    assert "162" in shop.command("snapshot", window=shop.window).stdout
    refused = shop.command("snapshot", "--pin", "head", window=shop.window)
    assert refused.exit_code == 2
    assert "pin it again (repin)" in refused.stderr
    head = shop.command("snapshot", "--pin", "head", "--repin", window=shop.window)
    assert head.exit_code == 0, head.stderr
    assert "180" in head.stdout
    # A later run that asks for nothing takes what the window is pinned to.
    assert "180" in shop.command("snapshot", window=shop.window).stdout
    assert shop.command("snapshot", "--pin", "tail", window=shop.window).exit_code == 2


def test_a_pipeline_may_end_all_its_windows_at_the_head(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(window={"pin": "head"})
    shop.feed.seconds(40, 130)
    assert "180" in shop.command("snapshot", window=shop.window).stdout


def test_a_pipeline_that_is_to_end_windows_elsewhere_does_not_pass_for_having_done_so(
    make_shop: Callable[..., Shop],
) -> None:
    shop = make_shop()
    shop.feed.seconds(40, 130)
    assert shop.command("snapshot", window=shop.window).exit_code == 0
    shop.file.write_text(yaml.safe_dump(yaml.safe_load(shop.file.read_text()) | {"window": {"pin": "head"}}))
    refused = shop.command("snapshot", "--pin", "head", window=shop.window)
    assert (refused.exit_code, "not with the policy head" in refused.stderr) == (2, True)
    assert shop.command("snapshot", "--pin", "first", window=shop.window).exit_code == 0


def test_a_window_that_is_pinned_to_kafka_is_not_taken_from_changelogs_without_pinning_it_anew(
    make_shop: Callable[..., Shop],
) -> None:
    shop = make_shop()
    shop.feed.seconds(40, 130)
    assert shop.command("snapshot", window=shop.window).exit_code == 0
    refused = shop.command("snapshot", "--from-changelog", window=shop.window)
    assert (refused.exit_code, "not to changelogs" in refused.stderr) == (2, True)
    both = shop.command("snapshot", "--from-changelog", "--pin", "first", "--repin", window=shop.window)
    assert (both.exit_code, "leave out the pin policy" in both.stderr) == (2, True)


def test_a_window_that_has_a_manifest_is_not_waited_for_though_kafka_has_expired_all_of_it(
    make_shop: Callable[..., Shop], kafka: Kafka
) -> None:
    shop = make_shop()
    shop.feed.seconds(40, 130)
    assert shop.command("snapshot", window=shop.window).exit_code == 0
    everything = TopicPartition(shop.feed.topic, 0, -1)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([everything])[everything].result(PATIENCE_S)
    again = shop.command("snapshot", window=shop.window)
    assert (again.exit_code, "162" in again.stdout) == (0, True), again.stderr
    anew = shop.command("snapshot", "--repin", window=shop.window)
    assert (anew.exit_code, "is not complete in Kafka" in anew.stderr) == (2, True)
