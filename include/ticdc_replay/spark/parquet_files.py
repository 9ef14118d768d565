"""Parquet files of an object store as tables, and back.

Executors read and write them through the store's own filesystem, like all other files of this program: Spark itself would need
another client of S3, and another way for its credentials.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError, TransientError
from ticdc_replay.reconcile.judge.classified import ClassifiedFile
from ticdc_replay.targets.base import StoreAddress
from ticdc_replay.targets.files import make_parent

_TASK_BYTES = 64 * 1024 * 1024
"""Of what a task reads, before compression."""
_FILE_BYTES = 1024 * 1024
"""What opening a file costs, in bytes that are read meanwhile: a task has at most 64 files."""
_FOOTER_READERS = 16
_GROUP_ROWS = 100_000
_REPEATING = frozenset(
    {"pipeline", "topic", "topic_id", "partition", "ordinal", "schema", "table", "status", "source", "class", "reason"}
)
"""Columns that a dictionary makes smaller; of the others it would be made and thrown away."""
_OF_DECODE = ("pipeline", "topic_id", "source")
_COMPRESSION = {"compression": "zstd", "compression_level": 1}


class DecodedBy(NamedTuple):
    """Whose decode wrote reference files: these have no column for it."""

    pipeline: str
    topic_ids: dict[str, str]
    """Kafka's id of every topic that the decode read, by name."""


class Sources(NamedTuple):
    """Files of one kind in one store; ``names`` are relative to it."""

    place: StoreAddress
    names: tuple[str, ...]
    decoded: DecodedBy | None = None
    """Of files of a changelog (``side_files.REFERENCES``), which are read as ``records.REFERENCES``."""


class GroupRange(NamedTuple):
    """Neighbouring row groups of the file ``name`` of the source with the number ``source``."""

    source: int
    name: str
    first_group: int
    groups: int


class ReadingPlan(NamedTuple):
    """How files are read."""

    tasks: list[list[GroupRange]]
    """What each task reads: about equally much, which is several row groups of a large file, or several small files."""
    rows: int
    bytes: int
    """Before compression."""


def plan_reading(sources: Sequence[Sources]) -> ReadingPlan:
    """How all files of *sources* are read. Raises what ``read_parts`` raises of a file."""
    root_of = _roots()
    files = [(number, name, *root_of(source.place)) for number, source in enumerate(sources) for name in source.names]
    tasks: list[list[GroupRange]] = []
    rows, total, size = 0, 0, _TASK_BYTES
    with ThreadPoolExecutor(_FOOTER_READERS) as readers:
        groups_of = readers.map(lambda file: _row_groups(f"{file[3]}/{file[1]}", file[2]), files)
        for (number, name, _, _), groups in zip(files, groups_of, strict=True):
            size += _FILE_BYTES
            for group, (group_rows, group_bytes) in enumerate(groups):
                if size >= _TASK_BYTES:
                    tasks.append([])
                    size = _FILE_BYTES
                last = tasks[-1][-1] if tasks[-1] else None
                if last is not None and (last.source, last.name) == (number, name):
                    tasks[-1][-1] = last._replace(groups=last.groups + 1)
                else:
                    tasks[-1].append(GroupRange(number, name, group, 1))
                size += group_bytes
                total += group_bytes
                rows += group_rows
    return ReadingPlan(tasks, rows, total)


def read_parts(
    sources: Sequence[Sources], parts: Sequence[GroupRange], schema: pa.Schema, rows: int
) -> Iterator[pa.RecordBatch]:
    """The columns of *schema* of *parts* of *sources*, at most *rows* at a time.

    Raises ArtifactNotFoundError if a file is missing, TransientError if it can't be read. Raises ArtifactCorruptError if it is no
    Parquet, or if a decode's file names a topic that the decode did not read.
    """
    root_of = _roots()
    for part in parts:
        source = sources[part.source]
        filesystem, root = root_of(source.place)
        path = f"{root}/{part.name}"
        with _errors_of(path), pq.ParquetFile(path, filesystem=filesystem) as file:
            groups = range(part.first_group, part.first_group + part.groups)
            for batch in file.iter_batches(rows, groups, columns=_columns(source, schema), use_threads=False):
                whole = batch if source.decoded is None else _with_decode(batch, source.decoded, part.name)
                yield whole.select(schema.names).cast(schema)


def write_table(table: pa.Table, place: StoreAddress, folder: str, number: int) -> ClassifiedFile | None:
    """Write *table* as a file below *folder* of *place*; nothing where it has no row.

    Only the files that are returned count: a task that failed, or ran beside another, may leave more.
    """
    if not table.num_rows:
        return None
    filesystem, root = place.open().arrow_filesystem()
    name = f"{folder}/{number:05d}-{uuid.uuid4().hex}.parquet"
    make_parent(filesystem, f"{root}/{name}")
    repeating = [field.name for field in table.schema if field.name in _REPEATING]
    pq.write_table(
        table,
        f"{root}/{name}",
        filesystem=filesystem,
        use_dictionary=repeating,
        row_group_size=_GROUP_ROWS,
        **_COMPRESSION,
    )
    return ClassifiedFile(name, table.num_rows)


def _row_groups(path: str, filesystem: Any) -> list[tuple[int, int]]:
    """Rows and bytes of each row group."""
    with _errors_of(path):
        footer = pq.read_metadata(path, filesystem=filesystem)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return [(group.num_rows, group.total_byte_size) for group in groups]


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """Turns Arrow's errors about the file at *path* into those of the library."""
    try:
        yield
    except FileNotFoundError as error:
        raise ArtifactNotFoundError(
            f"{path} is gone: reconcile again, so that its offsets are searched again"
        ) from error
    except OSError as error:
        raise TransientError(f"cannot read {path}: {error}") from error
    except pa.ArrowInvalid as error:
        raise ArtifactCorruptError(f"{path} is no longer a Parquet file: {error}") from error


def _roots() -> Callable[[StoreAddress], tuple[Any, str]]:
    """Gives the filesystem and the root of a place, and opens each place once."""
    opened: dict[tuple[str, str | None], tuple[Any, str]] = {}

    def root_of(place: StoreAddress) -> tuple[Any, str]:
        known = (place.uri, None if place.connection is None else place.connection.conn_id)
        if known not in opened:
            opened[known] = place.open().arrow_filesystem()
        return opened[known]

    return root_of


def _columns(source: Sources, schema: pa.Schema) -> list[str]:
    """What is read of a file, so that it has the columns of *schema* afterwards."""
    if source.decoded is None:
        return list(schema.names)
    return sorted({name for name in schema.names if name not in _OF_DECODE} | {"topic"})


def _with_decode(batch: pa.RecordBatch, decoded: DecodedBy, name: str) -> pa.RecordBatch:
    """*batch* of the file *name* of a decode with the columns ``_OF_DECODE``."""
    topics = batch.column("topic").dictionary_encode()
    unknown = sorted(set(topics.dictionary.to_pylist()) - decoded.topic_ids.keys())
    if unknown:
        raise ArtifactCorruptError(
            f"{name} of pipeline {decoded.pipeline} has references from {', '.join(unknown)}, which its run did not read: "
            "it was replaced. Decode the window again"
        )
    ids = pa.array([decoded.topic_ids[topic] for topic in topics.dictionary.to_pylist()], pa.string())
    rows = batch.num_rows
    return (
        batch.append_column("topic_id", ids.take(topics.indices))
        .append_column("pipeline", pa.repeat(decoded.pipeline, rows))
        .append_column("source", pa.repeat("decode", rows))
    )
