"""The Parquet target with both ends in an object store."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.embedded_stack.s3 import MotoServer
from tests.support.changelogs import Changelog, delete, put, table
from tests.support.in_process import in_process
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.storage import open_store
from ticdc_replay.targets.load import load
from ticdc_replay.targets.parquet import files

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)


@pytest.fixture
def connection(s3: MotoServer) -> Connection:
    return Connection(
        "lake",
        "aws",
        login=s3.access_key,
        password=s3.secret_key,
        extra={"endpoint_url": s3.endpoint, "region_name": s3.region},
    )


def test_an_object_that_breaks_while_it_is_written_leaves_the_one_before(
    connection: Connection, make_bucket: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = f"s3://{make_bucket()}/lake"
    changelog = Changelog(tmp_path, 0, 100).rows(table("shop.orders", {"id": INT}), [put(10, id=1), put(20, id=2)])
    target: dict[str, object] = {"type": "parquet", "name": "lake", "uri": lake, "connection": "lake"}
    connections = Connections({"lake": connection})
    load(changelog.job(target), connections, in_process)
    store = open_store(lake, connection)
    before = {entry.name: store.get(entry.name) for entry in store.list()}
    assert len(before) == 5

    def broken(*_: object) -> Iterator[pa.RecordBatch]:
        raise OSError("connection lost")
        yield

    monkeypatch.setattr(files, "winning_rows", broken)
    with pytest.raises(TransientError, match="connection lost"):
        load(changelog.job(target, reload=True), connections, in_process)
    assert {entry.name: store.get(entry.name) for entry in store.list()} == before


def test_a_window_goes_from_bucket_to_bucket(
    connection: Connection, make_bucket: Callable[[], str], tmp_path: Path
) -> None:
    connections = Connections({"lake": connection})
    artifacts, lake = (f"s3://{make_bucket()}/some/prefix" for _ in range(2))
    changelog = Changelog(tmp_path, 0, 100)
    changelog.rows(table("shop.été=1", {"id": INT}), [put(10, id=1), put(20, id=1), delete(30, id=2)], files=2)
    target: dict[str, object] = {"type": "parquet", "name": "lake", "uri": lake, "connection": "lake"}
    job = changelog.job(target, artifacts=artifacts, artifacts_connection="lake")
    for path in tmp_path.rglob("*"):
        if path.is_file():
            open_store(artifacts, connection).put(str(path.relative_to(tmp_path)), path.read_bytes())

    reports = [load(job, connections, in_process).tables[0] for _ in range(2)]

    assert [(report.outcome, report.upserted, report.tombstones) for report in reports] == [
        ("loaded", 1, 1),
        ("done_before", 1, 1),
    ]
    store = open_store(lake, connection)
    filesystem, root = store.arrow_filesystem()
    names = [entry.name for entry in store.list("pipeline/fold/")]
    assert all(name.endswith(".parquet") for name in names)
    rows = [
        row
        for name in names
        for row in pq.read_table(f"{root}/{name}", filesystem=filesystem, partitioning=None).to_pylist()
    ]
    assert sorted((row["_op"], row["_commit_ts"]) for row in rows) == [("delete", 30), ("insert", 20)]
    assert reports[0].destination.startswith(f"{lake}/pipeline/changelog/schema=shop/table=été%3D1")
