"""The fold: of the row versions of a table, the last one of each row.

Versions of one row are ordered by (commitTs, delete < put), or by their place in Kafka where not all have a commitTs; an insert,
update or upsert is a put. The cells of the handle key distinguish rows: the 128-bit hash in ``_key`` only groups them,
and two keys with one hash stay two rows.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ticdc_replay.changelog.cells.columnar import halves_of
from ticdc_replay.changelog.files.version_order import OFFSET_BITS, VersionOrder, offset_of, versions_of
from ticdc_replay.domain.errors import PermanentError

Indices = npt.NDArray[np.int64]

_CELL = "key."
"""Before the names of handle-key columns in what ``narrow`` makes."""
_encode = msgspec.msgpack.Encoder().encode
_ZERO = r"^[+-]?[0.]+([eE].*)?$"
_SECONDS = re.compile(rb"(.*:\d\d)(?:\.(\d*))?(Z?)", re.DOTALL)


def is_put(rows: pa.Table | pa.RecordBatch) -> pa.BooleanArray:
    """Per row of the changelog, whether it leaves a row behind. Raises PermanentError where such a row is partial."""
    put = pc.not_equal(rows["_op"], "delete")
    incomplete = pc.and_(put, rows["_partial"])
    if pc.any(incomplete).as_py():
        raise PermanentError(
            f"{place_of(rows, pc.index(incomplete, True).as_py())}: the row lacks columns and must not be applied as if "
            "it were whole; decode the window again with this version of the library"
        )
    return _one_array(put)


def narrow_columns(handle_key: Sequence[str]) -> list[str]:
    """The columns of a changelog file that ``is_put`` and ``narrow`` need, as far as Parquet can name them."""
    sides = ["before", "after"]
    if not any("." in name for name in handle_key):
        sides = [f"{side}.{name}" for side in sides for name in handle_key]
    return ["_op", "_commit_ts", "_topic", "_partition", "_offset", "_index", "_key", "_partial", *sides, "_exact"]


def narrow(
    rows: pa.Table | pa.RecordBatch, handle_key: Sequence[str], put: pa.BooleanArray, order: VersionOrder = "commit_ts"
) -> pa.Table:
    """What the fold looks at of *rows*: hash, version by *order*, *put* (see ``is_put``), exact texts, and the cells of the
    handle key: of the new image, or of the old one where the row was deleted. Tables of several files can be concatenated.
    """
    if not handle_key:
        raise PermanentError("a table without handle key has no rows that can be distinguished: it can't be folded")
    versions = versions_of(rows, order)
    if rows["_key"].null_count or versions.null_count:
        position = next(at for at in range(rows.num_rows) if None in (rows["_key"][at].as_py(), versions[at].as_py()))
        raise PermanentError(
            f"{place_of(rows, position)}: the row has no commitTs or no key, so its versions have no order: history only"
        )
    before, after = _one_array(rows["before"]), _one_array(rows["after"])
    columns = {"hash": rows["_key"], "version": versions, "put": put, "exact": rows["_exact"]}
    for name in handle_key:
        columns[_CELL + name] = pc.if_else(put, pc.struct_field(after, [name]), pc.struct_field(before, [name]))
    return pa.table(columns)


def key_cells(narrowed: pa.Table, name: str) -> pa.Array:
    """The cells of the handle-key column *name* in what ``narrow`` made."""
    return narrowed[_CELL + name].combine_chunks()


def by_value(narrowed: pa.Table, decimals: Sequence[str]) -> pa.Table:
    """*narrowed*, see ``narrow``, with keys that are equal by value, whatever the type they were written with.

    The hash is of the texts that the wire had: where DDL widened a key column, ``1.5`` and ``1.50`` are one row with two of them.
    Here numbers become texts without needless zeros, and the hash that of the cells. *decimals* are the key columns whose cells
    are decimals, also where the changelog has them as text. Of a moment that its column can't hold, such as a zero date, the
    exact text counts, without the zeros that end a fraction of a second. With another such cell a row keeps its hash.
    """
    names = [name for name in narrowed.column_names if name.startswith(_CELL)]
    moments = [name for name in names if pa.types.is_temporal(narrowed[name].type)]
    for name in names:
        cells = narrowed[name]
        is_number = (
            pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type) or pa.types.is_decimal(cells.type)
        )
        if is_number or name.removeprefix(_CELL) in decimals:
            texts = pa.array(map(_shortest, cells.to_pylist()), pa.string())
            narrowed = narrowed.set_column(narrowed.column_names.index(name), name, texts)
    keys = list(zip(*[narrowed[name].to_pylist() for name in names], strict=True))
    if any(narrowed[name].null_count for name in moments):
        narrowed, keys = _with_moments(narrowed, names, moments, keys)
    hashes = [
        old if None in key else xxhash.xxh3_128_digest(_encode(key))
        for old, key in zip(narrowed["hash"].to_pylist(), keys, strict=True)
    ]
    return narrowed.set_column(narrowed.column_names.index("hash"), "hash", pa.array(hashes, pa.binary(16)))


def zeros_alike(narrowed: pa.Table, numbers: Sequence[str]) -> pa.Table:
    """*narrowed*, see ``narrow``, with one hash for 0 and -0 in the key columns *numbers*, and one text where cells are texts.

    They are one value to the upstream, but two to the hash of what the wire had. Only rows with such a key are looked at singly.
    """
    is_zero = pa.array(np.zeros(narrowed.num_rows, np.bool_))
    for name in (_CELL + number for number in numbers):
        cells = narrowed[name].combine_chunks()
        if pa.types.is_string(cells.type):
            zero = pc.fill_null(pc.match_substring_regex(cells, _ZERO), False)
            narrowed = narrowed.set_column(narrowed.column_names.index(name), name, pc.if_else(zero, "0", cells))
        else:
            zero = pc.fill_null(pc.equal(cells, pa.scalar(Decimal(0)).cast(cells.type)), False)
        is_zero = pc.or_(is_zero, zero)
    positions = pc.indices_nonzero(is_zero)
    if not len(positions):
        return narrowed
    found = narrowed.take(positions)
    columns = [found[name].to_pylist() for name in found.column_names if name.startswith(_CELL)]
    # The cells of a column have one type, so that a number that is 0 is equal in all rows.
    keys = zip(*([0 if cell == 0 else cell for cell in column] for column in columns), strict=True)
    hashes = [xxhash.xxh3_128_digest(_encode(key)) for key in keys]
    replaced = pc.replace_with_mask(narrowed["hash"].combine_chunks(), is_zero, pa.array(hashes, pa.binary(16)))
    return narrowed.set_column(narrowed.column_names.index("hash"), "hash", replaced)


def _with_moments(
    narrowed: pa.Table, names: Sequence[str], moments: Sequence[str], keys: list[tuple[Any, ...]]
) -> tuple[pa.Table, list[tuple[Any, ...]]]:
    """*narrowed* and its *keys*, where exact texts of *moments* are by value; they stand in the keys for cells that are NULL."""
    exact, puts = narrowed["exact"].to_pylist(), narrowed["put"].to_pylist()
    for at, key in enumerate(keys):
        if None not in key or not exact[at]:
            continue
        side = "after." if puts[at] else "before."
        columns = {side + name.removeprefix(_CELL) for name in moments}
        exact[at] = [(column, _moment(text) if column in columns else text) for column, text in exact[at]]
        found = {column: text for column, text in exact[at] if column in columns}
        texts = [found.get(side + name.removeprefix(_CELL)) for name in names]
        keys[at] = tuple([text] if cell is None and text else cell for cell, text in zip(key, texts, strict=True))
    column = pa.array(exact, narrowed.schema.field("exact").type)
    return narrowed.set_column(narrowed.column_names.index("exact"), "exact", column), keys


def _moment(text: bytes) -> bytes:
    """*text* without the zeros that end a fraction of a second."""
    found = _SECONDS.fullmatch(text)
    if found is None:
        return text
    fraction = (found[2] or b"").rstrip(b"0")
    return found[1] + (b"." + fraction if fraction else b"") + found[3]


def _shortest(number: float | Decimal | str | None) -> str | None:
    if number is None:
        return None
    # float's "f" rounds; its repr does not, and Decimal reads it.
    text = format(Decimal(repr(number) if isinstance(number, float) else number), "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def last_versions(narrowed: pa.Table) -> pa.Int64Array:
    """The positions, in ascending order, of the last version of each row in what ``narrow`` made.

    Hot: runs over every row version, about 0.15 µs each.
    """
    if narrowed.num_rows == 0:
        return pa.array([], pa.int64())
    high, low = np.ascontiguousarray(halves_of(narrowed["hash"].cast(pa.binary(16))).T)
    numbers = narrowed["version"].to_numpy().astype(np.uint64)
    version = numbers << np.uint64(1) | narrowed["put"].to_numpy().astype(np.uint64)
    order = np.argsort(high)
    grouped = high[order]
    begins = np.concatenate([[True], grouped[1:] != grouped[:-1]])
    if begins.all():
        return pa.array(np.arange(len(order)), pa.int64())
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=len(order))
    newest = np.repeat(np.maximum.reduceat(version[order], starts), sizes)
    winners = order[version[order] == newest]
    pairs = np.flatnonzero(~begins)
    first, second = order[pairs - 1], order[pairs]
    if not (
        len(winners) == len(starts)
        and np.array_equal(low[first], low[second])
        and _all_keys_equal(narrowed, first, second)
    ):
        several = np.repeat(sizes > 1, sizes)
        winners = np.concatenate([order[~several], _last_by_cells(narrowed, version, order[several])])
    return pa.array(np.sort(winners), pa.int64())


def version_keys(narrowed: pa.Table) -> list[Any]:
    """Per row of what ``narrow`` made, what is equal for copies of one row version and no others. Slow: meant for few rows."""
    return list(zip(narrowed["version"].to_pylist(), narrowed["put"].to_pylist(), _keys(narrowed), strict=True))


def refuse_moved(narrowed: pa.Table, what: str) -> None:
    """Raise PermanentError where a row has versions in several partitions, so that their places don't order them.

    *narrowed* is what ``narrow`` made of rows that are ordered by place; *what* names the table.
    """
    places = narrowed["version"]
    seen = pa.table({"hash": narrowed["hash"], "place": places, "partition": pc.shift_right(places, OFFSET_BITS)})
    extremes = seen.group_by("hash").aggregate(
        [(column, function) for column in ("partition", "place") for function in ("min", "max")]
    )
    moved = extremes.filter(pc.not_equal(extremes["partition_min"], extremes["partition_max"]))
    if moved.num_rows:
        first = moved.slice(0, 1).to_pylist()[0]
        raise PermanentError(
            f"{what}: {moved.num_rows} rows have changes in several partitions, one of them at [{first['partition_min']}]@"
            f"{offset_of(first['place_min'])} and [{first['partition_max']}]@{offset_of(first['place_max'])}; without commitTs "
            "nothing shows which came last. Were partitions added or the dispatcher changed? End the window before that, bring "
            "the table up to date from the upstream, and start the next one after it. Where one of the messages is another "
            "program's, name it in set_aside of the pipeline file, and decode the window again"
        )


def place_of(rows: pa.Table | pa.RecordBatch, position: int) -> str:
    """Where in Kafka the changelog row at *position* came from, for people."""
    row = rows.slice(position, 1).select(["_topic", "_partition", "_offset", "_index"]).to_pylist()[0]
    return f"{row['_topic']}[{row['_partition']}]@{row['_offset']}, event {row['_index']}"


def _all_keys_equal(narrowed: pa.Table, first: Indices, second: Indices) -> bool:
    """Whether each row of *first* has the key of its peer in *second*. A null cell is unequal: its value is elsewhere."""
    cells = narrowed.select([name for name in narrowed.column_names if name.startswith(_CELL)])
    left, right = (cells.take(pa.array(positions, pa.int64())) for positions in (first, second))
    return all(
        pc.all(pc.fill_null(pc.equal(*columns), False), min_count=0).as_py()
        for columns in zip(left.columns, right.columns, strict=True)
    )


def _last_by_cells(narrowed: pa.Table, version: npt.NDArray[np.uint64], several: Indices) -> Indices:
    """The winners among the rows *several*, distinguished by cells and exact texts; of equal versions the last one.

    Slow, and rarely needed: for collisions of the hash, and for key cells that the typed column can't hold.
    """
    ordered = several[np.lexsort((several, version[several]))]
    last = dict(zip(_keys(narrowed.take(pa.array(ordered, pa.int64()))), ordered.tolist(), strict=True))
    return np.fromiter(last.values(), dtype=np.int64)


def _keys(narrowed: pa.Table) -> list[Any]:
    """The key of each row by its cells and exact texts."""
    names = [name for name in narrowed.column_names if name.startswith(_CELL)]
    keys = []
    for row in narrowed.select([*names, "put", "exact"]).to_pylist():
        side = "after." if row["put"] else "before."
        exact = dict(row["exact"] or ())
        keys.append(tuple((row[name], exact.get(side + name.removeprefix(_CELL))) for name in names))
    return keys


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
