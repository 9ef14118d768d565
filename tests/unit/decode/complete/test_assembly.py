"""What is refused when the results of splits are put together."""

from pathlib import Path

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.index import DataFile, EventCounts, MessageCounts
from ticdc_replay.changelog.files.version_files import VersionFile
from ticdc_replay.decode.complete.assembly import assemble
from ticdc_replay.decode.plan.tasks import SplitResult
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob, Limits
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.manifest import Manifest

LIMITS = Limits(
    split_bytes=1024,
    claim_check_max_bytes=1024,
    claim_check_in_flight_bytes=1024,
    claim_check_connections=1,
    decompressed_max_bytes=1024,
    file_rows=10,
)
SCHEMA = TableSchema(TableName("s", "a_b"), (), ("id",), ())


def result(number: int, topic: str) -> SplitResult:
    """A split of *topic* with one row of the table s.a_b."""
    file = DataFile(f"data/{number}.parquet", 1, 1, 5, 5, topic)
    return SplitResult(
        number=number,
        files=(VersionFile(SCHEMA, "v", True, file),),
        keys_file=None,
        quarantine_file=None,
        references_file=None,
        sparse_index_file=None,
        ddl=(),
        other_unread=(),
        messages=MessageCounts(),
        events=EventCounts(),
        quarantine_reasons={},
        missing_versions=(),
        writer_schemas={},
        elsewhere=(),
    )


def assembled(protocol: str, folder: Path, *topics: str) -> list[str]:
    """The files of the index."""
    job = DecodeJob(
        library_version="test",
        pipeline="p",
        artifacts=folder.as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest="manifests/m.json",
        input_hash="i" * 64,
        changefeed=Changefeed(protocol=protocol, topic="t", timezone="UTC"),
        tables=("*.*",),
        limits=LIMITS,
    )
    window = Window(0, 10)
    manifest = Manifest(pipeline="p", changefeed_hash="", window=window, grade="proven", topics=(), pinned_at_ms=0)
    results = [result(number, topic) for number, topic in enumerate(topics)]
    index = assemble(job, manifest, SchemaHistory(), results, [])
    return [file.name for table in index.tables for file in table.files]


def test_names_of_other_protocols_tell_tables_apart(tmp_path: Path) -> None:
    assert assembled("open-protocol", tmp_path, "old", "new") == ["data/0.parquet", "data/1.parquet"]
