"""What a message leaves that names as many tables as it can: docs/guarantees.md says how much it may be."""

from pathlib import Path
from typing import Any

from tests.integration.targets.conftest import Mirror
from tests.support.decoded_splits import decode
from tests.support.in_process import in_process
from tests.support.open_protocol import message, row
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.domain.connections import Connections
from ticdc_replay.jobspec import LoadJob
from ticdc_replay.targets.load import load

TABLES = 60
MESSAGE = message(
    [row(150, new={"a": {"t": 3, "h": True, "f": 11, "v": 1}}, table=f"{number:x}") for number in range(TABLES)], 0
)
SENT = len(MESSAGE.key or b"") + len(MESSAGE.value or b"")
"""Bytes: 94 a row, of which little can be left out."""
ADDED_TABLE_BYTES = 1 << 20
"""What a database grows by for its first mirror, the tables of ``_ticdc_replay`` above all."""


def load_into(target: dict[str, Any], index: ChangelogIndex, artifacts: Path, connections: Connections) -> None:
    job = LoadJob(
        library_version="0",
        pipeline=index.pipeline,
        index=f"{changelog_root(index.run_hash)}/{INDEX}",
        run_hash=index.run_hash,
        window=index.window,
        target=target,
        artifacts=artifacts.as_uri(),
        artifacts_connection=None,
        tables=("*.*",),
        target_value="stop",
        ddl="apply",
        reload=False,
    )
    report = load(job, connections, in_process)
    assert [table.outcome for table in report.tables] == ["loaded"] * TABLES


def left_in(folder: Path) -> tuple[int, int]:
    """Files below *folder*, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def test_a_message_of_many_tables_leaves_so_many_bytes_for_each_of_its_own(tmp_path: Path, mirror: Mirror) -> None:
    artifacts, lake = tmp_path / "artifacts", tmp_path / "lake"
    index, _ = decode(artifacts, [[MESSAGE]])
    files, left = left_in(artifacts)
    assert files <= TABLES + 3
    assert left < 60 * SENT

    load_into({"type": "parquet", "name": "lake", "uri": lake.as_uri()}, index, artifacts, Connections())
    files, left = left_in(lake)
    assert files <= 4 * TABLES + 3
    assert left < 130 * SENT

    size = "SELECT pg_database_size(current_database())"
    ((before,),) = mirror.rows(size)
    load_into({"type": "postgres", "name": "mirror", "connection": "target"}, index, artifacts, mirror.connections)
    ((after,),) = mirror.rows(size)
    assert after - before < 550 * SENT + ADDED_TABLE_BYTES
