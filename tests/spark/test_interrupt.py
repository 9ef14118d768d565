"""What is left of a job that the command line submitted, when a signal ends the command."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from tests.support.changelogs import Changelog, put, table
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType

pytestmark = pytest.mark.spark

COMMAND = """
import sys
from pathlib import Path

from ticdc_replay.cli.submit import submit
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connections
from ticdc_replay.stages.context import ReplayContext

with ReplayContext(load_pipeline(Path(sys.argv[1])), Connections()) as context:
    submit(sys.argv[2], context, "local[1]")
"""


def marked(mark: str) -> dict[int, str]:
    """The command lines of all running processes with *mark* in their environment, by process id."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it ended meanwhile
            continue
    return found


class Pipe:
    """A file that whoever opens it reads from without end. Ends with the process."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self._descriptor: int | None = None

    def is_read(self) -> bool:
        if self._descriptor is None:
            with contextlib.suppress(OSError):  # nobody has opened it yet
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        return self._descriptor is not None


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGKILL])
def test_whatever_ends_the_submitter_ends_every_process_of_the_job(
    java_home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    target = {"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}
    pipeline = {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka"},
        "artifacts": (tmp_path / "artifacts").as_uri(),
        "schedule": {"start": "2026-03-01T00:00:00Z"},
        "targets": [target],
    }
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(pipeline), encoding="utf-8")
    changelog = Changelog(tmp_path / "changelog", 0, 100)
    changelog.rows(table("shop.orders", {"id": ColumnType("bigint", declared=True)}), [put(10, id=1)])
    job = tmp_path / "job.json"
    job.write_bytes(canonical.encode(changelog.job(target)))
    (file,) = (tmp_path / "changelog").rglob("*.parquet")
    file.unlink()
    pipe = Pipe(file)  # the executor's Python waits for its content as long as it takes

    mark, private, log = f"TICDC_REPLAY_TEST={uuid4().hex}", tmp_path / "private", tmp_path / "log"
    private.mkdir()
    name, _, value = mark.partition("=")
    environment = {**os.environ, "JAVA_HOME": str(java_home), "TMPDIR": str(private), name: value}
    with log.open("wb") as output:
        command = subprocess.Popen(
            [sys.executable, "-c", COMMAND, tmp_path / "shop.yaml", job.as_uri()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=output,
        )
    try:
        wait_for("an executor to read the changelog", lambda: pipe.is_read() or command.poll() is not None)
        assert command.poll() is None, log.read_text()
        running = " ".join(marked(mark).values())
        assert all(part in running for part in ("SparkSubmit", "pyspark.daemon")), running
        assert "connections.json" in " ".join(str(path) for path in private.rglob("*"))
        command.send_signal(number)
        code = command.wait(PATIENCE_S)
        wait_for("the end of all processes of the job", lambda: not marked(mark))
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
    assert code == -number
    left = [path.name for path in private.iterdir() if re.match("ticdc-replay-|spark-", path.name)]
    assert left == [], "neither the connections nor Spark's folders"
