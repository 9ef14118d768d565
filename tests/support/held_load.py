"""A driver of a load that stops once all is staged, until it is told to go on: ``python -m tests.support.held_load <folder>``.

The folder has ``job.json`` and ``connections.json``. The driver puts ``staged`` (its process id) there, waits for ``go``, and
ends with ``outcome``: the name of the error, or ``loaded``.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.support.in_process import in_process
from tests.support.waiting import wait_for
from ticdc_replay import jobspec
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import TicdcReplayError
from ticdc_replay.targets.load import load

_LAST_STEP = {"postgres": "stage into", "parquet": "write the last version of each row"}
"""The tasks after which a target only commits."""


def main(folder: Path) -> None:
    """Load as the folder says."""
    job = jobspec.decode((folder / "job.json").read_bytes())
    assert isinstance(job, jobspec.LoadJob)
    connections = msgspec.json.decode((folder / "connections.json").read_bytes(), type=list[Connection])
    last_step = _LAST_STEP[str(job.target["type"])]

    def held(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name.startswith(last_step):
            _put(folder / "staged", str(os.getpid()))
            wait_for("the word to go on", (folder / "go").exists)
        return results

    try:
        load(job, Connections({each.conn_id: each for each in connections}), held)
    except TicdcReplayError as error:
        _put(folder / "outcome", type(error).__name__)
    else:
        _put(folder / "outcome", "loaded")


def _put(path: Path, text: str) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.rename(path)  # appears with its content


if __name__ == "__main__":
    main(Path(sys.argv[1]))
