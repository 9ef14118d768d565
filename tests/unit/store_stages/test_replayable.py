"""Which expired messages are still needed: of decodes that run, and of what they set aside."""

import time

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.file_pipelines import CLAIMS
from tests.support.quarantine_files import TOPIC, index_with, quarantine
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.set_aside import MESSAGES
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.reconcile.judge.rules import ReplayableRange
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, PinnedFile, RedrivenMessages, TopicPin
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.leases import Replayed, replaying
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.quarantine import AcceptedLoss, Redrive
from ticdc_replay.state.runs import Run
from ticdc_replay.store_stages import replayable
from ticdc_replay.store_stages.replayable import find_replayable, replayable_ranges

WINDOW = Window(1, 2)


def part(start: int, end: int, partition: int = 0) -> ReplayableRange:
    return ReplayableRange("topic", TOPIC.topic_id, partition, start, end, TOPIC.cluster_id)


def pin(context: ReplayContext, *ranges: OffsetRange, redrive: RedrivenMessages | None = None) -> str:
    """Put the manifest of *ranges*; its name."""
    topic = TopicPin("topic", TOPIC.topic_id, tuple(PartitionPin(each, True, None, None) for each in ranges))
    manifest = Manifest(
        pipeline="shop",
        changefeed_hash="c",
        window=WINDOW,
        grade="proven",
        topics=(topic,),
        cluster_id=TOPIC.cluster_id,
        redrive=redrive,
        pinned_at_ms=1,
    )
    name = f"manifests/{manifest.input_hash}.json"
    context.artifacts.put_once(name, canonical.encode(manifest))
    return name


def decoded(context: ReplayContext, run: str, *offsets: int, **changed: object) -> ChangelogIndex:
    """A complete changelog which set the messages at *offsets* aside, and searched the bytes of all."""
    rows = [quarantine(offset, None, "bad_value") for offset in offsets]
    made = index_with(context.artifacts, run, *rows)
    index = msgspec.structs.replace(made, **{"unsearched": (), "search": SEARCH, **changed})
    context.artifacts.put(f"runs/{run}/index.json", canonical.encode(index))
    return index


def recorded(context: ReplayContext, run: str, *offsets: int, **changed: object) -> ChangelogIndex:
    """As ``decoded``, and the state store knows it."""
    index = decoded(context, run, *offsets, **changed)
    record(context, index, len(offsets))
    return index


def record(context: ReplayContext, index: ChangelogIndex, quarantined: int) -> None:
    run = index.run_hash
    context.state.runs.record(
        Run(
            pipeline="shop", run_hash=run, window=index.window, input_hash=index.input_hash, status="running",
            started_at_ms=1, index=f"runs/{run}/index.json", counts={"messages_quarantined": quarantined},
        )
    )  # fmt: skip


def accept(context: ReplayContext, offset: int, reason: str = "bad_value") -> None:
    loss = AcceptedLoss("shop", TOPIC, 0, offset, -1, reason, "run", "Ada", "why", "accepted/a.json", 1)
    context.state.quarantine.record_accepted_losses([loss])


def redriven(context: ReplayContext, run: str, *offsets: int, left: tuple[int, ...] = (), **changed: object) -> None:
    """A re-drive of the messages at *offsets* of the run ``run``, and what it *left*."""
    rows = [
        {"topic": "topic", "partition": 0, "offset": offset, "timestamp_ms": 1, "ordinals": None} for offset in offsets
    ]
    filesystem, base = context.artifacts.arrow_filesystem()
    filesystem.create_dir(f"{base}/redriven", recursive=True)
    pq.write_table(pa.Table.from_pylist(rows, MESSAGES), f"{base}/redriven/{run}.parquet", filesystem=filesystem)
    messages = PinnedFile(context.artifacts.uri(f"redriven/{run}.parquet"), run, len(rows))
    name = pin(context, redrive=RedrivenMessages("run", 1, messages))
    input_hash = name.removeprefix("manifests/").removesuffix(".json")
    recorded(context, run, *left, redrives="run", input_hash=input_hash, **changed)
    context.state.quarantine.record_redrive(Redrive("shop", "run", run, "", 1))


def lapse(context: ReplayContext, manifest: str, run: str) -> None:
    """Let somebody who watched a decode die."""
    subject = Replayed("shop", manifest, run).subject
    lease = context.state.leases.acquire(CLAIMS, f"watcher of {run}", "replay", subject, 1)
    while time.time() * 1000 <= lease.expires_at_ms:
        time.sleep(0.001)


def test_what_a_running_decode_reads_is_needed_until_it_ends(context: ReplayContext) -> None:
    name = pin(context, OffsetRange("topic", 0, 3, 9), OffsetRange("topic", 1, 0, 4), OffsetRange("topic", 2, 5, 5))
    assert replayable_ranges(context) == ()
    with replaying(context, name, "def"):
        assert find_replayable(context).decoding == replayable_ranges(context) == (part(3, 9), part(0, 4, 1))
    assert replayable_ranges(context) == ()


def test_a_replay_of_another_pipeline_on_the_store_is_told_by_that_pipeline(context: ReplayContext) -> None:
    subject = Replayed("billing", "manifests/of another.json", "def").subject
    context.state.leases.acquire(CLAIMS, "somebody", "replay", subject, 600_000)
    context.state.leases.acquire(CLAIMS, "somebody else", "deletion", "plan", 600_000)
    assert replayable_ranges(context) == ()


def test_a_decode_whose_manifest_is_gone_lets_nothing_be_judged(context: ReplayContext) -> None:
    with replaying(context, "manifests/gone.json", "def"), pytest.raises(ArtifactNotFoundError):
        replayable_ranges(context)


def test_a_driver_that_outlived_its_watcher_may_read_on_but_not_for_ever(
    context: ReplayContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    lapse(context, pin(context, OffsetRange("topic", 0, 3, 9)), "def")
    assert replayable_ranges(context) == (part(3, 9),)
    monkeypatch.setattr(replayable, "_DRIVER_OUTLIVES_MS", 0)
    assert replayable_ranges(context) == ()


def test_what_a_decode_set_aside_is_needed_though_its_watcher_died_before_it_was_recorded(
    context: ReplayContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayable, "_DRIVER_OUTLIVES_MS", 0)
    lapse(context, pin(context, OffsetRange("topic", 0, 3, 9)), "run")
    index = decoded(context, "run", 4, 5)
    assert replayable_ranges(context) == (part(4, 6),)
    record(context, index, 2)
    accept(context, 4)
    assert replayable_ranges(context) == (part(5, 6),)


def test_what_a_run_sets_aside_that_is_decoded_anew_is_needed_whatever_is_recorded_of_it(
    context: ReplayContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files went and Kafka has the range still. This time an object is missing, and the watcher dies."""
    monkeypatch.setattr(replayable, "_DRIVER_OUTLIVES_MS", 0)
    recorded(context, "run", quarantine_files=())
    decoded(context, "run", 4)
    assert find_replayable(context).ranges == (part(4, 5),)
    lapse(context, pin(context, OffsetRange("topic", 0, 3, 9)), "run")
    assert find_replayable(context).ranges == replayable_ranges(context) == (part(4, 5),)


def test_what_a_re_drive_left_is_needed_though_the_run_is_decoded_anew_without_a_quarantine(
    context: ReplayContext,
) -> None:
    recorded(context, "run", 4, 7)
    redriven(context, "again", 4, 7, left=(7,))
    decoded(context, "run", quarantine_files=())
    assert find_replayable(context).ranges == replayable_ranges(context) == (part(7, 8),)


def test_quarantined_messages_are_needed_until_somebody_accepts_their_loss(context: ReplayContext) -> None:
    recorded(context, "run", 4, 7)
    assert find_replayable(context).quarantined == replayable_ranges(context) == (part(4, 5), part(7, 8))
    accept(context, 4)
    accept(context, 7, "another reason")
    assert replayable_ranges(context) == (part(7, 8),)


def test_all_the_way_of_a_deletion_a_run_that_set_nothing_aside_is_not_opened(context: ReplayContext) -> None:
    recorded(context, "run")
    context.artifacts.put("runs/run/index.json", b"not JSON")
    assert replayable_ranges(context) == ()


def test_what_was_pinned_anew_has_another_run(context: ReplayContext) -> None:
    recorded(context, "run", 4)
    context.state.manifests.register(WindowManifest("shop", WINDOW, "i", "manifests/i.json", 1))
    assert replayable_ranges(context) == (part(4, 5),)
    before = context.state.manifests.of_window("shop", WINDOW)
    name = pin(context, OffsetRange("topic", 0, 3, 9))
    context.state.manifests.register(WindowManifest("shop", WINDOW, "j", name, 2), replaces=before)
    assert replayable_ranges(context) == ()
    context.artifacts.delete(name)
    assert replayable_ranges(context) == (part(4, 5),), "nothing tells what the window takes its rows from"


def test_what_came_out_of_quarantine_is_still_needed_by_targets_to_come(context: ReplayContext) -> None:
    recorded(context, "run", 4, 7)
    redriven(context, "again", 4, 7, left=(7,))
    assert replayable_ranges(context) == (part(4, 5), part(7, 8))


def test_a_re_drive_that_runs_needs_its_messages_though_their_loss_is_accepted_meanwhile(
    context: ReplayContext,
) -> None:
    recorded(context, "run", 4, 7)
    redriven(context, "again", 4)
    for offset in (4, 7):
        accept(context, offset)
    assert replayable_ranges(context) == ()
    index = context.state.runs.get("shop", "again")
    assert index is not None
    with replaying(context, f"manifests/{index.input_hash}.json", "again"):
        assert find_replayable(context).decoding == (part(4, 5),)


def test_a_removed_run_needs_nothing(context: ReplayContext) -> None:
    index = recorded(context, "run", 4)
    for name in (*index.files(), "index.json"):
        context.artifacts.delete(f"runs/run/{name}")
    assert replayable_ranges(context) == ()


def test_a_run_of_which_the_quarantine_is_gone_needs_all_as_long_as_it_has_an_index(context: ReplayContext) -> None:
    ranges = (OffsetRange("topic", 0, 0, 20),)
    index = recorded(context, "run", 4, ranges=ranges)
    context.artifacts.delete(f"runs/run/{index.quarantine_files[0]}")
    assert find_replayable(context).quarantined == find_replayable(context).unsearchable == (part(0, 20),)


def test_quarantined_messages_whose_references_nobody_knows_are_told(context: ReplayContext) -> None:
    recorded(context, "run", 4, 7, unsearched=(OffsetRange("topic", 0, 7, 8), OffsetRange("topic", 1, 4, 5)))
    assert find_replayable(context).unsearchable == (part(7, 8),)
    accept(context, 7)
    assert find_replayable(context).unsearchable == ()


def test_a_version_that_searched_nothing_knows_nothing(context: ReplayContext) -> None:
    recorded(context, "run", 4, unsearched=None)
    assert find_replayable(context).unsearchable == (part(4, 5),)


@pytest.mark.parametrize(
    ("protocol", "schemas", "known"),
    [("canal-json", {}, True), ("canal-json", {"1": "sha"}, False), ("debezium", {}, False), ("avro", {}, False)],
)
def test_a_version_that_searched_with_protocols_that_have_claim_checks_knows_what_such_a_decode_found(
    context: ReplayContext, monkeypatch: pytest.MonkeyPatch, protocol: str, schemas: dict[str, str], known: bool
) -> None:
    recorded(context, "run", 4, search=0, writer_schemas=schemas)
    monkeypatch.setattr(ReplayContext, "changefeed", msgspec.structs.replace(context.changefeed, protocol=protocol))
    assert find_replayable(context).unsearchable == (() if known else (part(4, 5),))
    recorded(context, "run", 4, writer_schemas=schemas)
    assert find_replayable(context).unsearchable == ()


def test_references_in_files_that_are_gone_are_known_to_nobody(context: ReplayContext) -> None:
    recorded(context, "run", 4, reference_files=("references/a.parquet",))
    assert find_replayable(context).unsearchable == (part(4, 5),)
    context.artifacts.put("runs/run/references/a.parquet", b"")
    assert find_replayable(context).unsearchable == ()


def test_what_runs_set_aside_that_a_restored_state_store_has_forgotten_is_still_needed(context: ReplayContext) -> None:
    decoded(context, "forgotten", 4, 5)
    decoded(context, "nothing set aside")
    assert find_replayable(context).ranges == (part(4, 6),)
    assert find_replayable(context).unsearchable == ()


def test_a_re_drive_finds_references_that_could_not_be_found_before(context: ReplayContext) -> None:
    unsearched = (OffsetRange("topic", 0, 4, 8),)
    recorded(context, "run", 4, 5, 7, unsearched=unsearched)
    redriven(context, "again", 4, 7, left=(7,), unsearched=(OffsetRange("topic", 0, 7, 8),))
    assert find_replayable(context).unsearchable == (part(5, 6), part(7, 8))
    assert replayable_ranges(context) == (part(4, 6), part(7, 8))


def test_a_location_that_an_earlier_version_did_not_understand_is_known_to_nobody(context: ReplayContext) -> None:
    made = index_with(context.artifacts, "run", quarantine(4, 0, "claim_check_bad_name"))
    index = msgspec.structs.replace(made, unsearched=())
    context.artifacts.put("runs/run/index.json", canonical.encode(index))
    record(context, index, 1)
    assert find_replayable(context).unsearchable == (part(4, 5),)
