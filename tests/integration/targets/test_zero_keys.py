"""0 and -0 in a key are one row, as they are to the upstream, however often it changes from one to the other."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.integration.targets.conftest import Mirror
from tests.integration.targets.test_mirror_convergence import job
from tests.support.decoded_splits import decode
from tests.support.in_process import in_process
from tests.support.open_protocol import message, row
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration

TYPES = {
    "DOUBLE": (5, 0.0, -0.0),
    "FLOAT": (4, 0.0, -0.0),
    "DECIMAL(10,2)": (246, "0.00", "-0.00"),
    "DECIMAL(50,2)": (246, "0.00", "-0.00"),
}
HISTORIES = {
    "each is inserted and deleted": ("+0 -0 +n -n", None),
    "deleted, then inserted as the other": ("+0 -0 +n", "n"),
    "inserted as the other, and deleted": ("+n -n +0", "0"),
    "updated": ("+0 0n", "n"),
    "updated and back": ("+n n0 0n n0", "0"),
}
"""What happens, one commitTs after the other, and as what the row is left: ``+`` inserts, ``-`` deletes, else an update; ``n``
is -0."""


def changelog(folder: Path, kind: str, steps: str) -> ChangelogIndex:
    code, zero, negative = TYPES[kind]

    def image(sign: str, value: str) -> dict[str, Any]:
        key = {"t": code, "h": True, "f": 11, "v": zero if sign == "0" else negative}
        return {"id": key, "n": {"t": 3, "h": True, "f": 11, "v": 7}, "v": {"t": 15, "f": 64, "v": value}}

    create = f"CREATE TABLE t (id {kind} NOT NULL, n INT NOT NULL, v VARCHAR(20), PRIMARY KEY (id, n))"
    events = []
    for at, (before, after) in enumerate(steps.split()):
        if before == "-":
            events.append(row(110 + at, old=image(after, "v")))
        else:
            old = None if before == "+" else image(before, "v")
            events.append(row(110 + at, new=image(after, f"v{after}"), old=old))
    history = SchemaHistory().with_ddls([DdlEvent(0, 1, "s", "t", create, 3)])
    messages = [message([event], at) for at, event in enumerate(events)]
    return decode(folder, [messages], window=Window(100, 200), history=history)[0]


@pytest.mark.parametrize("steps", HISTORIES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_mirror_has_the_row_as_it_is_last(mirror: Mirror, tmp_path: Path, kind: str, steps: str) -> None:
    happens, left = HISTORIES[steps]
    load(job(f"file://{tmp_path}", changelog(tmp_path, kind, happens)), mirror.connections, in_process, 2)
    assert mirror.rows("SELECT v FROM s.t") == ([] if left is None else [(f"v{left}",)])


@pytest.mark.parametrize("steps", HISTORIES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_fold_has_the_row_once(tmp_path: Path, kind: str, steps: str) -> None:
    happens, left = HISTORIES[steps]
    made = job(f"file://{tmp_path}", changelog(tmp_path, kind, happens))
    lake = {"type": "parquet", "name": "lake", "uri": (tmp_path / "lake").as_uri()}
    load(msgspec.structs.replace(made, target=lake), Connections({}), in_process, 1)
    files = [*(tmp_path / "lake").rglob("fold/**/*.parquet")]
    rows = [found for file in files for found in pq.read_table(file, partitioning=None).to_pylist()]
    assert [row["after"] and row["after"]["v"] for row in rows] == [left and f"v{left}"]
