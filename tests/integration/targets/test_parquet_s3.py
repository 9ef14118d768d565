"""The Parquet target with both ends in an object store."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from demo.embedded_stack.s3 import MotoServer
from tests.changelogs import Changelog, delete, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.storage import open_store
from ticdc_replay.targets.load import in_process, load

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)


def test_a_window_goes_from_bucket_to_bucket(s3: MotoServer, make_bucket: Callable[[], str], tmp_path: Path) -> None:
    connection = Connection(
        "lake",
        "aws",
        login=s3.access_key,
        password=s3.secret_key,
        extra={"endpoint_url": s3.endpoint, "region_name": s3.region},
    )
    connections = Connections({"lake": connection})
    artifacts, lake = (f"s3://{make_bucket()}/some/prefix" for _ in range(2))
    changelog = Changelog(tmp_path, 0, 100)
    changelog.rows(table("shop.orders", {"id": INT}), [put(10, id=1), put(20, id=1), delete(30, id=2)], files=2)
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
    assert reports[0].destination.startswith(f"{lake}/pipeline/changelog/schema=shop/table=orders")
