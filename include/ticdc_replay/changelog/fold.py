"""The fold: of the row versions of a table, the last one of each row.

Versions of one row are ordered by (commitTs, delete < put); an insert, update or upsert is a put. Rows are told apart by the
cells of their handle key: the 128-bit hash in ``_key`` only groups them, and two keys with one hash stay two rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.domain.errors import PermanentError

Indices = npt.NDArray[np.int64]


def is_put(rows: pa.Table | pa.RecordBatch) -> pa.BooleanArray:
    """Per row of the changelog, whether it leaves a row behind. Raises PermanentError where such a row is partial."""
    put = pc.not_equal(rows["_op"], "delete")
    incomplete = pc.and_(put, rows["_partial"])
    if pc.any(incomplete).as_py():
        raise PermanentError(
            f"{place_of(rows, pc.index(incomplete, True).as_py())}: the row lacks columns and must not be applied as if "
            "it were whole; decode the window again with this version of the library"
        )
    return put.combine_chunks() if isinstance(put, pa.ChunkedArray) else put


def key_cells(rows: pa.Table | pa.RecordBatch, handle_key: Sequence[str], put: pa.BooleanArray) -> list[pa.Array]:
    """The cells of the handle-key columns: of the new image, or of the old one where the row was deleted."""
    if not handle_key:
        raise PermanentError("a table without handle key has no rows that could be told apart: it can't be folded")
    before, after = _image(rows, "before"), _image(rows, "after")
    return [pc.if_else(put, pc.struct_field(after, name), pc.struct_field(before, name)) for name in handle_key]


def last_versions(rows: pa.Table, handle_key: Sequence[str], put: pa.BooleanArray) -> pa.Int64Array:
    """The positions, in ascending order, of the last version of each row of *rows*: changelog rows of one table.

    *put* is what ``is_put`` says of them. Runs over every row version: about 0.25 µs each where keys are distinct.
    """
    keys = key_cells(rows, handle_key, put)
    if rows.num_rows == 0:
        return pa.array([], pa.int64())
    if rows["_key"].null_count:
        raise PermanentError("changelog rows of a table with a handle key lack their key hash; decode the window again")
    high, low = _hash_halves(rows["_key"])
    order = np.argsort(high, kind="stable")
    sorted_high = high[order]
    same = sorted_high[1:] == sorted_high[:-1]
    repeated = np.zeros(len(order), dtype=bool)
    repeated[1:] |= same
    repeated[:-1] |= same
    single, several = order[~repeated], order[repeated]
    if len(several) == 0:
        return pa.array(np.sort(single), pa.int64())
    winners = _last_of_repeated(rows, handle_key, keys, put, high, low, several)
    return pa.array(np.sort(np.concatenate([single, winners])), pa.int64())


def place_of(rows: pa.Table | pa.RecordBatch, position: int) -> str:
    """Where in Kafka the changelog row at *position* came from, for people."""
    row = rows.slice(position, 1).select(["_topic", "_partition", "_offset", "_index"]).to_pylist()[0]
    return f"{row['_topic']}[{row['_partition']}]@{row['_offset']}, event {row['_index']}"


def _last_of_repeated(
    rows: pa.Table,
    handle_key: Sequence[str],
    keys: list[pa.Array],
    put: pa.BooleanArray,
    high: npt.NDArray[np.uint64],
    low: npt.NDArray[np.uint64],
    several: Indices,
) -> Indices:
    """The winners among the rows *several*, which share the first half of their hash with another row."""
    taken = pa.array(several, pa.int64())
    commit_ts = rows["_commit_ts"].take(taken).to_numpy()
    puts = put.take(taken).to_numpy(zero_copy_only=False)
    ordered = several[np.lexsort((puts, commit_ts, low[several], high[several]))]
    first, second = ordered[:-1], ordered[1:]
    same_hash = (high[first] == high[second]) & (low[first] == low[second])
    same_key = same_hash.copy()
    pairs = np.flatnonzero(same_hash)
    same_key[pairs] = _equal_keys(keys, first[pairs], second[pairs])
    if np.array_equal(same_hash, same_key):
        last: Indices = ordered[np.append(~same_hash, True)]
        return last
    return _last_by_cells(rows, handle_key, keys, put, ordered)


def _equal_keys(keys: list[pa.Array], first: Indices, second: Indices) -> npt.NDArray[np.bool_]:
    """Whether the key cells at *first* and *second* are equal; a null cell counts as unequal, since its value is elsewhere."""
    left, right = pa.array(first, pa.int64()), pa.array(second, pa.int64())
    equal: npt.NDArray[np.bool_] = np.ones(len(first), dtype=bool)
    for cells in keys:
        cell_equal = pc.fill_null(pc.equal(cells.take(left), cells.take(right)), False)
        equal &= cell_equal.to_numpy(zero_copy_only=False)
    return equal


def _last_by_cells(
    rows: pa.Table, handle_key: Sequence[str], keys: list[pa.Array], put: pa.BooleanArray, ordered: Indices
) -> Indices:
    """The winners among the rows *ordered* by version, told apart by cells and exact texts.

    Slow, and rarely needed: for collisions of the hash, and for key cells that the typed column can't hold.
    """
    taken = pa.array(ordered, pa.int64())
    columns = [cells.take(taken).to_pylist() for cells in keys]
    exact = rows["_exact"].take(taken).to_pylist()
    puts = put.take(taken).to_pylist()
    last: dict[Any, int] = {}
    for position, key, texts, is_new in zip(ordered.tolist(), zip(*columns, strict=True), exact, puts, strict=True):
        side = "after" if is_new else "before"
        by_name = dict(texts or ())
        last[key, *(by_name.get(f"{side}.{name}") for name in handle_key)] = position
    return np.fromiter(last.values(), dtype=np.int64)


def _hash_halves(hashes: pa.ChunkedArray) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    binary = pa.concat_arrays(chunk.cast(pa.binary(16)) for chunk in hashes.chunks)
    words = np.frombuffer(binary.buffers()[1], dtype=np.uint64)
    words = words[2 * binary.offset : 2 * (binary.offset + len(binary))]
    return words[0::2].copy(), words[1::2].copy()


def _image(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    image = rows[name]
    return image.combine_chunks() if isinstance(image, pa.ChunkedArray) else image
