"""What counts as loaded is what the place of a target got, whatever the target was called when it did."""

from pathlib import Path

import msgspec
import pytest

from tests.unit.stages.load.test_replaced_windows import PIPELINE, WINDOW, Lake
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.begin_load import begin_load
from ticdc_replay.stages.load.coverage import Gap, TargetCoverage, coverage
from ticdc_replay.stages.load.publish import last_load, publish, settle
from ticdc_replay.stages.quarantine.entries import holding
from ticdc_replay.state.quarantine import Redrive
from ticdc_replay.storage import open_store
from ticdc_replay.targets.base import LoadReport


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def lake_at(folder: Path, place: str, name: str = "lake") -> Lake:
    """The pipeline as its file says once the target is called *name* and writes into the folder *place*."""
    text = PIPELINE.format(folder=folder.as_uri())
    section = f'[{{name: {name}, type: parquet, uri: "{folder.as_uri()}/{place}"}}]'
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("targets:"))
    (folder / "pipeline.yaml").write_text(f"{text}targets: {section}\n")
    lake = Lake(ReplayContext(load_pipeline(folder / "pipeline.yaml"), Connections()), folder / "pipeline")
    lake._runs = 10
    return lake


def place(folder: Path, name: str) -> str:
    return f"parquet {folder.as_uri()}/{name}"


def shown(lake: Lake) -> TargetCoverage:
    (target,) = coverage(lake.context.pipeline, lake.context.state)
    return target


def test_a_window_in_the_place_that_a_target_had_before_is_a_gap(folder: Path) -> None:
    lake = lake_at(folder, "a")
    run_hash = lake.run("proven", 1, 2)
    lake.replay(run_hash)
    moved = lake_at(folder, "b")
    found = shown(moved)
    assert found.target.spans == ()
    assert found.target.gaps == (Gap(WINDOW, elsewhere=(place(folder, "a"),)),)
    (orders,) = found.tables
    assert (orders.spans, orders.gaps) == ((), found.target.gaps)
    assert dict(holding(moved.context, run_hash)) == {}
    moved.replay(run_hash)
    assert (folder / "b").exists()
    assert (shown(moved).target.gaps, moved.held()) == ((), ("complete", "proven"))
    assert dict(holding(moved.context, run_hash)) == {"lake": place(folder, "b")}
    assert lake_at(folder, "a").held() == ("complete", "proven"), "and there it is still"
    assert lake_at(folder, "c").held() == "gap"


def test_a_run_is_not_published_for_a_place_that_it_was_not_loaded_into(folder: Path) -> None:
    lake = lake_at(folder, "a")
    run_hash = lake.run("proven", 1, 2)
    job = lake.job(run_hash)
    moved = lake_at(folder, "b")
    with pytest.raises(ConfigError, match="lake") as refused:
        begin_load(moved.context, job)
    assert all(place(folder, name) in str(refused.value) for name in ("a", "b"))
    lake.load(job)
    with pytest.raises(PermanentError, match="lake") as refused_too:
        publish(moved.context, run_hash, ["lake"])
    assert all(place(folder, name) in str(refused_too.value) for name in ("a", "b"))
    assert coverage(moved.context.pipeline, moved.context.state)[0].target.spans == ()
    publish(lake.context, run_hash, ["lake"])
    assert lake.held() == ("complete", "proven")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            "targets: [{name: lake, type: parquet, uri: '%s/a', shape: [{tables: ['*.*'], mask: {v: 'null'}}]}]",
            "target lake",
        ),
        ("targets: [{name: lake, type: parquet, uri: '%s/a'}]\npolicies: {drop: apply}", "policies.drop"),
    ],
)
def test_a_load_that_was_prepared_before_the_file_was_changed_does_not_begin(
    folder: Path, line: str, named: str
) -> None:
    lake = lake_at(folder, "a")
    job = lake.job(lake.run("proven", 1))
    begin_load(lake.context, job)
    file = folder / "pipeline.yaml"
    kept = "".join(each for each in file.read_text().splitlines(keepends=True) if not each.startswith("targets:"))
    file.write_text(kept + line.replace("%s", folder.as_uri()))
    changed = ReplayContext(load_pipeline(file), Connections())
    with pytest.raises(ConfigError, match=f"before the pipeline file was changed .{named}.*from check on"):
        begin_load(changed, job)


def test_the_first_mask_and_cast_that_match_a_column_count_in_a_job_too(folder: Path) -> None:
    """JSON of job specs is sorted, and `*` comes before letters."""
    lake = lake_at(folder, "a")
    run_hash = lake.run("proven", 1)
    before = lake.job(run_hash)
    file = folder / "pipeline.yaml"
    kept = "".join(each for each in file.read_text().splitlines(keepends=True) if not each.startswith("targets:"))

    def with_shape(shape: str) -> ReplayContext:
        file.write_text(
            f"{kept}targets: [{{name: lake, type: parquet, uri: '{folder.as_uri()}/a', shape: [{shape}]}}]\n"
        )
        return ReplayContext(load_pipeline(file), Connections())

    first = with_shape("{mask: {v: 'null', '*': {fixed: x}}, cast: {v: text, '*': bigint}}")
    lake.context = first
    job = lake.job(run_hash)
    assert job != before
    written = jobspec.read(first.artifacts, job)
    assert isinstance(written, jobspec.LoadJob)
    (shape,) = read_section(written.target).shape
    assert (list(shape.mask), list(shape.cast)) == (["v", "*"], ["v", "*"])
    begin_load(first, job)
    for other in (
        "{mask: {'*': {fixed: x}, v: 'null'}, cast: {v: text, '*': bigint}}",
        "{mask: {v: 'null', '*': {fixed: x}}, cast: {'*': bigint, v: text}}",
    ):
        with pytest.raises(ConfigError, match=r"before the pipeline file was changed \(target lake"):
            begin_load(with_shape(other), job)


def test_a_target_that_is_renamed_keeps_what_its_place_has(folder: Path) -> None:
    lake = lake_at(folder, "a")
    run_hash = lake.run("proven", 1)
    lake.replay(run_hash)
    redrive = lake.redrive(run_hash, 2)
    renamed = lake_at(folder, "a", "files")
    assert renamed.held() == ("complete", "proven")
    assert dict(holding(renamed.context, run_hash)) == {"files": place(folder, "a")}
    publish(renamed.context, run_hash, ["files"])
    assert renamed.redrives(run_hash) == [redrive]
    begin_load(renamed.context, renamed.job(run_hash, target="files", reload=True))
    assert renamed.held() == "gap", "it is the same folder whose files are replaced"
    renamed.load(renamed.job(run_hash, target="files", reload=True))
    publish(renamed.context, run_hash, ["files"])
    assert renamed.redrives(run_hash) == [], "the reload took it back"
    assert renamed.held() == ("complete", "proven")


def test_a_load_that_has_begun_elsewhere_takes_nothing_away(folder: Path) -> None:
    lake = lake_at(folder, "a")
    run_hash = lake.run("proven", 1)
    lake.replay(run_hash)
    moved = lake_at(folder, "b")
    begin_load(moved.context, moved.job(run_hash, reload=True))
    assert lake_at(folder, "a").held() == ("complete", "proven")


def test_windows_of_both_places_are_told_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_at(folder, "a")
    lake.replay(lake.run("proven", 1))
    monkeypatch.setattr("tests.unit.stages.load.test_replaced_windows.WINDOW", Window(100, 200))
    moved = lake_at(folder, "b")
    moved.replay(moved.run("proven", 101))
    assert [span.window for span in shown(moved).target.spans] == [Window(100, 200)]
    assert shown(moved).target.gaps == (Gap(Window(0, 100), elsewhere=(place(folder, "a"),)),)


def test_what_an_earlier_version_recorded_is_where_the_target_is_when_this_version_first_opens_the_store(
    folder: Path,
) -> None:
    lake = lake_at(folder, "a")
    run_hash = lake.run("proven", 1)
    lake.replay(run_hash)
    redrive = lake.redrive(run_hash, 2)
    older = lake.job(run_hash, reload=True)
    begin_load(lake.context, older)
    forget_places(lake)
    assert lake_at(folder, "a").held() == "gap", "a load has begun"
    again = lake_at(folder, "a")
    again.load(again.job(run_hash, reload=True))
    again.context.state.quarantine.record_redrive(Redrive("pipeline", run_hash, redrive, "lake", 1, place(folder, "a")))
    publish(again.context, run_hash, ["lake"])
    forget_places(again)
    assert lake_at(folder, "a").held() == ("complete", "proven")
    assert shown(lake_at(folder, "b")).target.gaps == (Gap(WINDOW, elsewhere=(place(folder, "a"),)),)
    with pytest.raises(PermanentError):
        publish(lake_at(folder, "b").context, run_hash, ["lake"])
    publish(lake_at(folder, "a").context, run_hash, ["lake"])


def forget_places(lake: Lake) -> None:
    """Leave state store and load reports as an earlier version did."""
    context = lake.context
    with context.state._database.writing() as connection:
        for table in ("coverage", "covered_table", "begun_load", "redrive"):
            connection.exec_driver_sql(f"UPDATE {table} SET place = ''")
    store = open_store(context.artifacts_uri)
    for entry in store.list("loads/"):
        if entry.name.count("/") == 3:
            report = msgspec.json.decode(store.get(entry.name), type=LoadReport)
            store.put(entry.name, canonical.encode(msgspec.structs.replace(report, place="")))


def test_the_last_load_is_that_of_the_place(folder: Path) -> None:
    lake = lake_at(folder, "a")
    run_hash = lake.run("proven", 1)
    lake.replay(run_hash)
    moved = lake_at(folder, "b")
    moved.replay(run_hash)
    for name in ("a", "b"):
        assert last_load(moved.context, run_hash, place(folder, name)).place == place(folder, name)


def test_of_a_target_that_the_file_had_before_the_upgrade_nothing_is_settled(folder: Path) -> None:
    lake = lake_at(folder, "a")
    run_hash = lake.run("proven", 1)
    lake.replay(run_hash)
    lake.context.state.quarantine.record_redrive(
        Redrive("pipeline", run_hash, "d" * 64, "", 1)
    )  # and was not loaded into the lake
    forget_places(lake)
    other = lake_at(folder, "b", "files")
    other.load(other.job(run_hash, target="files"))
    publish(other.context, run_hash, ["files"])
    settle(other.context, run_hash)
    assert other.held() == ("complete", "proven")
    assert lake_at(folder, "a").held() == ("complete", "proven")
