"""Parquet files of an object store as DataFrames, and back.

Executors read and write them through the store's own filesystem, like all other files of this program: Spark itself would need
another client of S3, and another way for its credentials.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ArtifactCorruptError
from ticdc_replay.storage import open_store

_READ_ROWS = 20_000
_TASK = "parts array<struct<source: int, name: string, first_group: int, groups: int>>"
_TASK_BYTES = 64 * 1024 * 1024
"""Of what a task reads, before compression."""
_FILE_BYTES = 1024 * 1024
"""What opening a file costs, in bytes that are read meanwhile: a task has at most 64 files."""
_FOOTER_READERS = 16
_OF_DECODE = ("pipeline", "topic_id", "source")
_COMPRESSION = {"compression": "zstd", "compression_level": 1}


class Place(NamedTuple):
    """A folder: the URI of a store, and the connection that opens it."""

    uri: str
    connection: Connection | None


class DecodedBy(NamedTuple):
    """Whose decode wrote reference files: these have no column for it."""

    pipeline: str
    topic_ids: dict[str, str]
    """Kafka's id of every topic that the decode read, by name."""


class Sources(NamedTuple):
    """Files of one kind below one place; ``names`` are relative to it."""

    place: Place
    names: tuple[str, ...]
    decoded: DecodedBy | None = None
    """Of files of a changelog (``side_files.REFERENCES``), which are read as ``records.REFERENCES``."""


class WrittenFile(msgspec.Struct, frozen=True, order=True):
    """A file that was written; ``name`` is relative to its place."""

    name: str
    rows: int


class _Part(NamedTuple):
    """Neighbouring row groups of a file of the source with the number ``source``."""

    source: int
    name: str
    first_group: int
    groups: int


def read_parquet(
    spark: SparkSession, sources: Sequence[Sources], schema: pa.Schema, columns: Sequence[str]
) -> DataFrame:
    """*columns* of all files of *sources*, which have at least those of *schema*.

    Tasks read about equally much: several row groups of a large file, or several small files. Raises what a store raises for
    a footer that can't be read. A task fails with ArtifactCorruptError where a decode's file names a topic that the decode did
    not read.
    """
    wanted = pa.schema([_known_to_spark(schema.field(name)) for name in columns])
    fields = from_arrow_schema(wanted)
    tasks = _tasks(sources)
    if not tasks:
        return spark.createDataFrame([], fields)
    rows = spark.createDataFrame(spark.sparkContext.parallelize([(task,) for task in tasks], len(tasks)), _TASK)
    return rows.mapInArrow(partial(_read, [source._replace(names=()) for source in sources], wanted), fields)


def write_parquet(frame: DataFrame, place: Place, folder: str, schema: pa.Schema) -> tuple[WrittenFile, ...]:
    """Write *frame* as files of *schema* below *folder* of *place*, at least one a task that has rows.

    Only the files that are returned hold the rows, each once: an attempt that failed, or ran beside another, may leave more.
    """
    written = frame.select(*schema.names).mapInArrow(partial(_write, place, folder, schema), "name string, rows bigint")
    return tuple(sorted(WrittenFile(row["name"], row["rows"]) for row in written.collect()))


def _known_to_spark(field: pa.Field) -> pa.Field:
    return field.with_type(pa.binary()) if pa.types.is_fixed_size_binary(field.type) else field


def _tasks(sources: Sequence[Sources]) -> list[list[_Part]]:
    """What each task reads. Footers are read by several threads."""
    root_of = _roots()
    files = [(number, name, *root_of(source.place)) for number, source in enumerate(sources) for name in source.names]
    with ThreadPoolExecutor(_FOOTER_READERS) as readers:
        footers = readers.map(lambda file: pq.read_metadata(f"{file[3]}/{file[1]}", filesystem=file[2]), files)
        tasks: list[list[_Part]] = []
        size = _TASK_BYTES
        for (number, name, _, _), footer in zip(files, footers, strict=True):
            size += _FILE_BYTES
            for group in range(footer.num_row_groups):
                if size >= _TASK_BYTES:
                    tasks.append([])
                    size = _FILE_BYTES
                last = tasks[-1][-1] if tasks[-1] else None
                if last is not None and (last.source, last.name) == (number, name):
                    tasks[-1][-1] = last._replace(groups=last.groups + 1)
                else:
                    tasks[-1].append(_Part(number, name, group, 1))
                size += footer.row_group(group).total_byte_size
    return tasks


def _roots() -> Callable[[Place], tuple[Any, str]]:
    """Gives the filesystem and the root of a place, and opens each place once."""
    opened: dict[tuple[str, str | None], tuple[Any, str]] = {}

    def root_of(place: Place) -> tuple[Any, str]:
        known = (place.uri, None if place.connection is None else place.connection.conn_id)
        if known not in opened:
            opened[known] = open_store(*place).arrow_filesystem()
        return opened[known]

    return root_of


def _read(sources: Sequence[Sources], schema: pa.Schema, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    root_of = _roots()
    for task in tasks:
        for part in (_Part(**part) for row in task.to_pylist() for part in row["parts"]):
            source = sources[part.source]
            filesystem, root = root_of(source.place)
            with pq.ParquetFile(f"{root}/{part.name}", filesystem=filesystem) as file:
                columns = _columns(source, schema)
                groups = range(part.first_group, part.first_group + part.groups)
                for batch in file.iter_batches(_READ_ROWS, groups, columns=columns):
                    whole = batch if source.decoded is None else _with_decode(batch, source.decoded, part.name)
                    yield whole.select(schema.names).cast(schema)


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


def _write(place: Place, folder: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    filesystem, root = open_store(place.uri, place.connection).arrow_filesystem()
    context = TaskContext.get()
    assert context is not None
    name = f"{folder}/{context.partitionId():05d}-{uuid.uuid4().hex}.parquet"
    writer, rows = None, 0
    for batch in batches:
        if writer is None:
            filesystem.create_dir(f"{root}/{folder}", recursive=True)
            writer = pq.ParquetWriter(f"{root}/{name}", schema, filesystem=filesystem, **_COMPRESSION)
        writer.write_batch(batch.cast(schema))
        rows += batch.num_rows
    if writer is not None:
        writer.close()
        yield pa.RecordBatch.from_pydict({"name": [name], "rows": [rows]})
