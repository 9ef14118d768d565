"""Every protocol, as TiCDC's own encoders write it, decodes to what happened in the database."""

import gc
import os
import weakref
from pathlib import Path

import pytest

from tests.support.capture_differences import read
from tests.support.capture_sets import COMMITTED, CaptureSets, Committed
from ticdc_replay.captures import Capture
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import lookup_in

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


@pytest.mark.parametrize("capture", {(one.archive, one.architecture): one for one in COMMITTED}.values(), ids=str)
def test_a_codec_is_freed_with_its_last_reference(captures: CaptureSets, capture: Committed) -> None:
    """Splits are decoded without the search for cycles: what a cycle holds, such as a registry's client, would stay."""
    found = Capture(captures.of(capture))
    gc.collect()
    gc.disable()
    try:
        lookup = lookup_in(found, 1 << 20)
        codec = codec_for(found.changefeed(), 1 << 20, lookup)
        for message in found.messages():
            codec.decode(message)
        held = weakref.ref(codec), weakref.ref(lookup.writer_schemas)
        del codec, lookup
        assert [each() for each in held] == [None, None]
    finally:
        gc.enable()
