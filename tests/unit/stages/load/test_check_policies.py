"""Which reasons of the quarantine stop a run."""

import pytest

from ticdc_replay.config.pipeline import PoliciesSection
from ticdc_replay.stages.load.check import stopping_reasons


@pytest.mark.parametrize(("policy", "stops"), [("stop", True), ("quarantine", False), ("accept", False)])
def test_damaged_rows_have_a_policy_of_their_own(policy: str, stops: bool) -> None:
    policies = PoliciesSection(damaged=policy, quarantine="continue")
    assert ("row_damaged" in stopping_reasons({"row_damaged": 1, "bad_value": 2}, policies)) is stops


def test_by_default_damaged_rows_are_left_out_and_what_can_not_be_read_stops_the_run() -> None:
    assert stopping_reasons({"row_damaged": 1, "schema_unknown": 2}, PoliciesSection()) == {"schema_unknown": 2}


def test_rows_unlike_their_definition_ask_a_person_by_default() -> None:
    reasons = {"row_unlike_definition": 3, "row_damaged": 1}
    assert stopping_reasons(reasons, PoliciesSection()) == {"row_unlike_definition": 3}
    assert stopping_reasons(reasons, PoliciesSection(quarantine="continue")) == {}
