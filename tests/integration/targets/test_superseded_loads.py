"""A load that was staged when its driver or its submitter was killed, against a repaired run that came meanwhile."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, put, table
from tests.support.in_process import in_process
from tests.support.waiting import wait_for
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import SupersededError
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.jobs import write_load_job
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.targets.load import load
from ticdc_replay.targets.parquet.entries import TableEntry

pytestmark = pytest.mark.integration

CHECKOUT = Path(__file__).parents[3]
ORDERS = table("shop.orders", {"id": ColumnType("int", declared=True), "v": ColumnType("text", declared=True)})
PIPELINE = """
name: pipeline
changefeed: {{sink_uri: "kafka://b:9092/shop?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: kafka}}
artifacts: {folder}
schedule: {{start: "2026-03-01T00:00:00Z"}}
targets:
  - {{name: mirror, type: postgres, connection: target}}
  - {{name: lake, type: parquet, uri: "{folder}/lake"}}
"""
SUBMITTER = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True).wait()"


class Window:
    """A window of a pipeline with both kinds of target, which is pinned, decoded and loaded."""

    def __init__(self, context: ReplayContext, mirror: Mirror, folder: Path) -> None:
        self._context, self._mirror, self._folder = context, mirror, folder

    def job(self, target: str, value: str) -> jobspec.LoadJob:
        """The window is pinned (anew) and decoded to a row with *value*: the job that loads it."""
        changelog = Changelog(self._folder / "pipeline", 0, 100, value).rows(ORDERS, [put(50, id=1, v=value)])
        changelog.input_hash = f"input {value}"
        changelog.write()
        pinned = WindowManifest("pipeline", changelog.window, changelog.input_hash, "", 1)
        before = self._context.state.manifests.of_window("pipeline", changelog.window)
        self._context.state.manifests.register(pinned, replaces=before)
        uri = write_load_job(self._context, changelog.run_hash, target).uri
        job = jobspec.decode(self._context.artifacts.get(uri.removeprefix(self._context.artifacts_uri + "/")))
        assert isinstance(job, jobspec.LoadJob)
        return job

    def load(self, job: jobspec.LoadJob) -> None:
        load(job, self._mirror.connections, in_process)

    def submit(self, job: jobspec.LoadJob, folder: Path) -> subprocess.Popen[bytes]:
        """The submitter of a driver that does *job* and waits in *folder* once all is staged."""
        folder.mkdir()
        (folder / "job.json").write_bytes(msgspec.json.encode(job))
        (folder / "connections.json").write_bytes(msgspec.json.encode([self._mirror.connections["target"]]))
        driver = (sys.executable, "-m", "tests.support.held_load", str(folder))
        submitter = subprocess.Popen((sys.executable, "-c", SUBMITTER, *driver), cwd=CHECKOUT)
        wait_for("the load to be staged", (folder / "staged").exists)
        return submitter

    def value(self, target: str) -> list[str]:
        """What the target shows of the row."""
        if target == "mirror":
            return [value for (value,) in self._mirror.rows("SELECT v FROM shop.orders")]
        lake = self._folder / "lake"
        name = "pipeline/current/schema=shop/table=orders/window=0-100.json"
        entry = msgspec.json.decode((lake / name).read_bytes(), type=TableEntry)
        tables = [pq.read_table(lake / file.name, partitioning=None) for file in entry.fold]
        return [row["after"]["v"] for rows in tables for row in rows.to_pylist()]


@pytest.fixture
def window(mirror: Mirror, tmp_path: Path) -> Iterator[Window]:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(folder=tmp_path.as_uri()))
    with ReplayContext(load_pipeline(tmp_path / "pipeline.yaml"), mirror.connections) as context:
        yield Window(context, mirror, tmp_path)


@pytest.fixture
def submitted(window: Window, tmp_path: Path) -> Iterator[Callable[[jobspec.LoadJob], tuple[int, int]]]:
    """Submits a load and has it held once it is staged: the process ids of submitter and driver."""
    made: list[subprocess.Popen[bytes]] = []

    def submit(job: jobspec.LoadJob) -> tuple[int, int]:
        made.append(window.submit(job, tmp_path / "held"))
        return made[-1].pid, int((tmp_path / "held/staged").read_text())

    yield submit
    (tmp_path / "held/go").touch()  # nobody is left behind
    for submitter in made:
        submitter.kill()
        submitter.wait()


@pytest.mark.parametrize("target", ["mirror", "lake"])
def test_a_driver_that_outlives_its_submitter_does_not_commit_after_a_repaired_run(
    window: Window, submitted: Callable[[jobspec.LoadJob], tuple[int, int]], target: str, tmp_path: Path
) -> None:
    submitter, _ = submitted(window.job(target, "broken"))
    os.kill(submitter, signal.SIGKILL)
    window.load(window.job(target, "repaired"))
    (tmp_path / "held/go").touch()
    wait_for("the old driver to end", (tmp_path / "held/outcome").exists)
    assert (tmp_path / "held/outcome").read_text() == "SupersededError"
    assert window.value(target) == ["repaired"]


@pytest.mark.parametrize("target", ["mirror", "lake"])
def test_a_load_whose_driver_was_killed_is_not_done_again_after_a_repaired_run(
    window: Window, submitted: Callable[[jobspec.LoadJob], tuple[int, int]], target: str
) -> None:
    old = window.job(target, "broken")
    _, driver = submitted(old)
    os.kill(driver, signal.SIGKILL)
    window.load(window.job(target, "repaired"))
    with pytest.raises(SupersededError):
        window.load(old)  # as the submitter does, that tries again
    assert window.value(target) == ["repaired"]
