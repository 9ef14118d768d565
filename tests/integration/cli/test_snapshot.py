"""``ticdc-replay snapshot`` with a pin policy of its own."""

from collections.abc import Callable

import pytest

from tests.integration.cli.conftest import Shop

pytestmark = pytest.mark.integration


def test_a_run_may_end_its_window_elsewhere_than_the_pipeline_does_but_not_without_pinning_it_anew(
    make_shop: Callable[..., Shop],
) -> None:
    shop = make_shop()
    shop.feed.seconds(40, 130)
    assert "162" in shop.command("snapshot", window=shop.window).stdout
    refused = shop.command("snapshot", "--pin", "head", window=shop.window)
    assert refused.exit_code == 2
    assert "pin it anew (repin)" in refused.stderr
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
