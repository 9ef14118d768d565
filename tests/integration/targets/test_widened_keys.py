"""A key column that DDL widens within a window: the key is one, however the wire writes it before and after."""

from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.integration.targets.conftest import Mirror
from tests.integration.targets.test_mirror_convergence import job
from tests.support.decoded_splits import decode
from tests.support.in_process import in_process
from tests.support.open_protocol import ddl, message, row
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration

WIDENED = {
    "DECIMAL(6,2)": ("DECIMAL(5,1)", 246, ["1.5", "2.5", "3.5"], ["1.50", "2.50", "3.50"]),
    "DATETIME(3)": (
        "DATETIME",
        12,
        [f"2024-01-0{day} 00:00:00" for day in (1, 2, 3)],
        [f"2024-01-0{day} 00:00:00.000" for day in (1, 2, 3)],
    ),
    "TIMESTAMP(3)": (
        "TIMESTAMP",
        7,
        [f"2024-01-0{day} 00:00:00" for day in (1, 2, 3)],
        [f"2024-01-0{day} 00:00:00.000" for day in (1, 2, 3)],
    ),
    "TIME(3)": (
        "TIME",
        11,
        [f"0{hour}:00:00" for hour in (1, 2, 3)],
        [f"0{hour}:00:00.000" for hour in (1, 2, 3)],
    ),
}


def image(key: Any, value: str, code: int) -> dict[str, dict[str, Any]]:
    return {"id": {"t": code, "h": True, "f": 11, "v": key}, "v": {"t": 15, "f": 64, "v": value}}


def windows(folder: Path, new: str, known: bool) -> list[ChangelogIndex]:
    """A window with the DDL, and one after it. *known*: whether CREATE TABLE and the DDL can be read."""
    old, code, before, after = WIDENED[new]
    create = f"CREATE TABLE t (id {old} NOT NULL, v VARCHAR(20), UNIQUE KEY u (id))"
    alter = f"ALTER TABLE t MODIFY COLUMN id {new} NOT NULL"
    ddls = [DdlEvent(0, 1, "s", "t", create, 3), DdlEvent(0, 150, "s", "t", alter, 12)]
    events = {
        Window(100, 200): [
            row(110, new=image(before[0], "a", code)),
            row(111, new=image(before[1], "b", code)),
            row(112, new=image(before[2], "c", code)),
            *([ddl(150, alter)] if known else []),
            row(160, old=image(after[0], "a", code)),
            row(161, new=image(after[1], "b2", code), old=image(after[1], "b", code)),
        ],
        Window(200, 300): [row(210, new=image(after[2], "c2", code), old=image(after[2], "c", code))],
    }
    history = SchemaHistory().with_ddls(ddls) if known else SchemaHistory()
    return [
        decode(folder, [[message([event], at) for at, event in enumerate(of)]], window=window, history=history)[0]
        for window, of in events.items()
    ]


@pytest.mark.parametrize("order", list(permutations([0, 1])), ids=str)
@pytest.mark.parametrize(("new", "known"), [*((new, True) for new in WIDENED), ("DECIMAL(6,2)", False)])
def test_a_mirror_has_the_last_version_of_each_row(
    mirror: Mirror, tmp_path: Path, new: str, known: bool, order: tuple[int, ...]
) -> None:
    made = windows(tmp_path, new, known)
    for at in order:
        load(job(f"file://{tmp_path}", made[at]), mirror.connections, in_process, 2)
    assert mirror.rows("SELECT v FROM s.t ORDER BY id") == [("b2",), ("c2",)]


@pytest.mark.parametrize("new", WIDENED)
def test_a_lake_has_the_last_version_of_each_row(tmp_path: Path, new: str) -> None:
    made = windows(tmp_path, new, known=True)[0]
    lake = {"type": "parquet", "name": "lake", "uri": (tmp_path / "lake").as_uri()}
    load(msgspec.structs.replace(job(f"file://{tmp_path}", made), target=lake), Connections({}), in_process, 1)
    files = [*(tmp_path / "lake").rglob("fold/**/*.parquet")]
    rows = [found for file in files for found in pq.read_table(file, partitioning=None).to_pylist()]
    assert sorted((row["_commit_ts"], row["_op"]) for row in rows) == [
        (112, "insert"),
        (160, "delete"),
        (161, "update"),
    ]
