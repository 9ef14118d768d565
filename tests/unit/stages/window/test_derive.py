"""Windows that are pinned to changelogs: which of these count, and why others do not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.support.changelogs import Changelog, put, table
from tests.support.quarantine_files import index_with, quarantine
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import NotCoveredError, UnprovenWindowError
from ticdc_replay.domain.messages import EventPlace, OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource, SharedInput, TopicPin
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.quarantine.entries import Selection, list_quarantine
from ticdc_replay.stages.window.derive import derive, find_changelogs
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.quarantine import Redrive
from ticdc_replay.state.runs import Run
from ticdc_replay.store_stages.replayable import find_replayable, replayable_ranges

ORDERS = table("s.orders", {"id": ColumnType("bigint", declared=True)})


class Decoded:
    """A pipeline, and changelogs of it as if they had been decoded."""

    def __init__(self, context: ReplayContext, folder: Path) -> None:
        self.context, self._folder, self._pinned = context, folder, 0

    def window(self, start: int, end: int, run: str = "a", *, manifest: Any = None, **members: Any) -> ChangelogIndex:
        """Of a window that is pinned (anew), with the *manifest*'s and the index's members."""
        window, self._pinned = Window(start, end), self._pinned + 1
        existing = self.context.state.manifests.of_window("pipeline", window)
        pinned = Manifest(
            **{
                "pipeline": "pipeline",
                "changefeed_hash": self.context.changefeed.hash,
                "window": window,
                "grade": "proven",
                "topics": (TopicPin("topic", "topic-id", ()),),
                "replaces": existing.input_hash if existing is not None else None,
                "pinned_at_ms": self._pinned,
                **(manifest or {}),
            }
        )
        name = f"manifests/{pinned.input_hash}.json"
        self.context.artifacts.put_once(name, canonical.encode(pinned))
        self.context.state.manifests.register(
            WindowManifest("pipeline", window, pinned.input_hash, name, self._pinned), replaces=existing
        )
        made = Changelog(self._folder, start, end, run).rows(ORDERS, [put(start, id=1)]).write()
        index = msgspec.structs.replace(
            made, input_hash=pinned.input_hash, **{"selection": ("*.*",), "unsearched": (), **members}
        )
        self.context.artifacts.put(f"{changelog_root(index.run_hash)}/{INDEX}", canonical.encode(index))
        counts = {"events_quarantined": len(index.quarantine_files)}
        self.context.state.runs.record(
            Run(
                pipeline="pipeline",
                run_hash=index.run_hash,
                window=window,
                input_hash=index.input_hash,
                status="done",
                started_at_ms=self._pinned,
                index=f"{changelog_root(index.run_hash)}/{INDEX}",
                counts=counts,
            )
        )
        return index

    def again(self, index: ChangelogIndex, run: str, **members: Any) -> ChangelogIndex:
        """The window of *index*, of the same input, decoded once more: without rows, and with *members* of the index."""
        made = Changelog(self._folder, index.window.from_ts, index.window.to_ts, run).write()
        again = msgspec.structs.replace(index, run_hash=made.run_hash, tables=(), quarantine_files=(), **members)
        self.context.artifacts.put(f"{changelog_root(again.run_hash)}/{INDEX}", canonical.encode(again))
        first = self.context.state.runs.get("pipeline", index.run_hash)
        assert first is not None
        self.context.state.runs.record(
            msgspec.structs.replace(first, run_hash=again.run_hash, index=f"{changelog_root(again.run_hash)}/{INDEX}")
        )
        return again

    def aside(self, start: int, end: int, run: str = "a", **members: Any) -> ChangelogIndex:
        """One with an entry in quarantine."""
        name = canonical.digest(f"{run} {start} {end}".encode())
        found = index_with(self.context.artifacts, name, quarantine(3, 0, "bad"))
        return self.window(start, end, run, quarantine_files=found.quarantine_files, **members)

    def taken(self, start: int, end: int) -> list[tuple[str, int, int]]:
        """What *derive* takes from which run."""
        sources = derive(self.context, Window(start, end)).manifest.derived
        return [(each.run_hash, each.window.from_ts, each.window.to_ts) for each in sources]


@pytest.fixture
def make_decoded(tmp_path: Path) -> Iterator[Callable[..., Decoded]]:
    made: list[ReplayContext] = []

    def make(tables: tuple[str, ...] = ("*.*",), **policies: str) -> Decoded:
        sink = "kafka://b:9092/topic?protocol=open-protocol"
        pipeline = {
            "name": "pipeline",
            "changefeed": {"sink_uri": sink, "timezone": "UTC"},
            "connections": {"kafka": "k"},
            "artifacts": tmp_path.as_uri(),
            "tables": list(tables),
            "schedule": {"start": "2026-03-01T06:00:00Z"},
            "policies": policies,
            "targets": [{"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}],
        }
        (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(pipeline))
        made.append(ReplayContext(load_pipeline(tmp_path / "pipeline.yaml"), Connections()))
        return Decoded(made[-1], tmp_path / "pipeline")

    yield make
    for context in made:
        context.__exit__()


@pytest.fixture
def decoded(make_decoded: Callable[..., Decoded]) -> Decoded:
    return make_decoded()


def test_a_window_is_pinned_to_the_changelogs_that_make_it_up(decoded: Decoded) -> None:
    first, second = decoded.window(0, 10), decoded.window(10, 20)
    pinned = derive(decoded.context, Window(5, 15))
    assert [(each.run_hash, each.window) for each in pinned.manifest.derived] == [
        (first.run_hash, Window(5, 10)),
        (second.run_hash, Window(10, 15)),
    ]
    assert pinned.manifest.topics == (TopicPin("topic", "topic-id", ()),)
    assert not pinned.manifest.reads_kafka
    again = derive(decoded.context, Window(5, 15))
    assert again.manifest.replaces == pinned.manifest.input_hash


def test_a_window_that_is_derived_itself_is_passed_over_for_what_it_is_derived_from(decoded: Decoded) -> None:
    source = decoded.window(0, 20)
    derive(decoded.context, Window(5, 15))
    assert decoded.taken(6, 8) == [(source.run_hash, 6, 8)]
    derive(decoded.context, Window(0, 20))  # its own window: what it was decoded into counts still
    assert decoded.taken(1, 3) == [(source.run_hash, 1, 3)]


def test_of_a_window_that_was_pinned_anew_the_run_before_counts_no_more(decoded: Decoded) -> None:
    decoded.window(0, 10)
    newer = decoded.window(0, 10, "b")
    assert decoded.taken(0, 10) == [(newer.run_hash, 0, 10)]


def test_what_a_derived_window_was_taken_from_counts_no_more_once_its_own_window_is_pinned_anew(
    decoded: Decoded,
) -> None:
    before = decoded.window(0, 10)
    derive(decoded.context, Window(2, 8))
    newer = decoded.window(0, 10, "b", manifest={"grade": "unproven"})
    assert decoded.taken(3, 7) == [(newer.run_hash, 3, 7)], f"not {before.run_hash}, which is proven"


def test_a_changelog_whose_manifest_is_damaged_does_not_count(decoded: Decoded) -> None:
    damaged, other = decoded.window(0, 10), decoded.window(0, 20, "b")
    decoded.context.artifacts.put(f"manifests/{damaged.input_hash}.json", b"{")
    assert decoded.taken(3, 7) == [(other.run_hash, 3, 7)]


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"selection": ("s.items",)}, r"decoded for tables s\.items; the pipeline asks for \*\.\*"),
        ({"selection": ()}, "an older version of the library decoded it"),
        ({"variant": ("damaged=accept",)}, r"other policies\.handle_key_only or policies\.damaged"),
        ({"order": "place"}, "in the order of Kafka"),
        ({"manifest": {"changefeed_hash": "other"}}, "another configuration of the changefeed"),
    ],
)
def test_what_was_decoded_otherwise_does_not_count_and_the_error_says_why(
    decoded: Decoded, members: dict[str, Any], why: str
) -> None:
    index = decoded.window(0, 10, **members)
    with pytest.raises(
        NotCoveredError, match=rf"no changelog that can be used holds \[2 .*run {index.run_hash[:12]}.*{why}"
    ):
        derive(decoded.context, Window(2, 5))


def test_what_lacks_a_file_or_came_out_of_quarantine_in_two_parts_does_not_count(decoded: Decoded) -> None:
    lost, redriven = decoded.window(0, 10), decoded.window(10, 20)
    decoded.context.artifacts.delete(f"{changelog_root(lost.run_hash)}/{lost.tables[0].files[0].name}")
    decoded.context.state.quarantine.record_redrive(Redrive("pipeline", redriven.run_hash, "r", "", 1))
    refused = find_changelogs(decoded.context, Window(0, 20)).refused
    assert ["1 of its files are gone" in refused[0], "came out of its quarantine later" in refused[1]] == [True, True]


def named(context: ReplayContext, *places: str) -> ReplayContext:
    """The pipeline of *context*, whose file names *places* since."""
    loaded = context.loaded._replace(pipeline=context.pipeline.model_copy(update={"set_aside": places}))
    return ReplayContext(loaded, Connections())


RANGES = (OffsetRange("topic", 0, 0, 9),)


def test_a_changelog_with_a_row_that_the_pipeline_file_names_since_is_no_source(decoded: Decoded) -> None:
    """``Decoded.window`` writes one row, at offset 1, commitTs the window's start."""
    before = decoded.window(0, 10, ranges=RANGES)
    for place in ("topic[0]@1", "topic[0]@1#0"):
        with named(decoded.context, place) as context:
            with pytest.raises(NotCoveredError) as raised:
                derive(context, Window(0, 5))
            told = str(raised.value)
            assert f"run {before.run_hash[:12]} of {before.window}: it has rows of {place}" in told
            assert "decode its window again from Kafka" in told
            assert derive(context, Window(2, 5)).manifest.derived[0].run_hash == before.run_hash
    after = decoded.again(before, "b", set_aside=(EventPlace("topic", 0, 1),))
    for text in ("topic[0]@1", "topic[0]@1#0"):
        with named(decoded.context, text) as context:
            (source,) = derive(context, Window(0, 5)).manifest.derived
            assert source.run_hash == after.run_hash


@pytest.mark.parametrize("place", ["topic[0]@1#1", "topic[0]@2", "topic[1]@1", "other[0]@1", "topic[0]@20"])
def test_places_of_which_a_changelog_has_no_row_do_not_keep_it_from_being_a_source(
    decoded: Decoded, place: str
) -> None:
    index = decoded.window(0, 10, ranges=RANGES)
    with named(decoded.context, place) as context:
        assert derive(context, Window(0, 5)).manifest.derived[0].run_hash == index.run_hash


def test_a_named_row_of_a_table_that_is_not_selected_does_not_count(decoded: Decoded) -> None:
    decoded.window(0, 10, ranges=RANGES)
    with named(decoded.context, "topic[0]@1") as context:
        assert find_changelogs(context, Window(0, 10)).lacking
        assert not find_changelogs(context, Window(0, 10), tables=["s.items"]).lacking


def test_what_can_not_be_proven_is_no_source_where_policy_asks_for_proof(make_decoded: Callable[..., Decoded]) -> None:
    unproven = {"grade": "unproven", "reasons": ("clocks differ",)}
    make_decoded().window(0, 10, manifest=unproven)
    with pytest.raises(UnprovenWindowError, match="clocks differ"):
        derive(make_decoded().context, Window(2, 5))
    manifest = derive(make_decoded(unproven="allow").context, Window(2, 5)).manifest
    assert (manifest.grade, manifest.reasons) == ("unproven", ("clocks differ",))


def test_what_a_shared_decode_set_aside_is_told_by_the_windows_that_take_their_rows_from_it(decoded: Decoded) -> None:
    wide = decoded.aside(0, 24)
    assert [run.run_hash for run in list_quarantine(decoded.context, Selection())] == [wide.run_hash]
    shared = SharedInput(f"manifests/{wide.input_hash}.json", wide.input_hash, wide.window)
    sources = (ManifestSource(wide.run_hash, "x", Window(2, 5)),)
    hour = decoded.aside(2, 5, "b", manifest={"shared": shared}, derived=sources)
    assert [run.run_hash for run in list_quarantine(decoded.context, Selection())] == [hour.run_hash]
    assert [run.run_hash for run in list_quarantine(decoded.context, Selection(run=wide.run_hash))] == [wide.run_hash]


def test_references_of_what_a_window_set_aside_are_known_as_long_as_those_of_its_source_are(decoded: Decoded) -> None:
    wide = decoded.window(0, 24)
    decoded.aside(2, 5, "b", derived=(ManifestSource(wide.run_hash, "x", Window(2, 5)),))
    assert find_replayable(decoded.context).unsearchable == ()
    decoded.context.artifacts.delete(f"{changelog_root(wide.run_hash)}/{INDEX}")
    assert len(find_replayable(decoded.context).unsearchable) == 1


def test_what_a_run_set_aside_is_needed_though_its_window_is_taken_from_it_anew(decoded: Decoded) -> None:
    """As a repin does where Kafka has expired the window: only what the run set aside has the message still."""
    source = decoded.aside(0, 10)
    needed = replayable_ranges(decoded.context)
    assert len(needed) == 1
    derive(decoded.context, Window(0, 10))
    assert replayable_ranges(decoded.context) == needed, "and nobody has decoded the window anew"
    sources = (ManifestSource(source.run_hash, "x", Window(0, 10)),)
    decoded.window(0, 10, "b", manifest={"derived": sources}, derived=sources, selection=("s.items",))
    assert replayable_ranges(decoded.context) == needed, "which is of another table"
