"""Which changelog may be loaded: that of the input which its window has now."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.changelogs import Changelog, put, table
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.domain.messages import EventPlace, OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, SharedInput, TopicPin
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.begin_load import begin_load
from ticdc_replay.stages.window.jobs import decode_job, write_load_job
from ticdc_replay.state.manifests import WindowManifest

PIPELINE = """
name: shop
changefeed: {{sink_uri: "kafka://b:9092/shop?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: kafka}}
artifacts: {folder}
schedule: {{start: "2026-03-01T00:00:00Z"}}
targets: [{{name: lake, type: parquet, uri: "file:///lake"}}]
"""
ORDERS = table("shop.orders", {"id": ColumnType("bigint", declared=True)})


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ReplayContext]:
    (tmp_path / "shop.yaml").write_text(PIPELINE.format(folder=(tmp_path / "artifacts").as_uri()))
    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections()) as context:
        yield context


@pytest.fixture
def changelog(tmp_path: Path) -> Changelog:
    changelog = Changelog(tmp_path / "artifacts" / "shop", 0, 100).rows(ORDERS, [put(10, id=1)])
    changelog.write()
    return changelog


def pinned(input_hash: str, from_ts: int = 0) -> WindowManifest:
    window = Window(from_ts, from_ts + 100)
    return WindowManifest("shop", window, input_hash, f"manifests/{input_hash}.json", 1_772_409_600_000)


OLD, NEW = pinned("0" * 64), pinned("1" * 64)


def loads(context: ReplayContext, changelog: Changelog, *, reload: bool = False) -> jobspec.JobSpec:
    written = write_load_job(context, changelog.run_hash, "lake", reload=reload)
    return jobspec.decode(context.artifacts.get(written.uri.removeprefix(context.artifacts_uri + "/")))


def test_a_run_of_the_window_s_input_is_loaded(context: ReplayContext, changelog: Changelog) -> None:
    context.state.manifests.register(OLD)
    context.state.manifests.register(pinned("2" * 64, 100))
    job = loads(context, changelog)
    assert isinstance(job, jobspec.LoadJob)
    assert (job.run_hash, job.window) == (changelog.run_hash, changelog.window)


def test_a_run_of_a_window_of_which_the_state_knows_nothing_is_loaded(
    context: ReplayContext, changelog: Changelog
) -> None:
    assert isinstance(loads(context, changelog), jobspec.LoadJob)


def test_a_run_from_before_the_pipeline_had_more_tables_is_not_loaded_as_if_it_had_decoded_them(
    context: ReplayContext, changelog: Changelog
) -> None:
    changelog.selection = ("shop.orders",)
    changelog.write()
    for reload in (False, True):
        with pytest.raises(ConfigError, match=r"decoded tables shop.orders, and this load is for \*.\*, too"):
            loads(context, changelog, reload=reload)
    written = write_load_job(context, changelog.run_hash, "lake", ("shop.orders",))
    job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(context.artifacts_uri + "/")))
    assert isinstance(job, jobspec.LoadJob)
    assert job.tables == ("shop.orders",)


def test_a_run_from_before_the_window_was_pinned_anew_is_loaded_only_where_that_is_asked_for(
    context: ReplayContext, changelog: Changelog
) -> None:
    context.state.manifests.register(OLD)
    context.state.manifests.register(NEW, replaces=OLD)
    with pytest.raises(PermanentError) as raised:
        loads(context, changelog)
    assert "pinned again (repin) at 2026-03-02 00:00:00 UTC" in str(raised.value)
    assert "Clear the run from snapshot on" in str(raised.value)
    job = loads(context, changelog, reload=True)
    assert isinstance(job, jobspec.LoadJob)
    assert job.reload


def test_a_run_keeps_its_generation_whatever_job_loads_it(context: ReplayContext, changelog: Changelog) -> None:
    context.state.manifests.register(OLD)
    first, again = loads(context, changelog), loads(context, changelog)
    assert isinstance(first, jobspec.LoadJob)
    assert first.generation > 0
    assert again == first


def test_a_run_of_a_window_that_was_pinned_again_is_newer_and_a_reload_is_the_newest(
    context: ReplayContext, changelog: Changelog, tmp_path: Path
) -> None:
    context.state.manifests.register(OLD)
    older = loads(context, changelog)
    context.state.manifests.register(NEW, replaces=OLD)
    repaired = Changelog(tmp_path / "artifacts" / "shop", 0, 100, "b")
    repaired.input_hash = NEW.input_hash
    repaired.write()
    newer, reload = loads(context, repaired), loads(context, changelog, reload=True)
    assert isinstance(older, jobspec.LoadJob)
    assert isinstance(newer, jobspec.LoadJob)
    assert isinstance(reload, jobspec.LoadJob)
    assert older.generation < newer.generation < reload.generation


def test_a_re_drive_has_the_generation_of_the_run_that_it_completes(
    context: ReplayContext, changelog: Changelog, tmp_path: Path
) -> None:
    context.state.manifests.register(OLD)
    first = loads(context, changelog)
    redrive = Changelog(tmp_path / "artifacts" / "shop", 0, 100, "redrive")
    redrive.input_hash, redrive.redrives = "2" * 64, changelog.run_hash
    redrive.write()
    job = loads(context, redrive)
    assert isinstance(first, jobspec.LoadJob)
    assert isinstance(job, jobspec.LoadJob)
    assert job.generation == first.generation


def test_messages_that_are_set_aside_concern_runs_of_inputs_that_hold_them(context: ReplayContext) -> None:
    places = ("shop[0]@5", "shop[0]@9#1", "shop[0]@10", "shop[1]@5", "other[0]@5")
    with naming(context, *places) as named:
        inside, outside = decoded_range(5, 10), decoded_range(20, 30)
        assert decode_job(named, inside).set_aside == (EventPlace("shop", 0, 5), EventPlace("shop", 0, 9, 1))
        assert decode_job(named, inside).run_hash != decode_job(context, inside).run_hash
        assert decode_job(named, outside) == decode_job(context, outside)


def test_of_a_shared_decode_the_ranges_say_which_places_concern_it(context: ReplayContext) -> None:
    wide = decoded_range(5, 10)
    name = f"manifests/{wide.manifest.input_hash}.json"
    context.artifacts.put_once(name, canonical.encode(wide.manifest))
    shares = msgspec.structs.replace(
        wide.manifest,
        topics=(TopicPin("shop", "id", ()),),
        shared=SharedInput(name, wide.manifest.input_hash, wide.manifest.window),
    )
    hour = PinnedManifest(shares, "manifests/h.json", "file:///h.json", reused=False)
    assert shares.shared is not None
    with naming(context, "shop[0]@5", "shop[0]@20") as named:
        job = decode_job(named, hour)
        assert job.set_aside == job.decoding(shares.shared).set_aside == (EventPlace("shop", 0, 5),)
    with naming(context, "shop[0]@20") as named:
        assert decode_job(named, hour) == decode_job(context, hour), "a line for another day"


def naming(context: ReplayContext, *places: str) -> ReplayContext:
    """The pipeline of *context*, whose file names *places*."""
    loaded = context.loaded._replace(pipeline=context.pipeline.model_copy(update={"set_aside": places}))
    return ReplayContext(loaded, Connections())


@pytest.mark.parametrize("reload", [False, True])
def test_rows_that_the_pipeline_file_names_since_are_not_loaded(
    context: ReplayContext, changelog: Changelog, reload: bool
) -> None:
    with naming(context, "topic[0]@1") as named, pytest.raises(PermanentError) as raised:
        loads(named, changelog, reload=reload)
    told = f"run {changelog.run_hash} of window {changelog.window} has rows of topic[0]@1, which set_aside"
    assert told in str(raised.value)
    assert "from decode on" in str(raised.value)
    with naming(context, "topic[0]@2", "topic[0]@1#1") as named:
        assert isinstance(loads(named, changelog, reload=reload), jobspec.LoadJob)


def test_a_load_that_was_prepared_before_does_not_begin(context: ReplayContext, changelog: Changelog) -> None:
    uri = write_load_job(context, changelog.run_hash, "lake").uri
    begin_load(context, uri)
    with naming(context, "topic[0]@1") as named, pytest.raises(PermanentError, match=r"has rows of topic\[0\]@1"):
        begin_load(named, uri)


def decoded_range(start: int, end: int) -> PinnedManifest:
    """A manifest of the offsets from *start* to *end* of one partition."""
    pin = PartitionPin(OffsetRange("shop", 0, start, end), True, None, None)
    topics = (TopicPin("shop", "id", (pin,)),)
    manifest = Manifest(
        pipeline="shop", changefeed_hash="", window=Window(0, 100), grade="proven", topics=topics, pinned_at_ms=0
    )
    return PinnedManifest(manifest, "manifests/m.json", "file:///m.json", reused=False)
