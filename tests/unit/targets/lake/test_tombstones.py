"""Files of deletes that are put together say of each key what they said before."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ticdc_replay.domain.errors import ArtifactCorruptError
from ticdc_replay.targets.base import StoreAddress
from ticdc_replay.targets.lake.dialect import lake_dialect
from ticdc_replay.targets.lake.documents import TombstoneFile
from ticdc_replay.targets.lake.stage import DELETED_AT
from ticdc_replay.targets.lake.tombstones import CompactTask, compact

INTO = "deletes/compacted.parquet"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    (tmp_path / "deletes").mkdir()
    return tmp_path


def write(ledger: Path, name: str, **columns: pa.Array) -> str:
    pq.write_table(pa.table({**columns}), ledger / "deletes" / name)
    return f"deletes/{name}"


def task(ledger: Path, *names: str, floor_ts: int = 0) -> CompactTask:
    return CompactTask(
        store=StoreAddress(ledger.as_uri(), None),
        names=names,
        into=INTO,
        types={"id": "bigint", "region": "string", "v": "string"},
        floor_ts=floor_ts,
        dialect=lake_dialect("Iceberg"),
    )


def test_the_newest_version_of_each_key_stays_also_from_before_a_key_was_widened(ledger: Path) -> None:
    regions = pa.array(["eu", "us"])
    old = write(ledger, "a", id=pa.array([1, 1], pa.int32()), region=regions, **{DELETED_AT: pa.array([50, 20])})
    new = write(ledger, "b", id=pa.array([1, 2**40]), region=regions, **{DELETED_AT: pa.array([30, 40])})
    made = compact(task(ledger, old, new))
    assert made == TombstoneFile(INTO, 3, 50)
    rows = pq.read_table(ledger / INTO)
    assert rows.schema.names == ["id", "region", DELETED_AT]
    found = sorted(tuple(row.values()) for row in rows.to_pylist())
    assert found == [(1, "eu", 50), (1, "us", 20), (2**40, "us", 40)]


def test_versions_below_the_floor_are_dropped_and_no_file_is_made_of_nothing(ledger: Path) -> None:
    name = write(ledger, "a", id=pa.array([1, 2]), **{DELETED_AT: pa.array([50, 20])})
    assert compact(task(ledger, name, floor_ts=50)) == TombstoneFile(INTO, 1, 50)
    (ledger / INTO).unlink()
    assert compact(task(ledger, name, floor_ts=51)) is None
    assert not (ledger / INTO).exists()


def test_files_of_different_keys_are_not_put_together(ledger: Path) -> None:
    one = write(ledger, "a", id=pa.array([1]), **{DELETED_AT: pa.array([50])})
    two = write(ledger, "b", id=pa.array([1]), region=pa.array(["eu"]), **{DELETED_AT: pa.array([50])})
    other = write(ledger, "c", gone=pa.array([1]), **{DELETED_AT: pa.array([50])})
    for names in ((one, two), (other,)):
        with pytest.raises(ArtifactCorruptError, match="have the keys"):
            compact(task(ledger, *names))
