"""``ticdc-replay coverage``."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from tests.unit.stages.load.test_moved_targets import lake_at, place
from tests.unit.stages.load.test_replaced_windows import WINDOW
from ticdc_replay.cli.main import app


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "300")

    def shown(*options: str) -> Result:
        return CliRunner().invoke(app, ["coverage", str(tmp_path / "pipeline.yaml"), *options])

    return shown


def test_a_window_that_is_loaded_is_shown_with_its_proof(tmp_path: Path, shown) -> None:
    lake = lake_at(tmp_path, "a")
    lake.replay(lake.run("proven", 1, 2))
    result = shown("--tables")
    assert result.exit_code == 0, result.output
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.output.splitlines() if "│" in line]
    assert [(name, state, proof) for name, _, _, state, proof in cells] == [
        ("(all)", "complete", "proven"),
        ("shop.orders", "complete", "proven"),
    ]
    assert all(str(WINDOW.from_ts) in cell[1] and str(WINDOW.to_ts) in cell[2] for cell in cells)


def test_a_gap_says_where_its_rows_are_and_is_told_by_the_exit_code(tmp_path: Path, shown) -> None:
    lake = lake_at(tmp_path, "a")
    lake.replay(lake.run("proven", 1, 2))
    lake_at(tmp_path, "b")
    result = shown()
    assert result.exit_code == 1
    assert f"gap: loaded elsewhere ({place(tmp_path, 'a')})" in result.output
    (target,) = msgspec.json.decode(shown("--json").output)
    assert (target["target"]["name"], len(target["target"]["gaps"])) == ("lake", 1)


def test_a_target_without_any_load_says_so(tmp_path: Path, shown) -> None:
    lake_at(tmp_path, "a")
    result = shown()
    assert (result.exit_code, result.output) == (0, "lake: nothing is loaded yet\n")


def test_a_target_that_the_pipeline_has_not_is_an_error(tmp_path: Path, shown) -> None:
    lake_at(tmp_path, "a")
    assert shown("--target", "lage").exit_code == 2
