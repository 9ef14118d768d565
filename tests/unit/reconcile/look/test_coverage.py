"""What Kafka retains and nobody has searched: only what was searched, and can still be looked up, counts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.topics import identity
from ticdc_replay.changelog.files.index import ChangelogIndex, DecodeReport, EventCounts, MessageCounts
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.domain import canonical
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.window import Window
from ticdc_replay.reconcile.judge.rules import PartitionBounds
from ticdc_replay.reconcile.look.coverage import (
    DecodedFiles,
    Searched,
    searched_by_runs,
    searched_by_scans,
    standing_scans,
    unsearched,
    without,
)
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.state.references import ScannedRange
from ticdc_replay.state.runs import Run
from ticdc_replay.storage import ObjectStore, open_store

WINDOW = Window(100, 200)
TOPIC = identity("t")
ANEW = identity("t", made="again")
INDEXED = ChangelogIndex(
    pipeline="shop",
    run_hash="run",
    input_hash="input",
    library_version="1",
    window=WINDOW,
    ranges=(OffsetRange("t", 0, 0, 50), OffsetRange("t", 1, 5, 9)),
    topic_ids={"t": TOPIC.topic_id},
    cluster_id=TOPIC.cluster_id,
    tables=(),
    ddl=(),
    changes=(),
    quarantine_files=(),
    reference_files=("references/a.parquet", "references/b.parquet"),
    sparse_index_files=(),
    unsearched=(),
    search=SEARCH,
    report=DecodeReport(
        messages=MessageCounts(), events=EventCounts(), quarantine_reasons={}, watermark=None, undeclared_tables=()
    ),
)
SCANNED = ScannedRange(
    pipeline="shop",
    topic="t",
    topic_id=TOPIC.topic_id,
    partition=0,
    start=0,
    end=9,
    file="scans/a.parquet",
    cluster_id=TOPIC.cluster_id,
    search=SEARCH,
)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    store = open_state(f"sqlite:///{tmp_path}/state.db")
    yield store
    store.close()


@pytest.fixture
def artifacts(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "artifacts").as_uri())


def keep(state: StateStore, artifacts: ObjectStore, index: ChangelogIndex) -> str:
    """Record the run of *index* with all its files; its folder."""
    root = changelog_root(index.run_hash)
    for name in index.reference_files:
        artifacts.put(f"{root}/{name}", b"references")
    artifacts.put(f"{root}/{INDEX}", canonical.encode(index))
    state.runs.record(
        Run(
            pipeline="shop",
            run_hash=index.run_hash,
            window=WINDOW,
            input_hash="input",
            status="done",
            started_at_ms=0,
            index=f"{root}/{INDEX}",
        )
    )
    return root


def ranges_of(state: StateStore, artifacts: ObjectStore) -> list[OffsetRange]:
    return [each.range for each in searched_by_runs(state, artifacts, "shop").searched]


def test_a_run_covers_the_ranges_that_it_read_but_for_messages_it_could_not_search(
    state: StateStore, artifacts: ObjectStore
) -> None:
    keep(state, artifacts, msgspec.structs.replace(INDEXED, unsearched=(OffsetRange("t", 0, 7, 8),)))
    runs = searched_by_runs(state, artifacts, "shop")
    parts = [OffsetRange("t", 0, 0, 7), OffsetRange("t", 0, 8, 50), OffsetRange("t", 1, 5, 9)]
    assert runs.searched == tuple(Searched(TOPIC, part) for part in parts)
    assert runs.topics == {TOPIC}
    names = ("runs/run/references/a.parquet", "runs/run/references/b.parquet")
    assert runs.files == (DecodedFiles({"t": TOPIC}, names),)


def test_references_of_a_topic_that_was_recreated_are_told_apart(state: StateStore, artifacts: ObjectStore) -> None:
    keep(state, artifacts, INDEXED)
    keep(
        state,
        artifacts,
        msgspec.structs.replace(INDEXED, run_hash="same", topic_ids={"t": TOPIC.topic_id, "u": identity("u").topic_id}),
    )
    keep(state, artifacts, msgspec.structs.replace(INDEXED, run_hash="recreated", topic_ids={"t": ANEW.topic_id}))
    files = searched_by_runs(state, artifacts, "shop").files
    assert {
        tuple(sorted(each.topics.values())): sorted({name.split("/")[1] for name in each.names}) for each in files
    } == {
        (TOPIC, identity("u")): ["run", "same"],
        (ANEW,): ["recreated"],
    }


def test_a_run_of_which_a_reference_file_is_gone_covers_nothing(state: StateStore, artifacts: ObjectStore) -> None:
    root = keep(state, artifacts, INDEXED)
    assert ranges_of(state, artifacts) == list(INDEXED.ranges)
    artifacts.delete(f"{root}/references/b.parquet")
    assert ranges_of(state, artifacts) == []


def test_a_run_whose_index_is_gone_covers_nothing(state: StateStore, artifacts: ObjectStore) -> None:
    root = keep(state, artifacts, INDEXED)
    artifacts.delete(f"{root}/{INDEX}")
    assert ranges_of(state, artifacts) == []


def test_a_run_by_a_version_that_did_not_search_what_it_could_not_read_covers_nothing(
    state: StateStore, artifacts: ObjectStore
) -> None:
    keep(state, artifacts, msgspec.structs.replace(INDEXED, unsearched=None))
    assert ranges_of(state, artifacts) == []


def test_what_versions_searched_that_knew_the_declared_protocol_alone_covers_nothing(
    state: StateStore, artifacts: ObjectStore
) -> None:
    keep(state, artifacts, msgspec.structs.replace(INDEXED, search=0))
    assert ranges_of(state, artifacts) == []
    assert searched_by_scans([msgspec.structs.replace(SCANNED, search=0)]) == []


def test_a_run_of_another_pipeline_covers_nothing(state: StateStore, artifacts: ObjectStore) -> None:
    keep(state, artifacts, INDEXED)
    assert searched_by_runs(state, artifacts, "other").searched == ()


def test_a_run_that_a_restored_state_store_has_forgotten_is_found_by_its_index(
    state: StateStore, artifacts: ObjectStore, tmp_path: Path
) -> None:
    keep(state, artifacts, INDEXED)
    restored = open_state(f"sqlite:///{tmp_path / 'restored.db'}")
    assert searched_by_runs(restored, artifacts, "shop") == searched_by_runs(state, artifacts, "shop")
    assert searched_by_runs(restored, artifacts, "other").searched == ()


def test_a_scan_covers_its_range_as_long_as_its_file_exists(artifacts: ObjectStore) -> None:
    without_reference = msgspec.structs.replace(SCANNED, partition=1, file=None)
    artifacts.put("scans/a.parquet", b"references")
    both = [Searched(TOPIC, OffsetRange("t", partition, 0, 9)) for partition in (0, 1)]
    assert searched_by_scans(standing_scans([SCANNED, without_reference], artifacts)) == both
    artifacts.delete("scans/a.parquet")
    assert searched_by_scans(standing_scans([SCANNED, without_reference], artifacts)) == both[1:]


def test_what_was_scanned_is_remembered_by_pipeline(state: StateStore) -> None:
    for _ in range(2):
        state.references.record_scans([SCANNED, msgspec.structs.replace(SCANNED, start=9, end=20, file=None)])
    state.references.record_scans([msgspec.structs.replace(SCANNED, pipeline="other")])
    assert [(scan.start, scan.end, scan.file) for scan in state.references.scans("shop")] == [
        (0, 9, "scans/a.parquet"),
        (9, 20, None),
    ]


def held(low: int, high: int, topic: TopicIdentity = TOPIC) -> PartitionBounds:
    return PartitionBounds(topic.name, topic.topic_id, 0, low, high, cluster_id=topic.cluster_id)


@pytest.mark.parametrize(
    "other",
    [
        TopicIdentity("cluster", "u", TOPIC.topic_id),
        TopicIdentity("other", "t", TOPIC.topic_id),
        TopicIdentity("", "t", TOPIC.topic_id),
        ANEW,
    ],
    ids=str,
)
def test_a_search_of_another_topic_does_not_count(other: TopicIdentity) -> None:
    """Brokers without topic ids gave the same one to all topics."""
    whole = [OffsetRange("t", 0, 0, 10)]
    assert unsearched([held(0, 10)], [Searched(TOPIC, whole[0])]) == []
    assert unsearched([held(0, 10)], [Searched(other, OffsetRange(other.name, 0, 0, 10))]) == whole
    assert unsearched([held(0, 10, other)], [Searched(TOPIC, whole[0])]) == [OffsetRange(other.name, 0, 0, 10)]


@pytest.mark.parametrize("lacking", [{"cluster_id": None}, {"topic_ids": {"t": "AAAAAAAAAAAAAAAAAAAAAA"}}], ids=str)
def test_what_does_not_know_its_topic_has_searched_nothing_and_keeps_its_references(
    state: StateStore, artifacts: ObjectStore, lacking: dict[str, Any]
) -> None:
    keep(state, artifacts, msgspec.structs.replace(INDEXED, **lacking))
    runs = searched_by_runs(state, artifacts, "shop")
    assert runs.searched == ()
    assert len(runs.files) == len(runs.topics) == 1
    scan = msgspec.structs.replace(SCANNED, cluster_id="", file=None)
    assert searched_by_scans([scan]) == []


def test_a_topic_that_was_recreated_is_not_searched() -> None:
    retained = [held(0, 10, ANEW)]
    assert unsearched(retained, [Searched(TOPIC, OffsetRange("t", 0, 0, 10))]) == [OffsetRange("t", 0, 0, 10)]
    assert unsearched(retained, [Searched(ANEW, OffsetRange("t", 0, 0, 10))]) == []


def test_offsets_that_kafka_has_removed_need_no_search() -> None:
    retained = [held(40, 60)]
    assert unsearched(retained, [Searched(TOPIC, OffsetRange("t", 0, 0, 50))]) == [OffsetRange("t", 0, 50, 60)]


_PARTS = st.builds(
    lambda partition, start, length: OffsetRange("t", partition, start, start + length),
    st.integers(0, 1),
    st.integers(0, 30),
    st.integers(0, 10),
)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=2), st.lists(_PARTS, max_size=12)
)
def test_what_is_left_is_exactly_what_was_not_taken(bounds: list[tuple[int, int]], taken: list[OffsetRange]) -> None:
    held = [OffsetRange("t", partition, min(ends), max(ends)) for partition, ends in enumerate(bounds)]
    left = without(held, taken)
    assert left == sorted(left)
    assert all(part.length > 0 for part in left)
    assert [*_offsets(left)] == sorted({*_offsets(held)} - {*_offsets(taken)})


def _offsets(parts: list[OffsetRange]) -> Iterator[tuple[int, int]]:
    return ((part.partition, offset) for part in parts for offset in range(part.start, part.end))
