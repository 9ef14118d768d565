"""A window that takes its rows from a wider one's changelog does not bring back what a repair of that one has replaced."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.changelogs import Changelog, put, table
from tests.support.in_process import in_process
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactNotFoundError, PermanentError, SupersededError
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import LoadJob, decode
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource, SharedInput, TopicPin
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.window.jobs import require_current, write_decode_job, write_load_job
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.runs import Run
from ticdc_replay.targets.load import load

PIPELINE = """
name: pipeline
changefeed: {{sink_uri: "kafka://b:9092/shop?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: kafka}}
artifacts: {folder}
schedule: {{start: "2026-03-01T00:00:00Z"}}
targets: [{{name: lake, type: parquet, uri: "{folder}/lake"}}]
"""
ORDERS = table("shop.orders", {"id": ColumnType("bigint", declared=True)})
WIDE, NARROW = Window(0, 100), Window(40, 60)


class Windows:
    """A pipeline and its windows, as if they had been pinned and decoded."""

    def __init__(self, context: ReplayContext, folder: Path) -> None:
        self.context, self._folder = context, folder

    def pin(self, window: Window, **members: Any) -> PinnedManifest:
        existing = self.context.state.manifests.of_window("pipeline", window)
        manifest = Manifest(
            pipeline="pipeline",
            changefeed_hash=self.context.changefeed.hash,
            window=window,
            grade="proven",
            topics=(TopicPin("shop", "topic-id", ()),),
            replaces=existing.input_hash if existing else None,
            pinned_at_ms=1_772_409_600_000,
            **members,
        )
        name = f"manifests/{manifest.input_hash}.json"
        self.context.artifacts.put_once(name, canonical.encode(manifest))
        made = WindowManifest("pipeline", window, manifest.input_hash, name, manifest.pinned_at_ms)
        self.context.state.manifests.register(made, replaces=existing)
        return PinnedManifest(manifest, name, name, reused=False)

    def decode(self, pinned: PinnedManifest, *sources: Changelog, run_hash: str | None = None) -> Changelog:
        window = pinned.manifest.window
        changelog = Changelog(self._folder, window.from_ts, window.to_ts)
        changelog.run_hash = run_hash or write_decode_job(self.context, pinned).run_hash
        changelog.input_hash = pinned.manifest.input_hash
        changelog.derived = tuple(ManifestSource(source.run_hash, "0" * 64, window) for source in sources)
        changelog.rows(ORDERS, [put(50, id=1)]).write()
        self.context.state.runs.record(
            Run(
                pipeline="pipeline",
                run_hash=changelog.run_hash,
                window=window,
                input_hash=changelog.input_hash,
                status="done",
                started_at_ms=1,
            )
        )
        return changelog

    def job(self, changelog: Changelog, *, reload: bool = False) -> LoadJob:
        written = write_load_job(self.context, changelog.run_hash, "lake", reload=reload)
        job = decode(self.context.artifacts.get(written.uri.removeprefix(self.context.artifacts_uri + "/")))
        assert isinstance(job, LoadJob)
        return job


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(folder=tmp_path.as_uri()))
    with ReplayContext(load_pipeline(tmp_path / "pipeline.yaml"), Connections()) as context:
        yield Windows(context, tmp_path / "pipeline")


def derived(windows: Windows) -> tuple[Changelog, Changelog]:
    """The wide window, and the narrow one that was taken from its changelog (``from_changelog``)."""
    wide = windows.decode(windows.pin(WIDE))
    return wide, windows.decode(windows.pin(NARROW, derived=(ManifestSource(wide.run_hash, "0" * 64, NARROW),)), wide)


def shared(windows: Windows) -> tuple[Changelog, Changelog]:
    """The wide window, and the narrow one that shares its decode (``decode_hours``)."""
    pinned = windows.pin(WIDE)
    narrow = windows.pin(NARROW, shared=SharedInput(pinned.name, pinned.manifest.input_hash, WIDE))
    run = write_decode_job(windows.context, narrow).shared
    assert run is not None
    wide = windows.decode(pinned, run_hash=run.run_hash)
    return wide, windows.decode(narrow, wide)


@pytest.mark.parametrize(("taken", "way"), [(derived, "pin window .* again"), (shared, "from decode on")])
@pytest.mark.parametrize("reload", [False, True])
def test_rows_of_a_message_that_was_named_since_are_not_loaded(
    windows: Windows, taken: Any, way: str, reload: bool
) -> None:
    """Neither where the run is loaded for the first time, nor again: its rows are those of a changelog that has them."""
    _, narrow = taken(windows)
    loaded = windows.context.loaded
    loaded = loaded._replace(pipeline=loaded.pipeline.model_copy(update={"set_aside": ("topic[0]@1",)}))
    with ReplayContext(loaded, Connections()) as context:
        again = Windows(context, narrow.folder)
        with pytest.raises(PermanentError, match=rf"has rows of topic\[0\]@1, which set_aside.*{way}"):
            again.job(narrow, reload=reload)
        with pytest.raises(PermanentError, match=r"has rows of topic\[0\]@1"):
            check(context, narrow.run_hash)


def load_it(job: LoadJob) -> None:
    load(job, Connections(), in_process)


@pytest.mark.parametrize("taken", [derived, shared])
def test_a_window_that_is_taken_from_a_superseded_run_is_not_loaded(windows: Windows, taken: Any) -> None:
    wide, narrow = taken(windows)
    assert windows.job(narrow).run_hash == narrow.run_hash
    windows.pin(WIDE)
    with pytest.raises(PermanentError, match="takes rows from run") as raised:
        windows.job(narrow)
    assert wide.run_hash in str(raised.value)
    assert f"Pin window {NARROW} again (repin; with from_changelog where Kafka has expired it)" in str(raised.value)
    with pytest.raises(PermanentError):
        require_current(windows.context, narrow.write())
    assert windows.job(narrow, reload=True).reload


def test_a_re_drive_of_such_a_window_is_not_loaded_either(windows: Windows) -> None:
    _, narrow = derived(windows)
    redrive = Changelog(narrow.folder, NARROW.from_ts, NARROW.to_ts, "redrive")
    redrive.redrives = narrow.run_hash
    windows.pin(WIDE)
    with pytest.raises(PermanentError, match="takes rows from run"):
        require_current(windows.context, redrive.write())


def test_a_run_from_which_its_own_window_was_pinned_anew_still_counts(windows: Windows) -> None:
    wide, narrow = derived(windows)
    windows.pin(WIDE, derived=(ManifestSource(wide.run_hash, "0" * 64, WIDE),))
    assert windows.job(narrow).run_hash == narrow.run_hash


def test_where_the_state_store_was_lost_the_source_s_changelog_tells(windows: Windows, tmp_path: Path) -> None:
    wide, narrow = derived(windows)
    windows.context.state.close()
    for path in tmp_path.glob("state.db*"):
        path.unlink()
    with ReplayContext(load_pipeline(tmp_path / "pipeline.yaml"), Connections()) as context:
        again = Windows(context, tmp_path / "pipeline")
        assert again.job(narrow).sources[0].window == WIDE
        again.pin(WIDE, all_earlier_ddl=True)
        with pytest.raises(PermanentError, match="takes rows from run"):
            again.job(narrow)
        context.artifacts.delete(f"{changelog_root(wide.run_hash)}/{INDEX}")
        with pytest.raises(ArtifactNotFoundError):
            again.job(narrow)


def test_a_repair_of_the_wide_window_that_begins_later_keeps_the_narrow_one_out(windows: Windows) -> None:
    _, narrow = derived(windows)
    prepared = windows.job(narrow)
    load_it(windows.job(windows.decode(windows.pin(WIDE))))
    with pytest.raises(SupersededError, match="takes rows from a changelog of window"):
        load_it(prepared)


def test_loads_of_the_same_input_of_the_wide_window_keep_nobody_out(windows: Windows) -> None:
    wide, narrow = derived(windows)
    load_it(windows.job(wide))
    load_it(windows.job(narrow))
    load_it(msgspec.structs.replace(windows.job(narrow), reload=True))
