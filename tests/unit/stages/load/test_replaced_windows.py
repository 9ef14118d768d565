"""Coverage of a target that replaces files: never better than the files, wherever a load or its recording broke."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelogs import Changelog, put, table
from tests.support.in_process import in_process
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.window import Grade, Window
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest, TopicPin
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.begin_load import begin_load
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.load.publish import publish
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.quarantine import Redrive
from ticdc_replay.storage import open_store
from ticdc_replay.targets.load import load

PIPELINE = """
name: pipeline
changefeed: {{sink_uri: "kafka://b:9092/shop?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: kafka}}
artifacts: {folder}
schedule: {{start: "2026-03-01T00:00:00Z"}}
tables: ["shop.*"]
targets: [{{name: lake, type: parquet, uri: "{folder}/lake"}}]
"""
ORDERS, ITEMS = (table(f"shop.{name}", {"id": ColumnType("bigint", declared=True)}) for name in ("orders", "items"))
WINDOW = Window(0, 100)
PROVEN, UNPROVEN, GAP = ("complete", "proven"), ("complete", "unproven"), "gap"


class Lake:
    """One window of a pipeline with one target, Parquet files: as if it were pinned and decoded, and really loaded."""

    def __init__(self, context: ReplayContext, folder: Path) -> None:
        self.context, self._folder = context, folder
        self._runs = 0

    def run(self, grade: Grade, *rows: int, tables: tuple[str, ...] | None = None, pin: bool = True) -> str:
        """The window is pinned (anew) and decoded: to *rows* of ``shop.orders``, by their ids.

        Without *pin* the input stays what it is.
        """
        state = self.context.state
        existing = state.manifests.of_window("pipeline", WINDOW)
        self._runs += 1
        manifest = Manifest(
            pipeline="pipeline",
            changefeed_hash=self.context.changefeed.hash,
            window=WINDOW,
            grade=grade,
            topics=(TopicPin("shop", "topic-id", ()),),
            replaces=existing.input_hash if existing else None,
            pinned_at_ms=self._runs,
        )
        if not pin and existing is not None:
            manifest = manifests.decode(self.context.artifacts.get(existing.name))
        name = f"manifests/{manifest.input_hash}.json"
        if pin:
            self.context.artifacts.put_once(name, canonical.encode(manifest))
            made = WindowManifest("pipeline", WINDOW, manifest.input_hash, name, manifest.pinned_at_ms)
            state.manifests.register(made, replaces=existing)
        written = write_decode_job(self.context, PinnedManifest(manifest, name, name, reused=False), tables)
        self._write(written.run_hash, manifest.input_hash, *rows)
        return written.run_hash

    def redrive(self, run_hash: str, *rows: int) -> str:
        """What comes out of the quarantine of *run_hash*, loaded, and recorded as that."""
        redrive_hash = f"{run_hash[:-8]}{len(self.redrives(run_hash)):08}"
        self._write(redrive_hash, "0" * 64, *rows, redrives=run_hash)
        self.load(self.job(redrive_hash))
        self.context.state.quarantine.record_redrive(
            Redrive("pipeline", run_hash, redrive_hash, "lake", 1, self.context.places["lake"])
        )
        return redrive_hash

    def redrives(self, run_hash: str) -> list[str]:
        return [redrive.redrive_hash for redrive in self.context.state.quarantine.redrives("pipeline", run_hash)]

    def _write(self, run_hash: str, input_hash: str, *rows: int, redrives: str | None = None) -> None:
        changelog = Changelog(self._folder, WINDOW.from_ts, WINDOW.to_ts)
        changelog.run_hash, changelog.input_hash, changelog.redrives = run_hash, input_hash, redrives
        if rows:
            changelog.rows(ORDERS, [put(10 + row, id=row) for row in rows])
        changelog.write()

    def job(
        self, run_hash: str, *, target: str = "lake", reload: bool = False, tables: tuple[str, ...] | None = None
    ) -> str:
        return write_load_job(self.context, run_hash, target, tables, reload=reload).uri

    def load(self, uri: str) -> None:
        job = jobspec.decode(self.context.artifacts.get(uri.removeprefix(self.context.artifacts_uri + "/")))
        assert isinstance(job, jobspec.LoadJob)
        begin_load(self.context, uri)
        report = load(job, self.context.connections, in_process)
        open_store(job.artifacts).put_once(report.name, canonical.encode(report))

    def replay(self, run_hash: str, **options: Any) -> None:
        self.load(self.job(run_hash, **options))
        publish(self.context, run_hash, ["lake"])

    def held(self) -> Any:
        """What the coverage says of the target and the window."""
        (target,) = coverage(self.context.pipeline, self.context.state)
        if target.target.gaps:
            return GAP
        (span,) = target.target.spans
        return span.held.quality, span.held.grade


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(folder=tmp_path.as_uri()))
    with ReplayContext(load_pipeline(tmp_path / "pipeline.yaml"), Connections()) as context:
        yield Lake(context, tmp_path / "pipeline")


def test_a_window_that_is_pinned_anew_is_as_good_as_the_run_whose_files_it_has(lake: Lake) -> None:
    lake.replay(lake.run("proven", 1, 2))
    assert lake.held() == PROVEN
    newer = lake.run("unproven", 1)
    job = lake.job(newer)
    assert lake.held() == PROVEN, "nothing of the newer run is loaded yet"
    begin_load(lake.context, job)
    assert lake.held() == GAP, "nobody knows which files are there"
    lake.load(job)
    assert lake.held() == GAP
    publish(lake.context, newer, ["lake"])
    assert lake.held() == UNPROVEN


def test_an_older_run_that_is_published_again_does_not_tell_of_the_newer_one_s_files(lake: Lake) -> None:
    older = lake.run("proven", 1, 2)
    lake.replay(older)
    lake.replay(lake.run("unproven", 1))
    publish(lake.context, older, ["lake"])
    assert lake.held() == UNPROVEN


def test_a_reload_that_broke_before_it_replaced_a_file_is_not_held_until_it_did(lake: Lake) -> None:
    older = lake.run("proven", 1, 2)
    lake.replay(older)
    newer = lake.run("unproven", 1)
    lake.replay(newer)
    begin_load(lake.context, lake.job(older, reload=True))
    assert lake.held() == GAP
    publish(lake.context, older, ["lake"])
    assert lake.held() == GAP, "the last report is of the load before"
    lake.replay(older, reload=True)
    assert lake.held() == PROVEN
    lake.replay(newer, reload=True)
    assert lake.held() == UNPROVEN


def test_a_load_takes_the_place_of_files_of_another_run_though_it_was_done_before(lake: Lake) -> None:
    older = lake.run("unproven", 1, 2)
    lake.replay(older)
    newer = lake.run("proven", 1)
    lake.replay(newer)
    lake.load(lake.job(older, reload=True))  # and was never published
    with_reload = lake.job(newer, reload=True)
    assert lake.held() == GAP
    lake.load(with_reload)
    publish(lake.context, newer, ["lake"])
    assert lake.held() == PROVEN


def test_a_run_for_some_tables_tells_of_these_alone(lake: Lake) -> None:
    lake.replay(lake.run("proven", 1, 2))
    narrow = lake.run("unproven", 1, tables=("shop.orders",))
    uri = lake.job(narrow, tables=("shop.orders",))
    begin_load(lake.context, uri)
    (target,) = coverage(lake.context.pipeline, lake.context.state)
    assert [gap.partial for gap in target.target.gaps] == [True]
    lake.load(uri)
    publish(lake.context, narrow, ["lake"])
    assert lake.held() == UNPROVEN
    lake.replay(lake.run("proven", 1, 2, tables=("shop.items",)), tables=("shop.items",))
    assert lake.held() == UNPROVEN, "the files of orders are those of the narrow run"
    lake.replay(lake.run("proven", 1, 2, tables=("shop.orders",)), tables=("shop.orders",))
    assert lake.held() == PROVEN


def test_a_repeat_keeps_what_re_drives_brought_and_a_reload_takes_it_back(lake: Lake) -> None:
    run_hash = lake.run("proven", 1)
    lake.replay(run_hash)
    redrive = lake.redrive(run_hash, 2)
    lake.replay(run_hash)
    assert lake.redrives(run_hash) == [redrive], "done before: its files are those with the re-drive"
    assert lake.held() == PROVEN
    lake.load(lake.job(run_hash, reload=True))
    assert lake.held() == GAP, "the files have lost what the re-drive brought, and nothing is recorded"
    lake.replay(run_hash)
    assert lake.redrives(run_hash) == []
    lake.redrive(run_hash, 2, 3)
    publish(lake.context, run_hash, ["lake"])
    assert len(lake.redrives(run_hash)) == 1, "this report was published before the re-drive"


def test_a_run_of_fewer_tables_that_decodes_the_same_rows_takes_back_what_a_re_drive_of_the_other_brought(
    lake: Lake,
) -> None:
    whole = lake.run("proven", 1)
    lake.replay(whole)
    lake.redrive(whole, 2)
    narrow = lake.run("proven", 1, tables=("shop.orders",), pin=False)
    lake.replay(narrow, tables=("shop.orders",))
    lake.replay(whole)
    assert lake.redrives(whole) == []
