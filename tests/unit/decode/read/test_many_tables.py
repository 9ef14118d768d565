"""A split of any number of tables needs few open files and little memory, and writes the same files."""

import os
import resource
from pathlib import Path

import pytest

from tests.support.decoded_splits import decode
from tests.support.open_protocol import columns, message, row
from ticdc_replay.changelog.cells.columnar import ColumnarRows
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.spill import Spill, SpilledRows

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("limit", ["OPEN_FILES", "WAITING_ARRAYS"])
def test_files_that_are_not_open_or_not_in_memory_hold_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr("ticdc_replay.decode.read.split.BATCH_BYTES", 2_000)
    monkeypatch.setattr("ticdc_replay.changelog.files.writer.WAITING_BYTES", 10_000)
    stream = [message([row(100 + at, new=columns(at, "x" * (at % 900)), table=f"t{at % 7}")], at) for at in range(90)]
    stream += [message([row(100 + at, new=columns(at, "y"), table=f"t{at % 7}")], 90 + at) for at in range(30)]
    found = []
    for number in (1_000_000, 2):
        monkeypatch.setattr(f"ticdc_replay.changelog.files.spill.{limit}", number)
        folder = tmp_path / str(number)
        index, _ = decode(folder, [stream[:70], stream[70:]])
        root = folder / changelog_root(index.run_hash)
        files = [file for table in index.tables for file in table.files]
        found.append(sorted((root / file.name).read_bytes() for file in files))
    assert found[0] == found[1]


def test_a_split_of_many_tables_needs_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_replay.decode.read.split.BATCH_BYTES", 20_000)
    monkeypatch.setattr("ticdc_replay.changelog.files.writer.WAITING_BYTES", 60_000)
    stream = [message([row(150, new=columns(at, "x" * 300), table=f"t{at % 400}")], at) for at in range(1_200)]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, limit[1]))
    try:
        _, rows = decode(tmp_path, [stream])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert len(rows) == 1_200


def test_tables_of_one_row_take_no_more_arrays_than_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    put = Spill.put

    def counted(spill: Spill, rows: ColumnarRows) -> SpilledRows:
        held.append(spill.arrays)
        return put(spill, rows)

    monkeypatch.setattr("ticdc_replay.changelog.files.spill.WAITING_ARRAYS", 2_000)
    monkeypatch.setattr(Spill, "put", counted)
    _, rows = decode(tmp_path, [[message([row(150, new=columns(at), table=f"t{at}")], at) for at in range(600)]])
    assert len(rows) == 600
    assert 2_000 < max(held) < 2_100
