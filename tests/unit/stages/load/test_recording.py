"""What the state store is told of a decode, and of what windows share."""

from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.support.quarantine_files import TOPIC, index_with, quarantine
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.side_files import SPARSE_INDEX
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.reconcile.judge.rules import ReplayableRange
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource, PartitionPin, SharedInput, TopicPin
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.recording import finish_run, record_decode
from ticdc_replay.stages.window.derive import register
from ticdc_replay.state.runs import Run
from ticdc_replay.store_stages.replayable import find_replayable, replayable_ranges

SPAN, FIRST, LATER = Window(0, 600), Window(0, 100), Window(200, 300)
RANGE = OffsetRange("topic", 0, 0, 10)
NEEDED = (ReplayableRange("topic", TOPIC.topic_id, 0, 4, 5, TOPIC.cluster_id),)


def pinned(context: ReplayContext, window: Window, **members: Any) -> Manifest:
    partitions = () if "shared" in members else (PartitionPin(RANGE, True, 600, None),)
    manifest = Manifest(
        pipeline="shop",
        changefeed_hash=context.changefeed.hash,
        window=window,
        grade="proven",
        topics=(TopicPin("topic", TOPIC.topic_id, partitions),),
        cluster_id=TOPIC.cluster_id,
        pinned_at_ms=1,
        **members,
    )
    return register(context, manifest, None).manifest


def written(
    context: ReplayContext, run: str, manifest: Manifest, *rows: dict[str, Any], **members: Any
) -> ChangelogIndex:
    """What a decode of *manifest* leaves, with *rows* in quarantine."""
    made = index_with(context.artifacts, run, *rows)
    made.report.events.quarantined = len(rows)
    index = msgspec.structs.replace(
        made,
        pipeline="shop",
        input_hash=manifest.input_hash,
        window=manifest.window,
        quarantine_files=made.quarantine_files if rows else (),
        unsearched=(),
        **members,
    )
    context.artifacts.put(f"runs/{run}/index.json", canonical.encode(index))
    return index


def shared(context: ReplayContext, *rows: dict[str, Any]) -> ManifestSource:
    """The changelog that windows share."""
    files = ("sparse_index/a.parquet",)
    index = written(context, "shared", pinned(context, SPAN), *rows, ranges=(RANGE,), sparse_index_files=files)
    filesystem, base = context.artifacts.arrow_filesystem()
    filesystem.create_dir(f"{base}/runs/shared/sparse_index")
    pq.write_table(SPARSE_INDEX.empty_table(), f"{base}/runs/shared/{files[0]}", filesystem=filesystem)
    return ManifestSource("shared", canonical.hash_of(index), SPAN)


def taken(context: ReplayContext, window: Window, source: ManifestSource) -> ChangelogIndex:
    """The changelog of *window*, which is taken from *source*, and has nothing of its quarantine."""
    wide = pinned(context, SPAN)
    manifest = pinned(context, window, shared=SharedInput(f"manifests/{wide.input_hash}.json", wide.input_hash, SPAN))
    source = msgspec.structs.replace(source, window=window)
    return written(context, f"of {window.from_ts}", manifest, derived=(source,))


def known(context: ReplayContext, run_hash: str) -> Run:
    run = context.state.runs.get("shop", run_hash)
    assert run is not None
    return run


def test_what_a_shared_decode_sets_aside_when_it_is_done_again_is_recorded_and_needed(context: ReplayContext) -> None:
    """Its files went, and Kafka has what it was decoded from still: the next window brings it again."""
    record_decode(context, taken(context, FIRST, shared(context)))
    assert replayable_ranges(context) == find_replayable(context).ranges == ()
    again = shared(context, quarantine(4, 0, "claim_check_missing"))
    record_decode(context, taken(context, LATER, again))
    assert known(context, "shared").counts["events_quarantined"] == 1
    assert replayable_ranges(context) == find_replayable(context).ranges == NEEDED


def test_a_run_that_others_are_taken_from_stays_finished(context: ReplayContext) -> None:
    source = shared(context)
    record_decode(context, taken(context, FIRST, source))
    finish_run(context, "shared", 7)
    before = known(context, "shared")
    assert (before.status, before.counts["load_ms"]) == ("done", 7)
    record_decode(context, taken(context, LATER, source))
    assert known(context, "shared") == before


@pytest.mark.parametrize("gone", ["index.json", "sparse_index/a.parquet", "quarantine/a.parquet"])
def test_a_window_is_recorded_though_files_of_what_it_is_taken_from_are_gone_since(
    context: ReplayContext, gone: str
) -> None:
    index = taken(context, FIRST, shared(context, quarantine(4, 0, "claim_check_missing")))
    record_decode(context, index)
    before = known(context, "shared")
    context.artifacts.delete(f"runs/shared/{gone}")
    record_decode(context, index)
    assert known(context, "shared") == before


def test_a_window_is_not_recorded_without_what_it_is_taken_from(context: ReplayContext) -> None:
    index = taken(context, FIRST, shared(context))
    context.artifacts.delete("runs/shared/index.json")
    with pytest.raises(ArtifactNotFoundError):
        record_decode(context, index)
