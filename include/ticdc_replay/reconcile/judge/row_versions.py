"""Row versions that several objects hold: what identifies one, and which of its objects are there."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

VERSION = pa.field("version", pa.binary(16))
"""A row version, as far as it is known: 128 bits of schema, table, ``key_hash`` and ``commit_ts`` of ``records.REFERENCES``."""
HOLDERS = pa.schema([VERSION, pa.field("name", pa.string()), pa.field("present", pa.bool_())])
"""An object that a reference of a row version names, and whether it is in the inventory."""
COPIES = pa.schema([VERSION, pa.field("first", pa.string()), pa.field("last", pa.string())])
"""The first and the last by name of the objects in the inventory that hold a row version; equal where there is one."""

_Words = np.ndarray[Any, np.dtype[np.uint64]]


def mixed(words: _Words) -> _Words:
    """*words* with every bit depending on all bits of the word before (the finalizer of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def versions_of(references: pa.RecordBatch) -> pa.Array:
    """The ``VERSION`` of each row; null where its key or its commitTs is not known.

    Different row versions are as unlikely to meet as different keys with one ``key_hash``.
    """
    key_hash, commit_ts = references.column("key_hash"), references.column("commit_ts")
    known = pc.and_(key_hash.is_valid(), commit_ts.is_valid())
    times = commit_ts.fill_null(0).to_numpy().astype(np.uint64)
    words = words_of(key_hash).copy()
    words ^= _table_words(references.column("schema"), references.column("table"))
    words[:, 0] ^= mixed(times + np.uint64(0x9E3779B97F4A7C15))
    words[:, 1] ^= mixed(times * np.uint64(0xD1342543DE82EF95) + np.uint64(0x2545F4914F6CDD1D))
    return _binary(words, known)


def _table_words(schemas: pa.Array, tables: pa.Array) -> _Words:
    schemas, tables = schemas.dictionary_encode(), tables.dictionary_encode()
    pairs = schemas.indices.to_numpy() * np.int64(len(tables.dictionary)) + tables.indices.to_numpy()
    found, numbers = np.unique(pairs, return_inverse=True)
    digests = []
    for pair in found:
        schema, table = divmod(int(pair), len(tables.dictionary))
        name = (schemas.dictionary[schema].as_py(), tables.dictionary[table].as_py())
        digests.append(xxhash.xxh128_digest(repr(name).encode()))
    words = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
    return words[numbers]


def distinct_holders(versions: pa.Array, names: pa.Array, codes: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """``HOLDERS`` of rows with *versions* that name *names*; *codes* are equal for equal names, -1 for one that is not there.

    Rows without a version are left out, and most repetitions.
    """
    known = np.flatnonzero(versions.is_valid().to_numpy(zero_copy_only=False))
    words, codes = words_of(versions)[known], codes[known]
    some = mixed(words[:, 0] + codes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    order = np.argsort(some)
    words, codes, rows = words[order], codes[order], known[order]
    again = np.zeros(len(rows), bool)
    again[1:] = (words[1:] == words[:-1]).all(axis=1) & (codes[1:] == codes[:-1]) & (codes[1:] >= 0)
    chosen = pa.array(rows[~again])
    present = pa.array(codes[~again] >= 0)
    return pa.RecordBatch.from_arrays([versions.take(chosen), names.take(chosen), present], schema=HOLDERS)


def several(holders: pa.Table) -> tuple[pa.Array, pa.Table]:
    """The names of *holders* (all those of each row version) that can have another object of their row version, each with the
    ``COPIES`` of that."""
    words = words_of(holders["version"])
    order = np.lexsort((words[:, 1], words[:, 0]))
    same = (words[order][1:] == words[order][:-1]).all(axis=1)
    repeated = np.zeros(len(order), bool)
    repeated[1:] |= same
    repeated[:-1] |= same
    some = holders.take(pa.array(order[repeated]))
    there = some.filter(some["present"]).group_by("version").aggregate([("name", "min"), ("name", "max")])
    copies = pa.Table.from_arrays([there["version"], there["name_min"], there["name_max"]], schema=COPIES)
    at = pc.index_in(some["version"], value_set=copies["version"])
    known = at.is_valid()
    rows = copies.take(at.filter(known))
    names = some["name"].filter(known)
    # An object that is the only one of its row version finds no other.
    other = pc.or_(pc.not_equal(rows["first"], rows["last"]), pc.not_equal(rows["first"], names))
    return names.filter(other), rows.filter(other)


def words_of(hashes: pa.Array | pa.ChunkedArray) -> _Words:
    """128-bit *hashes* as two words each; any words for null."""
    if isinstance(hashes, pa.ChunkedArray):
        hashes = hashes.combine_chunks()
    buffer = hashes.buffers()[1]
    if buffer is None:
        return np.zeros((len(hashes), 2), np.uint64)
    words = np.frombuffer(buffer, np.uint64, 2 * len(hashes), 16 * hashes.offset)
    return words.reshape(-1, 2)


def _binary(words: _Words, valid: pa.Array) -> pa.Array:
    """The other way round; null where not *valid*."""
    every = pa.FixedSizeBinaryArray.from_buffers(
        VERSION.type, len(words), [None, pa.py_buffer(np.ascontiguousarray(words))]
    )
    return pc.if_else(valid, every, pa.scalar(None, VERSION.type))
