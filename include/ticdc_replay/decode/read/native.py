"""Rows that the native extension reads: from the bytes of messages straight to the columns of the changelog.

The extension, ``ticdc_replay_native``, takes a message only where it is sure to say what the codec in Python would; see
docs/decisions.md, "The native decoder". It reads rows of known forms, and learns forms from rows that Python has read.
Without the extension, or with TICDC_REPLAY_NATIVE=off, Python reads all.
"""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pkgutil import resolve_name
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.cells import convert
from ticdc_replay.changelog.cells.columnar import HASH, ColumnarRows
from ticdc_replay.changelog.cells.convert import absent_names, bytes_of, empty_image_bytes
from ticdc_replay.changelog.cells.types import CELLS_TYPE, EXACT_TYPE
from ticdc_replay.changelog.files.identity import row_key
from ticdc_replay.changelog.files.writer import data_schema
from ticdc_replay.codecs.claim_checks import unwrap
from ticdc_replay.codecs.native import NativeReader, Wire
from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.decode.read.native_forms import form_of
from ticdc_replay.domain.events import Event, Operation, RowEvent, Shape
from ticdc_replay.domain.failure import failure
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.extension import native_extension
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.resolve import ResolvedSchema

NAMES_MAX_BYTES = 32 * 1024 * 1024
"""Of the names of absent cells of all forms that are learnt: they become an array for each batch."""
_MAX_FORMS = 10_000
_FORMS_OF_A_SHAPE = 4
_QUARTER_US = 15 * 60 * 1_000_000
_DAY_US = 96 * _QUARTER_US
_DAYS_TOGETHER = 64
_pack = msgspec.msgpack.Encoder().encode
_log = logging.getLogger(__name__)


class Took(NamedTuple):
    """What was read. ``left`` are the positions of messages that Python has to read."""

    left: list[int]
    first: npt.NDArray[np.int64]
    """Per message, the first commitTs of its rows; -1 for one that is left."""
    last: npt.NDArray[np.int64]
    rows: int
    outside: int
    filtered: int


class _Row(NamedTuple):
    """What all rows of one form have in the columns besides the images."""

    operation: Operation
    partial: bool
    absent: tuple[str, ...]


class _FormColumns(NamedTuple):
    """Columns by the number of a form. Made once for all tables of a batch: there may be thousands of both."""

    operations: pa.Array
    partial: pa.Array
    absent: pa.Array | None
    """None where no form lacks a column."""


class NativeRows:
    """The rows of one split that the extension reads. About 2 µs a row of 1 KB."""

    def __init__(
        self,
        extension: Any,
        changefeed: Changefeed,
        window: Window,
        history: SchemaHistory,
        wants: Callable[[str, str], bool],
        resolve: Callable[[RowEvent], ResolvedSchema],
        max_bytes: int,
    ) -> None:
        """*extension* is as ``extension_for`` gives it. *resolve* gives the schema of a row, *wants* selects tables.

        Objects of more than *max_bytes* are left to Python, which judges whether they are too large.
        """
        ahead = partial(_ahead, changefeed.timezone)
        self._decoder = extension.Decoder(window.from_ts, window.to_ts, ahead, convert.BATCH_MAX_BYTES)
        self._names_left = NAMES_MAX_BYTES
        self._reader: NativeReader = resolve_name(str(changefeed.traits.native))(self._decoder, changefeed)
        self._max_bytes = max_bytes
        self._partial_old = changefeed.only_output_updated_columns or changefeed.content_compatible
        self._history = history
        self._wants = wants
        self._resolve = resolve
        self._targets: list[ResolvedSchema] = []
        self._numbers: dict[ResolvedSchema, int] = {}
        self._forms: list[_Row] = []
        self._forms_of: dict[tuple[str, str, Operation], list[int]] = {}
        self._met: dict[tuple[str, str, str, Shape, int, int], int] = {}
        self._known: set[tuple[Wire, str, tuple[int, int]]] = set()

    @property
    def forms(self) -> int:
        """How many forms of rows the extension knows."""
        return len(self._known)

    @property
    def rows(self) -> int:
        """How many rows wait to be taken."""
        rows: int = self._decoder.rows
        return rows

    def read(self, messages: list[RawMessage]) -> Took:
        """Read what can be read of *messages*, which are of one partition."""
        left, first, last, rows, outside, filtered, panics = self._reader.read(messages)
        if panics:
            _log.warning("the native decoder failed on %d messages; Python reads them", panics)
        return Took(left, np.frombuffer(first, np.int64), np.frombuffer(last, np.int64), rows, outside, filtered)

    def read_object(self, message: RawMessage, small: RowEvent, content: bytes) -> bool:
        """Read the row that *small*, of *message*, refers to from its claim-check object; False where Python has to.

        Such a row waits to be taken, as others do, but counts nowhere: *small* did.
        """
        key, commit_ts = _key_of(small), small.commit_ts
        operations = (Operation.UPSERT, Operation.UPDATE) if small.operation is Operation.UPSERT else (small.operation,)
        forms = [form for each in operations for form in self._forms_of.get((small.schema, small.table, each), ())]
        if not forms or key is None or commit_ts is None or len(content) > self._max_bytes:
            return False
        taken, panicked = self._reader.read_object(content, message.offset, small.ordinal, commit_ts, key, forms)
        if panicked:
            _log.warning("the native decoder failed on a claim-check object; Python reads it")
        return taken

    def learn(self, message: RawMessage, events: Sequence[Event]) -> None:
        """Let the extension read rows like those of *message*, which Python read as *events*."""
        for event in events:
            if isinstance(event, RowEvent):
                self._learn(lambda: message, event)

    def learn_object(self, message: RawMessage, row: RowEvent, content: bytes) -> None:
        """As ``learn``, of *row*, which Python read from the claim-check object that *message* refers to."""

        def whole() -> RawMessage:
            if not self._reader.is_wrapped:
                return message._replace(value=content)
            wrapped = unwrap(content)
            return message._replace(key=wrapped.key, value=wrapped.value)

        self._learn(whole, row._replace(ordinal=0, large=None, reference=None))

    def _learn(self, message: Callable[[], RawMessage], row: RowEvent) -> None:
        try:
            self._learn_form(message, row)
        except BaseException as error:
            _log.warning("rows like one of %s.%s are left to Python: %s", row.schema, row.table, failure(error))

    def _learn_form(self, message: Callable[[], RawMessage], row: RowEvent) -> None:
        if row.commit_ts is None or self._history.unread_at(row.schema, row.table, row.commit_ts):
            return
        image = row.after or row.before
        assert image is not None, "a row event has an image"
        span = self._history.span_at(row.schema, row.table, row.commit_ts)
        met = (row.schema, row.table, _change(row), image.shape, *span)
        # A shape can stand for several forms on the wire, such as flags of Open that mean nothing.
        if self._met.get(met, 0) < _FORMS_OF_A_SHAPE and len(self._met) < _MAX_FORMS:
            self._met[met] = self._met.get(met, 0) + 1
            self._add_form(message, row, image.shape, span)

    def _add_form(self, message: Callable[[], RawMessage], row: RowEvent, shape: Shape, span: tuple[int, int]) -> None:
        resolved = self._resolve(row)
        form = form_of(row, resolved, self._reader)
        wire = None if form is None else self._reader.wire(message(), row, shape)
        if form is None or wire is None or (wire, _change(row), span) in self._known:
            return
        before, after = (image and image.shape for image in (row.before, row.after))
        absent = absent_names(before, after, (), resolved)
        names_bytes = bytes_of(absent)
        if names_bytes > self._names_left:
            return
        self._names_left -= names_bytes
        self._known.add((wire, _change(row), span))
        self._reader.add_form(
            self._number(row, absent),
            self._target(resolved),
            wire.table,
            _change(row),
            [(*each, column.to, column.kind) for each, column in zip(wire.columns, form.columns, strict=True)],
            form.key,
            span,
            self._wants(row.schema, row.table),
            names_bytes + 2 * empty_image_bytes(resolved),
            self._partial_old,
            wire.seed,
        )

    def _number(self, row: RowEvent, absent: tuple[str, ...]) -> int:
        self._forms.append(_Row(row.operation, row.partial, absent))
        number = len(self._forms) - 1
        self._forms_of.setdefault((row.schema, row.table, row.operation), []).append(number)
        return number

    def _target(self, resolved: ResolvedSchema) -> int:
        if resolved not in self._numbers:
            schema = resolved.schema
            fields = data_schema(resolved).field("after").type
            names = None
            if schema.handle_key:
                names = (_pack((schema.name.schema, schema.name.table)), _pack(schema.handle_key))
            self._numbers[resolved] = self._decoder.add_target([_width(field.type) for field in fields], names)
            self._targets.append(resolved)
        return self._numbers[resolved]

    def take(self, topic: str, partition: int) -> list[tuple[ResolvedSchema, ColumnarRows]]:
        """All rows that wait, which are of one *partition* of *topic*, by their schemas; none are left."""
        forms = _FormColumns(
            pa.array([form.operation.value for form in self._forms], pa.string()),
            pa.array([form.partial for form in self._forms], pa.bool_()),
            pa.array([form.absent or None for form in self._forms], CELLS_TYPE)
            if any(form.absent for form in self._forms)
            else None,
        )
        return [
            (self._targets[number], self._columnar(self._targets[number], taken, forms, topic, partition))
            for number, taken in self._decoder.take()
        ]

    def _columnar(
        self, resolved: ResolvedSchema, taken: Any, of_forms: _FormColumns, topic: str, partition: int
    ) -> ColumnarRows:
        rows, before, after, (commit_ts, offsets, ordinals, forms, keys, versions, fingerprints), physical = taken
        schema = data_schema(resolved)
        form_of_row = pa.array(np.frombuffer(forms, np.int32))
        absent = pa.nulls(rows, CELLS_TYPE) if of_forms.absent is None else of_forms.absent.take(form_of_row)
        keyed = bool(resolved.schema.handle_key)
        arrays = {
            "_op": of_forms.operations.take(form_of_row),
            "_commit_ts": pa.array(np.frombuffer(commit_ts, np.int64)),
            "_topic": pa.repeat(topic, rows),
            "_partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
            "_offset": pa.array(np.frombuffer(offsets, np.int64)),
            "_index": pa.array(np.frombuffer(ordinals, np.int32)),
            "_physical_table_id": _array(pa.int64(), rows, physical),
            "_key": pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(keys)])
            if keyed
            else pa.nulls(rows, pa.binary(16)),
            "_partial": of_forms.partial.take(form_of_row),
            "_split": pa.repeat(False, rows),
            "before": _image(schema.field("before").type, rows, before),
            "after": _image(schema.field("after").type, rows, after),
            "_absent": absent,
            "_lossy": pa.nulls(rows, CELLS_TYPE),
            "_exact": pa.nulls(rows, EXACT_TYPE),
        }
        return ColumnarRows(
            pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema),
            np.frombuffer(versions, HASH) if keyed else None,
            np.frombuffer(fingerprints, HASH),
            np.zeros(rows, np.int8),
        )


def _key_of(small: RowEvent) -> bytes | None:
    """The identity of the row that *small* is a part of; None if it has none, or if its images have two."""
    images = [image for image in (small.after, small.before) if image is not None]
    keys = {row_key(small._replace(after=image, before=None)).hash for image in images}
    return keys.pop() if len(keys) == 1 else None


def _change(row: RowEvent) -> str:
    return "put" if row.before is None else "delete" if row.after is None else "update"


def extension_for(changefeed: Changefeed) -> Any | None:
    """The native extension, for rows of *changefeed*; None where only Python reads them."""
    by_time = carried_by(changefeed).commit_ts == "rows"
    readable = changefeed.traits.native is not None and by_time and changefeed.compression == "none"
    return native_extension() if readable else None


def _ahead(zone: str, day: int) -> int | None:
    """How many microseconds local time in *zone* is ahead of UTC all through *day* (since 1970); None where that changes."""
    return _ahead_of_days(zone, day // _DAYS_TOGETHER)[day % _DAYS_TOGETHER]


@lru_cache(maxsize=4096)
def _ahead_of_days(zone: str, block: int) -> list[int | None]:
    """As ``_ahead``, of each day of a *block* of ``_DAYS_TOGETHER``.

    Asked of Arrow for every 15 minutes: no zone changes its clocks twice within these. Many days at a time, and cached, because
    every split asks for all days of its rows: one by one, a year of them takes 0.035 s.
    """
    quarters = np.arange(96 * _DAYS_TOGETHER + 1, dtype=np.int64) * _QUARTER_US
    local = pa.array(quarters + block * _DAYS_TOGETHER * _DAY_US).cast(pa.timestamp("us"))
    found = []
    for choose in ("earliest", "latest"):
        utc = pc.assume_timezone(local, zone, ambiguous=choose, nonexistent=choose)
        found.append(pc.subtract(local.cast(pa.int64()), utc.cast(pa.int64())).to_numpy())
    ahead = np.stack(found)
    days = [ahead[:, 96 * day : 96 * day + 97] for day in range(_DAYS_TOGETHER)]
    return [int(day[0, 0]) if day.min() == day.max() else None for day in days]


def _width(arrow: pa.DataType) -> int:
    """Bytes of a value; 0 for text and bytes."""
    return 0 if pa.types.is_string(arrow) or pa.types.is_binary(arrow) else arrow.bit_width // 8


def _array(arrow: pa.DataType, rows: int, buffers: Any) -> pa.Array:
    validity, nulls, offsets, values = buffers
    parts = [validity, values] if offsets is None else [validity, offsets, values]
    return pa.Array.from_buffers(arrow, rows, [None if part is None else pa.py_buffer(part) for part in parts], nulls)


def _image(arrow: pa.StructType, rows: int, image: Any) -> pa.Array:
    there, nulls, columns = image
    children = [_array(field.type, rows, buffers) for field, buffers in zip(arrow, columns, strict=True)]
    return pa.Array.from_buffers(
        arrow, rows, [None if there is None else pa.py_buffer(there)], nulls, children=children
    )
