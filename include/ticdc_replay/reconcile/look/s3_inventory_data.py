"""The data files of S3 Inventory reports: CSV (gzip) and Parquet, as ``records.OBJECTS``.

CSV has no heading; its columns are those of the manifest's ``fileSchema``, and keys in it are URL-encoded, a space as ``+``.
Parquet has the same columns under snake-case names, and plain keys. Which columns there are is up to the inventory
configuration; ``VersionId``, ``IsLatest`` and ``IsDeleteMarker`` only where it lists all versions.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.reconcile.judge.records import OBJECTS

_BLOCK_BYTES = 8 * 1024 * 1024
_BATCH_ROWS = 50_000
_COLUMNS = {
    "Key": "key",
    "Size": "size",
    "LastModifiedDate": "last_modified_date",
    "ETag": "e_tag",
    "VersionId": "version_id",
    "IsLatest": "is_latest",
    "IsDeleteMarker": "is_delete_marker",
}
"""Of a CSV file → of a Parquet file."""
_REQUIRED = ("Key", "Size", "LastModifiedDate", "ETag")
_MOMENT = pa.timestamp("ms", "UTC")


def read_data(file: Path, kind: str, schema: str, prefix: str) -> Iterator[pa.RecordBatch]:
    """The current objects of *file* below the key *prefix*, named relative to it. *kind* and *schema*: the manifest's
    ``fileFormat`` and ``fileSchema``.

    Raises ConfigError where a needed column is not in the report, ArrowException or ValueError for damaged data.
    """
    for table in FORMATS[kind](file, schema):
        yield _objects(table, prefix)


def _csv(file: Path, schema: str) -> Iterator[pa.Table]:
    names = [name.strip() for name in schema.split(",")]
    wanted = _wanted(names)
    with pa.input_stream(str(file), compression="gzip") as source:
        if not source.read(1):  # Arrow takes a CSV without a byte for an error; a report of an empty bucket may be one
            return
    with (
        pa.input_stream(str(file), compression="gzip") as source,
        pa_csv.open_csv(
            source,
            pa_csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES, use_threads=False),
            convert_options=pa_csv.ConvertOptions(
                include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()), strings_can_be_null=False
            ),
        ) as reader,
    ):
        for batch in reader:
            columns = {_COLUMNS[name]: batch[name] for name in wanted}
            columns["key"] = _decoded(columns["key"])
            for name in ("is_latest", "is_delete_marker"):
                if name in columns:
                    text = pc.utf8_lower(columns[name])
                    columns[name] = pc.if_else(pc.equal(text, ""), None, pc.equal(text, "true"))
            yield pa.table(columns)


def _parquet(file: Path, schema: str) -> Iterator[pa.Table]:
    with pq.ParquetFile(file) as source:
        there = {parquet: name for name, parquet in _COLUMNS.items() if parquet in source.schema_arrow.names}
        _wanted(list(there.values()))
        for batch in source.iter_batches(_BATCH_ROWS, columns=list(there)):
            yield pa.Table.from_batches([batch])


FORMATS: dict[str, Callable[[Path, str], Iterator[pa.Table]]] = {"CSV": _csv, "Parquet": _parquet}
"""By the manifest's ``fileFormat``. The third that S3 knows, ORC, is not read."""


def _wanted(names: list[str]) -> list[str]:
    missing = [name for name in _REQUIRED if name not in names]
    if missing:
        raise ConfigError(
            f"the report has no {', '.join(missing)}; add Size, Last modified and ETag to the metadata of the inventory "
            f"configuration"
        )
    return [name for name in names if name in _COLUMNS]


def _decoded(keys: pa.Array) -> pa.Array:
    """Most keys need no decoding: then the column is taken as it is."""
    if not pc.any(pc.match_substring_regex(keys, "[%+]")).as_py():
        return keys
    return pa.array([unquote_plus(key, errors="strict") for key in keys.to_pylist()], pa.string())


def _objects(table: pa.Table, prefix: str) -> pa.RecordBatch:
    there = table.column_names
    keep = pc.starts_with(table["key"], prefix)
    # Consoles and Arrow mark folders by empty objects; a listing leaves them out as well.
    keep = pc.and_(keep, pc.invert(pc.ends_with(table["key"], "/")))
    keep = pc.and_(keep, pc.greater(pc.utf8_length(table["key"]), len(prefix)))
    if "is_latest" in there:
        keep = pc.and_(keep, pc.fill_null(table["is_latest"], True))
    if "is_delete_marker" in there:
        keep = pc.and_(keep, pc.invert(pc.fill_null(table["is_delete_marker"], False)))
    table = table.filter(keep)
    version = table["version_id"] if "version_id" in there else pa.nulls(len(table), pa.string())
    version = version.cast(pa.string())
    columns = {
        "name": pc.utf8_slice_codeunits(table["key"].cast(pa.string()), len(prefix)),
        "size": table["size"].cast(pa.int64()),
        "etag": pc.utf8_trim(table["e_tag"].cast(pa.string()), '"'),
        "last_modified_ms": table["last_modified_date"].cast(_MOMENT, safe=False).cast(pa.int64()),
        "version_id": pc.if_else(pc.equal(version, ""), pa.scalar(None, pa.string()), version),
    }
    for name in ("name", "size", "etag", "last_modified_ms"):
        if columns[name].null_count:
            raise ValueError(f"{columns[name].null_count} current objects without {name}")
    if not len(table):
        return pa.RecordBatch.from_pylist([], OBJECTS)
    return pa.Table.from_pydict(columns, schema=OBJECTS).combine_chunks().to_batches()[0]
