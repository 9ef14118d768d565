"""What a report of a comparison says of its tables."""

import pytest

from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.stages.upkeep.verification import Verification, require_equal
from ticdc_replay.verify.findings import Findings, TableVerification


def test_a_range_that_was_not_examined_is_a_difference() -> None:
    found = Findings(ended=True, source_rows=50, mirror_rows=60, unexamined=1)
    table = TableVerification(table=TableName("s", "t"), mirror="s.t", at=9, findings=found)
    report = Verification(pipeline="shop", target="lake", place="p", began_ms=1, ended_ms=2, tables=(table,))
    assert not report.is_equal
    with pytest.raises(PolicyStopError, match="0 missing, 0 extra, 0 changed rows, 1 more ranges that differ"):
        require_equal(report, "file:///report.json")
