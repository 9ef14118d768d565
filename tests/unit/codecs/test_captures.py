"""Every protocol, as TiCDC's own encoders write it, decodes to what happened in the database."""

import os
from pathlib import Path

import pytest

from tests.support.capture_differences import read
from tests.support.capture_sets import COMMITTED, CaptureSets, Committed

_more = os.environ.get("TICDC_REPLAY_CAPTURES")
MORE_CAPTURES = [
    path.parent
    for path in sorted(Path(_more).glob("*/*/*/meta.json") if _more else ())
    if not path.parent.name.startswith("workload")  # they come with the table at the end, not with events
]


@pytest.mark.parametrize("capture", COMMITTED, ids=str)
def test_every_event_of_a_capture_is_the_expected_one(captures: CaptureSets, capture: Committed) -> None:
    assert read(captures.of(capture)).problems == []


@pytest.mark.parametrize("folder", MORE_CAPTURES, ids=str)
def test_every_event_of_other_captures_is_the_expected_one(folder: Path) -> None:
    assert read(folder).problems == []
