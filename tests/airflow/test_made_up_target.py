"""A kind of target that a package registers from outside, in Airflow: its task and its bar on the coverage page."""

import pytest

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.state import open_state
from ticdc_replay.state.coverage import Coverage, CoveredTable

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("made_up_target")]

START = 1_772_323_200_000 << 18  # 2026-03-01T00:00:00Z
WINDOW = Window(START, START + (3_600_000 << 18))


@pytest.fixture
def file(pipelines, tmp_path):
    target = {"name": "log", "type": "lines", "uri": "file:///dev/null/lines"}
    return pipelines.add("live", {"artifacts": (tmp_path / "artifacts").as_uri(), "targets": [target]})


def test_its_load_is_a_task_of_the_dag_that_says_what_it_is(file):
    from ticdc_replay.airflow.dags.pipeline import build_dag

    dag = build_dag(file)
    assert "lines" in dag.tags
    assert "`Lines of JSON below file:///dev/null/lines`" in dag.get_task("load_log").doc_md


def test_the_coverage_page_shows_its_windows(file, signed_in, tmp_path):
    (tmp_path / "artifacts").mkdir()
    state = open_state(f"sqlite:///{tmp_path}/artifacts/state.db")
    state.coverage.record(
        [
            Coverage(
                pipeline="live",
                target="log",
                place="lines file:///dev/null/lines",
                window=WINDOW,
                run_hash="a",
                selection=("*.*",),
                grade="proven",
                quality="complete",
                tables=(CoveredTable(TableName("shop", "orders"), "complete"),),
                loaded_at_ms=0,
            )
        ]
    )
    state.close()
    page = signed_in.get("/ticdc-replay/coverage/ticdc_replay_live")
    assert page.status_code == 200
    assert "2026-03-01 00:00:00 to 2026-03-01 01:00:00: complete" in page.text
