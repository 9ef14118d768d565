"""Which reasons of the quarantine stop a run."""

import pytest

from ticdc_replay.config.pipeline import PoliciesSection
from ticdc_replay.stages.check import stopping_reasons


@pytest.mark.parametrize(("policy", "stops"), [("stop", True), ("quarantine", False), ("accept", False)])
def test_damaged_rows_have_a_policy_of_their_own(policy: str, stops: bool) -> None:
    policies = PoliciesSection(damaged=policy, quarantine="continue")
    for reason in ("row_damaged", "row_unlike_definition"):
        assert (reason in stopping_reasons({reason: 1, "bad_value": 2}, policies)) is stops


def test_by_default_damaged_rows_are_left_out_and_what_can_not_be_read_stops_the_run() -> None:
    assert stopping_reasons({"row_damaged": 1, "row_unlike_definition": 3, "schema_unknown": 2}, PoliciesSection()) == {
        "schema_unknown": 2
    }
