"""Row events of Canal-JSON: from a document to a ``RowEvent``."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import xxhash
from msgspec import UNSET, UnsetType

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.canal.compiled import Columns, CompiledForm, RowForm, compile_form
from ticdc_replay.codecs.canal.members import DocumentHead, read_row
from ticdc_replay.codecs.canal.shapes import Shapes
from ticdc_replay.codecs.claim_checks import has_escaped_letter
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.fingerprints import seed_of
from ticdc_replay.codecs.members import Object
from ticdc_replay.codecs.replaced_text import REPLACED, lossy_cells
from ticdc_replay.domain.events import Image, LargeMessage, Operation, Reference, RowEvent, Shape
from ticdc_replay.domain.tso import LOGICAL_BITS
from ticdc_replay.large_messages.locations import object_name
from ticdc_replay.schemas.history import SchemaHistory

_MAX_FORMS = 10_000
_MAX_FORMS_OF_A_ROUTE = 4
_END_OF_ROUTE = b',"es":'
_EXTENSION = b',"_tidb":{'
_TIDB, _OF_LOCATION, _ESCAPE = b'"_tidb"', b"C", b"\\"
"""The last two are single bytes, which are found to be missing at once: few tables have a capital C in their names."""
_INSERT, _UPDATE, _DELETE = Operation.INSERT, Operation.UPDATE, Operation.DELETE
_CLAIM_CHECK, _HANDLE_KEY_ONLY = LargeMessage.CLAIM_CHECK, LargeMessage.HANDLE_KEY_ONLY
_OPERATIONS = {"INSERT": _INSERT, "UPDATE": _UPDATE, "DELETE": _DELETE}
_OLD_AND_DATA = {_INSERT: b',"old":null,"data":[{', _UPDATE: b',"old":[{', _DELETE: b',"old":null,"data":[{'}
"""What the images begin with in the order in which TiCDC writes the members of a row."""
_DATA_AFTER_OLD = b'}],"data":[{'
_TEXT, _NULL = b'":"', b'":null'
"""What is between the name of a column and the rest of its cell. There are never fewer of them than members."""
_CLOSING_BRACE = ord("}")
NO_COMMIT_TS = "no _tidb.commitTs, though the changefeed is configured with enable-tidb-extension=true"
# Hot: members of an enum are looked up through a descriptor, and a NamedTuple's constructor takes twice the time.
_new = tuple.__new__
_cells_of = msgspec.structs.astuple


class _Route(NamedTuple):
    """A form that was met after the same first members, ready to read the next row."""

    form: RowForm
    decode: Callable[[bytes], Any]
    filled: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
    holds_replaced: Callable[[tuple[Any, ...]], bool]
    operation: Operation
    shape: Shape | None
    """None where it depends on the row which columns are the handle key."""
    columns: int
    start: bytes
    seed: int


class RowReader:
    """Reads rows and remembers their forms.

    What it remembers makes it faster, never different: a document gives the same row whatever was read before.
    """

    def __init__(self, changefeed: Changefeed, history: SchemaHistory) -> None:
        self._needs_commit_ts = changefeed.enable_tidb_extension
        self._only_updated_columns = changefeed.only_output_updated_columns or changefeed.content_compatible
        self._key_only_deletes = changefeed.delete_only_output_handle_key_columns
        self._routes: dict[bytes, list[_Route]] = {}
        self._forms: dict[RowForm, CompiledForm | None] = {}
        self._met: set[RowForm] = set()
        self._shapes = Shapes(changefeed, history)

    def read_known(self, ordinal: int, document: bytes) -> RowEvent | None:
        """The row in *document* if its form was met before; None where ``read`` has to look.

        Hot: 6 µs for 1,020 bytes with 10 columns and 1.3 images, 2.6 µs of it the parser.
        """
        end = document.find(_END_OF_ROUTE)
        routes = self._routes.get(document[:end])
        if routes is None or document[-1] != _CLOSING_BRACE:
            return None
        for form, decode, filled, holds_replaced, operation, shape, columns, start, seed in routes:
            try:
                row = decode(document)
            except (ValueError, RecursionError):
                continue  # another form, or bad: ``read`` finds out which
            cells = _cells_of(row.data[0])
            old: tuple[Any, ...] | None = None
            members = columns + 1
            if operation is _UPDATE:
                old = _cells_of(row.old[0])
                missing = old.count(UNSET)
                members = columns + columns - missing
                if missing:
                    old = filled(old, cells)
            at = document.find(start, end)
            if at < 0 or (document.find(_OF_LOCATION, 0, at) >= 0 and document.find(_TIDB, 0, at) >= 0):
                return None  # there may be a location before, which the decoder drops, as it takes the last
            if document.find(_ESCAPE, 0, at) >= 0 and has_escaped_letter(document[:at]):
                return None  # so it may, spelled otherwise than TiCDC does
            if row.isDdl or (old is not None and document.find(_DATA_AFTER_OLD, at) < 0):
                return None
            if document.count(_TEXT, at) + document.count(_NULL, at) != members and _members(document, at) != members:
                return None  # a column is repeated: the decoder takes the last and does not tell
            commit_ts, only_handle_key = None, False
            tidb = row.tidb
            if tidb is not UNSET:
                if tidb.claim_check is not UNSET:
                    return None  # there may be two, and the decoder drops one
                commit_ts, only_handle_key = tidb.commit_ts, tidb.only_handle_key
            if commit_ts is None:
                if self._needs_commit_ts:
                    return None
            elif commit_ts >> LOGICAL_BITS != row.es:
                return None
            fingerprint = xxhash.xxh3_128_digest(document[at:], seed ^ row.es)
            if shape is None:
                shape = self._shapes.shape(form, commit_ts, row.es, reduced=only_handle_key)
            event = self._event(
                ordinal, form, operation, shape, commit_ts, only_handle_key, UNSET, cells, old, fingerprint
            )
            if holds_replaced(cells) or (old is not None and holds_replaced(old)):
                return _with_lossy(event, document)
            return event
        return None

    def read(self, ordinal: int, document: bytes, members: Object, head: DocumentHead) -> RowEvent:
        """The row in *document*, which was parsed as *members* and has the *head*. Raises MessageError."""
        operation = _OPERATIONS.get(head.type)
        if operation is None:
            raise MessageError("unknown_event_type", f"type {head.type!r:.80}; INSERT, UPDATE and DELETE are known")
        if not head.schema or not head.table:
            raise MessageError("bad_value", "a row without database or table")
        if head.commit_ts is None and self._needs_commit_ts:
            raise MessageError("bad_value", NO_COMMIT_TS)
        row = read_row(members)
        if (row.old is not None) is not (operation is _UPDATE):
            raise MessageError("bad_value", f"old is {'null' if row.old is None else 'not null'} for {head.type}")
        reduced = head.only_handle_key or head.claim_check is not UNSET
        if not row.data and not reduced and not (operation is _DELETE and self._key_only_deletes):
            raise MessageError("bad_value", "data has no column")
        columns = Columns(tuple(row.data), tuple(row.types.values()))
        form = RowForm(head.schema, head.table, row.pk_names, head.type, columns)
        old = None if row.old is None else self._old_cells(row.data, row.old)
        shape = self._shapes.shape(form, head.commit_ts, head.es, reduced=reduced)
        event = self._event(
            ordinal,
            form,
            operation,
            shape,
            head.commit_ts,
            head.only_handle_key,
            head.claim_check,
            tuple(row.data.values()),
            old,
            _fingerprint(document, form, operation, head.es, (row.data, row.old)),
        )
        self._learn(document, form, operation, shape)
        return _with_lossy(event, document)

    def _old_cells(self, data: dict[str, str | None], old: dict[str, str | None]) -> tuple[str | None, ...]:
        """The complete old image: columns that ``old`` lacks did not change."""
        added = old.keys() - data.keys()
        if added:
            raise MessageError("bad_value", f"old has columns that data lacks: {', '.join(sorted(map(repr, added)))}")
        if len(old) < len(data) and not self._only_updated_columns:
            names = ", ".join(repr(name) for name in data if name not in old)
            raise MessageError(
                "incomplete_old_image",
                f"old lacks {names}; if the changefeed had only-output-updated-columns=true then, say so in its configuration",
            )
        return tuple(old.get(name, cell) for name, cell in data.items())

    def _event(
        self,
        ordinal: int,
        form: RowForm,
        operation: Operation,
        shape: Shape,
        commit_ts: int | None,
        only_handle_key: bool,
        claim_check: str | UnsetType,
        cells: tuple[Any, ...],
        old: tuple[Any, ...] | None,
        fingerprint: bytes,
    ) -> RowEvent:
        """The event of a row with *cells* in ``data``; *old* only for an update. Runs for every row: 0.6 µs."""
        large, reference, partial = None, None, False
        if claim_check is not UNSET:
            large, reference, partial = _CLAIM_CHECK, Reference(claim_check, object_name(claim_check)), True
        elif only_handle_key:
            large, partial = _HANDLE_KEY_ONLY, True
        after: Image | None = _new(Image, (shape, cells))
        before: Image | None = None
        if operation is _DELETE:
            after, before = None, after
            if self._key_only_deletes and len(shape.handle_key) in (0, len(shape.columns)):
                partial = True
        elif old is not None:
            before = _new(Image, (shape, old))
        return _new(
            RowEvent,
            (
                ordinal, commit_ts, form.schema, form.table, None, operation, after, before,
                partial, large, reference, (), fingerprint, (), "",
            ),
        )  # fmt: skip

    def _learn(self, document: bytes, form: RowForm, operation: Operation, shape: Shape) -> None:
        """Compile a form when it is met for the second time, and read the next rows that begin alike with it."""
        end, at = document.find(_END_OF_ROUTE), document.find(_OLD_AND_DATA[operation])
        if not 0 <= end < at:
            return  # members in an order that TiCDC does not write
        if form not in self._met:
            if len(self._met) >= _MAX_FORMS:
                for remembered in (self._met, self._forms, self._routes):
                    remembered.clear()
            self._met.add(form)
            return
        if form not in self._forms:
            self._forms[form] = compile_form(form, self._only_updated_columns)
        compiled = self._forms[form]
        if compiled is not None:
            start, seed = _OLD_AND_DATA[operation], seed_of(form.schema, form.table, form.type)
            certain = shape if self._shapes.are_certain(form) else None
            route = _Route(form, *compiled, operation, certain, len(form.columns.names), start, seed)
            others = [other for other in self._routes.get(document[:end], []) if other.form != form]
            self._routes[document[:end]] = [route, *others][:_MAX_FORMS_OF_A_ROUTE]


def _with_lossy(row: RowEvent, document: bytes) -> RowEvent:
    if REPLACED not in document:
        return row
    return row._replace(lossy=lossy_cells(document, row.after, row.before))


def _members(document: bytes, at: int) -> int:
    """How many members the images have that begin *at*, or a few more: text that begins with ``:null`` looks like one."""
    end = document.rfind(_EXTENSION)
    plain = document[at : end if end > at else None].replace(b"\\\\", b"").replace(b'\\"', b"")
    return plain.count(_TEXT) + plain.count(_NULL)


def _fingerprint(document: bytes, form: RowForm, operation: Operation, es: int, images: Any) -> bytes:
    """A hash of what *document* says, without the time at which it was written and the random order of ``mysqlType``."""
    at = document.find(_OLD_AND_DATA[operation])
    if operation is _UPDATE and document.find(_DATA_AFTER_OLD, at) < 0:
        at = -1
    content = document[at:] if at >= 0 else msgspec.json.encode(images)
    return xxhash.xxh3_128_digest(content, seed_of(form.schema, form.table, form.type) ^ es)
