"""Parquet files of an object store as DataFrames, and back.

Executors read and write them through the store's own filesystem, like all other files of this program: Spark itself would need
another client of S3, and another way for its credentials.
"""

import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_replay.domain.connections import Connection
from ticdc_replay.storage import open_store

_READ_ROWS = 20_000
_PART = "place int, name string, first_group int, groups int"
_PART_BYTES = 64 * 1024 * 1024
"""Of a task that reads, before compression."""
_COMPRESSION = {"compression": "zstd", "compression_level": 1}


class Place(NamedTuple):
    """A folder: the URI of a store, and the connection that opens it."""

    uri: str
    connection: Connection | None


class Sources(NamedTuple):
    """Files of one kind below one place; ``names`` are relative to it."""

    place: Place
    names: tuple[str, ...]


class WrittenFile(msgspec.Struct, frozen=True, order=True):
    """A file that was written; ``name`` is relative to its place."""

    name: str
    rows: int


class _Part(NamedTuple):
    """Neighbouring row groups of a file. ``place`` counts the sources."""

    place: int
    name: str
    first_group: int
    groups: int


def read_parquet(
    spark: SparkSession, sources: Sequence[Sources], schema: pa.Schema, columns: Sequence[str]
) -> DataFrame:
    """*columns* of all files of *sources*, which have the *schema*. Files are read in parts of several row groups.

    Raises what a store raises for a footer that can't be read.
    """
    wanted = pa.schema([_known_to_spark(schema.field(name)) for name in columns])
    fields = from_arrow_schema(wanted)
    parts = [
        part
        for number, source in enumerate(sources)
        for name in source.names
        for part in _parts(source.place, number, name)
    ]
    if not parts:
        return spark.createDataFrame([], fields)
    places = [source.place for source in sources]
    tasks = spark.createDataFrame(spark.sparkContext.parallelize(parts, len(parts)), _PART)
    return tasks.mapInArrow(partial(_read, places, wanted), fields)


def write_parquet(frame: DataFrame, place: Place, folder: str, schema: pa.Schema) -> tuple[WrittenFile, ...]:
    """Write *frame* as files of *schema* below *folder* of *place*, at least one a task that has rows.

    Only the files that are returned hold the rows, each once: an attempt that failed, or ran beside another, may leave more.
    """
    written = frame.select(*schema.names).mapInArrow(partial(_write, place, folder, schema), "name string, rows bigint")
    return tuple(sorted(WrittenFile(row["name"], row["rows"]) for row in written.collect()))


def _known_to_spark(field: pa.Field) -> pa.Field:
    return field.with_type(pa.binary()) if pa.types.is_fixed_size_binary(field.type) else field


def _parts(place: Place, number: int, name: str) -> list[_Part]:
    filesystem, root = open_store(place.uri, place.connection).arrow_filesystem()
    footer = pq.read_metadata(f"{root}/{name}", filesystem=filesystem)
    sizes = [footer.row_group(group).total_byte_size for group in range(footer.num_row_groups)]
    parts, first, size = [], 0, 0
    for group, group_size in enumerate(sizes):
        size += group_size
        if size >= _PART_BYTES or group == len(sizes) - 1:
            parts.append(_Part(number, name, first, group + 1 - first))
            first, size = group + 1, 0
    return parts


def _read(places: Sequence[Place], schema: pa.Schema, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for task in tasks:
        for row in task.to_pylist():
            part = _Part(**row)
            filesystem, root = open_store(*places[part.place]).arrow_filesystem()
            with pq.ParquetFile(f"{root}/{part.name}", filesystem=filesystem) as file:
                groups = range(part.first_group, part.first_group + part.groups)
                for batch in file.iter_batches(_READ_ROWS, groups, columns=schema.names):
                    yield batch.select(schema.names).cast(schema)


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
