"""What the gate between decode and load tells of what it let through."""

from ticdc_replay.domain.tables import TableName
from ticdc_replay.stages.check import CheckResult, idle_patterns

CHANGED = [TableName("shop", "orders"), TableName("shop", "items")]


def test_patterns_that_no_changed_table_matches_are_named_since_they_may_be_mistyped():
    assert idle_patterns(["shop.*", "SHOP.orders", "shop.ordres", "billing.*"], CHANGED) == ("shop.ordres", "billing.*")
    assert idle_patterns(["*.*"], []) == ("*.*",)


def test_the_summary_says_so_in_one_line():
    result = CheckResult("0123456789abcdef", 7, 0, {}, (), ("shop.ordres", "billing.*"))
    assert result.summary == (
        "changelog 0123456789ab: 7 rows; no change of a table called shop.ordres or billing.* in this window"
    )
    assert CheckResult("0123456789abcdef", 7, 0, {}, (), ()).summary == "changelog 0123456789ab: 7 rows"
