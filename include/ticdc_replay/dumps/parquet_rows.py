"""Rows of a Parquet file as texts, those of the text protocol that Dumpling makes such files from.

Source: pkg/dumpformat/parquetfile in pingcap/tidb (``toColumnType``, ``parseRawColumnValue``): integers are INT32 or INT64,
DECIMAL up to 38 digits and BIGINT UNSIGNED decimals, FLOAT and DOUBLE doubles, DATETIME and TIMESTAMP microseconds of the
session's wall clock, BIT and binary types bytes, all others texts. Files of other programs are read where
each value has one text.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, ColumnType
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.progress import report_done
from ticdc_replay.dumps.records import Rows, WrongRowError

_BATCH_ROWS = 65_536
_TEXTS = CHARACTER_TYPES | {"json", "enum", "set", "vector"}
_MOMENT = len("2026-03-01 12:00:00")
_TIME = len("12:00:00")


def parquet_rows(filesystem: Any, path: str, uri: str, types: Mapping[str, ColumnType], zone: str) -> Iterator[Rows]:
    """The rows of the file at *path*, which errors call *uri*, whose columns have *types* in their table.

    Instants become wall clocks in *zone*. Memory is bounded by a row group. Raises WrongRowError for a file that can't be read,
    or a column of a type whose values have no one text.
    """
    with _file_errors(uri), pq.ParquetFile(path, filesystem=filesystem) as file:
        names = tuple(file.schema_arrow.names)
        first, size = 0, filesystem.get_file_info(path).size
        for batch in file.iter_batches(_BATCH_ROWS):
            columns = tuple(
                _texts(array, types.get(name), zone, f"{uri}: {name}")
                for name, array in zip(names, batch.columns, strict=True)
            )
            if batch.num_rows:
                yield Rows(names, first, first + 1, columns)
            first += batch.num_rows
            report_done(size * first // max(file.metadata.num_rows, 1))


@contextmanager
def _file_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise WrongRowError(f"{uri}: this is no Parquet file that can be read: {error}") from None
    except OSError as error:
        raise TransientError(f"cannot read {uri}: {error}") from error


def _texts(array: pa.Array, column_type: ColumnType | None, zone: str, where: str) -> pa.Array:
    """*array* as binary texts; of a column that the table does not have, which is left out or refused later, as it comes."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if column_type is None or pa.types.is_null(kind):
        return pa.nulls(len(array), pa.binary())
    base = column_type.base
    if _is_bytes(kind) and not (base == "bit" and _is_string(kind)):
        return array.cast(pa.binary())
    try:
        text = _text(array, column_type, zone)
    except pa.ArrowInvalid:  # its text shows the value
        raise WrongRowError(
            f"{where} is {column_type}, and has {kind} in the file with a value that does not fit"
        ) from None
    if text is None:
        raise WrongRowError(
            f"{where} is {column_type} in its table, and {kind} in the file: its values have no one text"
        )
    return text.cast(pa.binary())


def _text(array: pa.Array, column_type: ColumnType, zone: str) -> pa.Array | None:
    """*array*, which has no bytes, as strings; None for a type that does not fit."""
    kind, base = array.type, column_type.base
    if base in _TEXTS or base in BINARY_TYPES or base == "bit":
        return None
    if base in ("datetime", "timestamp"):
        if not pa.types.is_timestamp(kind) or (kind.tz is not None and base == "datetime"):
            return None
        if kind.tz is not None:
            array = pc.local_timestamp(array.cast(pa.timestamp(kind.unit, zone)))
        return _with_digits(array.cast(pa.timestamp("us")).cast(pa.string()), _MOMENT, column_type.scale or 0)
    if base == "time":
        if not pa.types.is_time(kind):
            return None
        return _with_digits(array.cast(pa.time64("us")).cast(pa.string()), _TIME, column_type.scale or 0)
    if base == "date":
        return array.cast(pa.string()) if pa.types.is_date32(kind) else None
    if pa.types.is_boolean(kind):
        return array.cast(pa.int8()).cast(pa.string())
    if pa.types.is_decimal(kind):
        return _plain(array)
    return array.cast(pa.string()) if pa.types.is_integer(kind) or pa.types.is_floating(kind) else None


def _with_digits(texts: pa.Array, whole: int, digits: int) -> pa.Array:
    """*texts* with *digits* of a fraction after *whole* characters; with all of them where more are not 0."""
    cut = pc.utf8_slice_codeunits(texts, 0, whole + 1 + digits if digits else whole)
    rest = pc.utf8_slice_codeunits(texts, whole + 1 + digits if digits else whole)
    return pc.if_else(pc.match_substring_regex(rest, r"^\.?0*$"), cut, texts)


def _plain(array: pa.Array) -> pa.Array:
    """Decimals without exponents, which Arrow writes for small ones."""
    texts = array.cast(pa.string())
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.array([None if cell is None else f"{cell:f}" for cell in array.to_pylist()], pa.string())


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return _is_string(kind) or bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )
