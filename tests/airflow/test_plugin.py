"""What the plugin adds to Airflow, and the coverage page in Airflow's own API server and behind its own log-in."""

import json
import sys
from pathlib import Path

import pytest

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window

pytestmark = [pytest.mark.airflow, pytest.mark.matrix]

PROJECT = Path(__file__).parents[2]
HOUR = 3_600_000 << 18
PLACES = {"warehouse": "postgres warehouse", "lake": "parquet file:///dev/null/lake"}
START = 1_772_323_200_000 << 18  # 2026-03-01T00:00:00Z


@pytest.fixture(autouse=True)
def live(pipelines, tmp_path):
    """The pipeline ``live``, whose state store is in a folder, beside one that can't be loaded."""
    pipelines.add("live", {"artifacts": (tmp_path / "artifacts").as_uri()})
    pipelines.add("broken", "name: [")


@pytest.fixture
def record(tmp_path):
    """Notes that a window of a table is loaded."""
    from ticdc_replay.state import open_state
    from ticdc_replay.state.coverage import Coverage, CoveredTable

    (tmp_path / "artifacts").mkdir()
    state = open_state(f"sqlite:///{tmp_path}/artifacts/state.db")

    def record(target, hour, quality="complete", table="orders", selection="*.*", grade="proven", place=None):
        loaded = Coverage(
            pipeline="live",
            target=target,
            place=place or PLACES[target],
            window=Window(START + hour * HOUR, START + (hour + 1) * HOUR),
            run_hash=f"{hour} {selection}",
            selection=(selection,),
            grade=grade,
            quality="complete",
            tables=(CoveredTable(TableName("shop", table), quality),),
            loaded_at_ms=0,
        )
        state.coverage.record([loaded])

    yield record
    state.close()


def test_the_page_shows_what_is_loaded_and_the_gaps(signed_in, record):
    for hour in (0, 1, 4):
        record("warehouse", hour)
    record("warehouse", 2, "quarantine", table="<b>items")
    page = signed_in.get("/ticdc-replay/coverage/ticdc_replay_live")
    assert page.status_code == 200
    assert "2026-03-01 03:00:00 to 2026-03-01 04:00:00" in page.text
    assert page.text.count('class="quarantine proven" style="left:40.0000%;width:20.0000%"') == 2
    assert "shop.&lt;b&gt;items" in page.text
    assert "Nothing is loaded in this target yet" in page.text, "the lake"


def test_the_page_tells_what_is_loaded_only_where_a_target_was_before(signed_in, record):
    record("lake", 0, place="parquet file:///dev/null/pond")
    record("lake", 1)
    page = signed_in.get("/ticdc-replay/coverage/ticdc_replay_live")
    gap = "2026-03-01 00:00:00 to 2026-03-01 01:00:00: loaded elsewhere, where the target was before"
    assert f"{gap} (parquet file:///dev/null/pond)" in page.text
    assert page.text.count('class="complete proven" style="left:50.0000%;width:50.0000%"') == 2


def test_the_page_shows_what_was_taken_from_changelogs(signed_in, record, tmp_path):
    from ticdc_replay.stages.load.recording import DERIVED
    from ticdc_replay.state import open_state
    from ticdc_replay.state.runs import Run

    state = open_state(f"sqlite:///{tmp_path}/artifacts/state.db")
    for hour in range(4):
        record("warehouse", hour)
        window = Window(START + hour * HOUR, START + (hour + 1) * HOUR)
        counts = {DERIVED: 1} if hour in (1, 2) else {}
        run = Run(
            pipeline="live",
            run_hash=f"{hour} *.*",
            window=window,
            input_hash="",
            status="done",
            started_at_ms=0,
            counts=counts,
        )
        state.runs.record(run)
    state.close()
    page = signed_in.get("/ticdc-replay/coverage/ticdc_replay_live").text
    assert (
        "Taken from changelogs of the pipeline, not from Kafka: 2026-03-01 01:00:00 to 2026-03-01 03:00:00</p>" in page
    )


def test_the_page_shows_grade_and_what_was_loaded_for_some_tables_only(signed_in, record):
    record("warehouse", 0)
    record("warehouse", 1, grade="unproven")
    record("warehouse", 2, selection="shop.orders")
    record("warehouse", 3, table="items")
    page = signed_in.get("/ticdc-replay/coverage/ticdc_replay_live")
    assert page.text.count('class="complete unproven" style="left:25.0000%;width:25.0000%"') == 3
    assert page.text.count('class="partial" style="left:50.0000%;width:25.0000%"') == 1
    assert "2026-03-01 02:00:00 to 2026-03-01 03:00:00: only some of the tables are loaded" in page.text
    orders = page.text.partition(">shop.orders<")[2]
    assert "No gap." in orders


def test_a_target_that_is_behind_another_is_not_said_to_have_it_all(signed_in, record):
    record("warehouse", 0)
    record("lake", 0)
    record("lake", 1)
    page = signed_in.get("/ticdc-replay/coverage/ticdc_replay_live").text
    warehouse = page.partition("<h2>warehouse</h2>")[2].partition("<h2>")[0]
    assert "No gap from 2026-03-01 00:00:00 to 2026-03-01 01:00:00; nothing is loaded outside of it." in warehouse
    assert "<p>No gap.</p>" in page.partition("<h2>lake</h2>")[2].partition("<h2>")[0]


def test_a_pipeline_without_loads_says_so(signed_in, record):
    assert "No target has been loaded yet" in signed_in.get("/ticdc-replay/coverage/ticdc_replay_live").text


def test_other_dags_have_no_such_page(signed_in):
    assert signed_in.get("/ticdc-replay/coverage/some_other_dag").status_code == 404


def test_nobody_sees_it_without_signing_in(client, record):
    assert client.get("/ticdc-replay/coverage/ticdc_replay_live").status_code == 401


def test_airflow_registers_the_plugin_and_no_other_file_of_the_folder(client):
    from airflow import plugins_manager

    plugins_manager.ensure_plugins_loaded()
    views = [view for plugin in plugins_manager.get_plugin_info() for view in plugin["external_views"]]
    ours = [view["name"] for view in views if view.get("href", "").startswith("ticdc-replay/")]
    assert ours == ["Coverage", "Store"]
    assert plugins_manager.get_import_errors() == {}


def test_the_installed_package_registers_the_plugin_once_and_the_plugins_folder_not_again():
    from airflow.plugins_manager import _get_plugins

    plugins, errors = _get_plugins()
    assert errors == {}
    (ours,) = [plugin for plugin in plugins if plugin.name == "ticdc_replay"]
    assert "ticdc_replay.airflow.registration.plugin:TicdcReplayPlugin" in str(ours.source)


def test_a_library_that_is_on_the_path_only_is_registered_by_the_plugins_folder(monkeypatch):
    import importlib.metadata
    import runpy

    from ticdc_replay.airflow.registration.plugin import TicdcReplayPlugin

    file = PROJECT / "plugins" / "ticdc_replay_plugin.py"
    assert TicdcReplayPlugin not in runpy.run_path(str(file)).values()
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    assert TicdcReplayPlugin in runpy.run_path(str(file)).values()


def test_airflow_knows_the_provider_and_the_form_of_its_connections(sign_in):
    import jsonschema
    from airflow.providers_manager import ProvidersManager

    from ticdc_replay import __version__

    provider = ProvidersManager().providers["ticdc-replay"]
    assert provider.version == __version__
    schema = Path(sys.modules["airflow"].__file__).with_name("provider_info.schema.json")
    jsonschema.validate(provider.data, json.loads(schema.read_text()))
    (form,) = [
        hook
        for hook in sign_in("somebody", "admin").get("/ui/connections/hook_meta").json()
        if hook["connection_type"] == "tidb"
    ]
    assert form["hook_name"] == "TiDB"
    assert set(form["extra_fields"]) == {"ssl_ca", "ssl_cert", "ssl_key"}
    assert form["standard_fields"]["url_schema"]["hidden"]
