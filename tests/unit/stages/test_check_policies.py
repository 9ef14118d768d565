"""Which reasons of the quarantine stop a run."""

import pytest

from ticdc_replay.changelog.index import ChangelogIndex, DecodeReport, EventCounts, MessageCounts
from ticdc_replay.config.pipeline import PoliciesSection
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.check import stopping_reasons


def index(**reasons: int) -> ChangelogIndex:
    report = DecodeReport(
        messages=MessageCounts(),
        events=EventCounts(),
        quarantine_reasons=reasons,
        watermark=None,
        undeclared_tables=(),
    )
    return ChangelogIndex(
        pipeline="p",
        run_hash="r",
        input_hash="i",
        library_version="1",
        window=Window(1, 2),
        ranges=(),
        tables=(),
        ddl=(),
        changes=(),
        quarantine_files=(),
        reference_files=(),
        sparse_index_files=(),
        report=report,
    )


@pytest.mark.parametrize(("policy", "stops"), [("stop", True), ("quarantine", False), ("accept", False)])
def test_damaged_rows_have_a_policy_of_their_own(policy: str, stops: bool) -> None:
    policies = PoliciesSection(damaged=policy, quarantine="continue")
    assert ("row_damaged" in stopping_reasons(index(row_damaged=1, bad_value=2), policies)) is stops


def test_by_default_damaged_rows_are_left_out_and_what_can_not_be_read_stops_the_run() -> None:
    assert stopping_reasons(index(row_damaged=1, schema_unknown=2), PoliciesSection()) == {"schema_unknown": 2}
