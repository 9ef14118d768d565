"""Staged rows as text that a server reads: lines of LOAD DATA, or the rows of an INSERT. By whole columns: 40 ns a cell."""

import pyarrow as pa
import pyarrow.compute as pc

_ESCAPED = (("\\", "\\\\"), ("\0", "\\0"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("'", "\\'"))
"""What stands for characters that would end a field, in both kinds of text. The first one must come first."""


def load_data(rows: pa.RecordBatch) -> memoryview:
    """*rows* as LOAD DATA reads them without further options: fields end with a tab, lines with a newline."""
    if rows.num_rows == 0:
        return memoryview(b"")
    cells = [pc.fill_null(_bytes(array), b"\\N") for array in rows.columns]
    return _whole(_joined(_joined(*cells, by=b"\t"), b"", by=b"\n"))


def values(rows: pa.RecordBatch) -> list[bytes]:
    """Each of *rows* as ``(…)`` of an INSERT."""
    cells = []
    for array in rows.columns:
        text = _bytes(array)
        if _is_text(array):
            introducer = b"_binary'" if pa.types.is_large_binary(array.type) else b"'"
            text = _joined(introducer, text, b"'", by=b"")
        cells.append(pc.fill_null(text, b"NULL"))
    found: list[bytes] = _joined(b"(", _joined(*cells, by=b","), b")", by=b"").to_pylist()
    return found


def _joined(*parts: pa.Array | bytes, by: bytes) -> pa.Array:
    """Row by row what *parts* have, with *by* between them; null where one of them is."""
    scalars = [pa.scalar(part, pa.large_binary()) if isinstance(part, bytes) else part for part in (*parts, by)]
    return pc.binary_join_element_wise(*scalars)


def _bytes(array: pa.Array) -> pa.Array:
    """Cells as escaped bytes, null where they are."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    if not _is_text(array):
        return array.cast(pa.string()).cast(pa.large_binary())
    array = array.cast(pa.large_binary())
    for character, escaped in _ESCAPED:
        if pc.any(pc.match_substring(array, character)).as_py():
            array = pc.replace_substring(array, character, escaped)
    return array


def _is_text(array: pa.Array) -> bool:
    """Whether it has cells of a row; version and mark are numbers."""
    return bool(pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type))


def _whole(lines: pa.Array) -> memoryview:
    """The bytes of *lines* behind one another. Those of an array lie so in its buffer."""
    offsets, data = lines.buffers()[1:]
    first, last = (lines.offset, lines.offset + len(lines))
    ends = pa.Array.from_buffers(pa.int64(), last + 1, [None, offsets])
    return memoryview(data)[ends[first].as_py() : ends[last].as_py()]
