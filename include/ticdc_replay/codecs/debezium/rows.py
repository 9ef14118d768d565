"""Rows of Debezium: from the JSON of key and value to an event."""

from typing import Any, NamedTuple

import xxhash
from msgspec import UNSET

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.avro.schema import SchemaError
from ticdc_replay.codecs.debezium.compiled import CompiledForm, compile_form
from ticdc_replay.codecs.debezium.json import ChangeSource, Document, read_image, wire_value
from ticdc_replay.codecs.debezium.modes import modes_of
from ticdc_replay.codecs.debezium.row_plans import RowPlan, fields_of, handle_key_of, plan_of
from ticdc_replay.codecs.debezium.schema import ConnectField
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.fingerprints import seed_of
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import Image, Operation, RowEvent
from ticdc_replay.schemas.history import SchemaHistory

_MAX_FORMS = 10_000
_FORMS_PER_ROUTE = 8
"""A table has several forms where redelivered rows of before a schema change come between new ones."""
_PAYLOAD = b'{"payload":'
_SCHEMA = b'},"schema":{'
"""Where the payload ends and the schema begins: with its quotes unescaped it can't stand in a text."""
_TABLE, _AFTER_TABLE, _OPERATION = b'"db":"', b'"server_id"', b'"op":"'

# Hot: members of an enum are looked up through a descriptor, and a NamedTuple's constructor takes twice the time.
_INSERT, _UPDATE, _DELETE = Operation.INSERT, Operation.UPDATE, Operation.DELETE
_OPERATIONS = {"c": _INSERT, "u": _UPDATE, "d": _DELETE}
_new = tuple.__new__


class _Known(NamedTuple):
    """A form whose rows are read by compiled code. The suffixes are what follows the payloads, schemas and all."""

    value_suffix: bytes
    key_suffix: bytes | None
    plan: RowPlan
    form: CompiledForm
    definition: TableDefinition | None


class RowReader:
    """Reads rows and remembers their forms.

    What it remembers makes it faster, never different: a message gives the same row whatever was read before.
    """

    def __init__(self, changefeed: Changefeed, history: SchemaHistory) -> None:
        self._zone = changefeed.timezone
        self._modes = modes_of(changefeed)
        self._old_values = changefeed.debezium_output_old_value
        self._drops_columns = bool(changefeed.dispatch.selectors)
        self._definition_at = history.definition_at
        self._routes: dict[bytes, list[_Known]] = {}
        self._plans: dict[tuple[Any, ...], RowPlan] = {}
        self._forms: dict[tuple[Any, ...], _Known | None] = {}
        """Forms that were met: None where it was once, or where msgspec can't read it."""

    def read_known(self, key: bytes | None, value: bytes) -> RowEvent | None:
        """The row in *value*, where rows of its form were read before; None for any other message.

        Hot: 6 µs for a payload of 600 bytes with 10 columns and 1.3 images, and 0.5 µs more for 5 kB of schema.
        """
        at = value.find(_TABLE)
        known_forms = self._routes.get(value[at : value.find(_AFTER_TABLE, at)])
        if known_forms is None or not value.startswith(_PAYLOAD):
            return None
        for known in known_forms:
            value_suffix, key_suffix, _, form, _ = known
            if not value.endswith(value_suffix):
                continue
            if key is None:
                if key_suffix is not None:
                    continue
            elif key_suffix is None or not key.endswith(key_suffix) or not key.startswith(_PAYLOAD):
                continue
            payload = value[11 : -len(value_suffix)]
            try:
                row = form.decode(payload)
                event = self._known_row(row, payload, key, known)
            except (ValueError, RecursionError):
                continue  # another form, or bad: the complete reading finds out which
            if event is not None:
                return event
        return None

    def _known_row(self, row: Any, payload: bytes, key: bytes | None, known: _Known) -> RowEvent | None:
        _, key_suffix, plan, form, definition = known
        source, op, before, after = row.source, row.op, row.before, row.after
        commit_ts, schema, table = source.commit_ts, source.db, source.table
        if (
            commit_ts >> 18 != source.ts_ms
            or not schema
            or not table
            or self._definition_at(schema, table, commit_ts) is not definition
        ):
            return None
        new: tuple[Any, ...] | None = None
        old: tuple[Any, ...] | None = None
        lossy: tuple[str, ...] = ()
        if op == "d":
            if after is not None or before is None or before is UNSET:
                return None
            cells = old = form.cells(before)
            lossy = plan.doubtful_before(old)
            operation = _DELETE
        else:
            if after is None or after is UNSET:
                return None
            cells = new = form.cells(after)
            lossy = plan.doubtful_after(new)
            if op == "c":
                if before is not None:
                    return None
                operation = _INSERT
            else:
                operation = _UPDATE
                if before is None:
                    return None
                if before is not UNSET:
                    old = form.cells(before)
                    lossy = plan.doubtful_before(old) + lossy
                elif self._old_values:
                    return None
        lost = form.may_have_lost_sign
        if lost is not None and (lost(cells, payload) or (old is not None and lost(old, payload))):
            return None
        if key_suffix is not None and form.decode_key(key[11 : -len(key_suffix)]) != form.key_cells(cells):  # type: ignore[index]
            return None
        shape = plan.shape
        return _new(
            RowEvent,
            (
                0, commit_ts, schema, table, None, operation,
                None if new is None else _new(Image, (shape, new)),
                None if old is None else _new(Image, (shape, old)),
                False, None, None, (), fingerprint(payload, schema, table, commit_ts), lossy, "",
            ),
        )  # fmt: skip

    def read(self, key: bytes | None, value: bytes, document: Document, source: ChangeSource) -> RowEvent:
        """The row in *document*, which was read from *value*. Raises MessageError."""
        payload = document.payload
        operation = _OPERATIONS[payload["op"]]
        if not source.db or not source.table:
            raise MessageError("bad_value", "source: a row without db or table")
        images = self._images(operation, payload)
        whole = images["after"] if images["after"] is not None else images["before"]
        assert whole is not None
        names = tuple(whole)
        definition = self._definition_at(source.db, source.table, source.commit_ts)
        fields = fields_of(document, names, definition)
        key_document = None if key is None else Document(key, "key")
        handle_key = handle_key_of(key_document, names, definition, self._drops_columns)
        plan = self._plan(source, names, fields, handle_key, definition)
        cells = {
            side: None if image is None else _cells(image, plan, document.raw, side) for side, image in images.items()
        }
        before, after = cells["before"], cells["after"]
        if key_document is not None:
            _check_key(key_document, names, plan, after if after is not None else before)
        self._learn(value, key, names, plan, definition)
        lossy = plan.doubtful_before(before) if before is not None else ()
        lossy += plan.doubtful_after(after) if after is not None else ()
        return RowEvent(
            ordinal=0,
            commit_ts=source.commit_ts,
            schema=source.db,
            table=source.table,
            physical_table_id=None,
            operation=operation,
            after=None if after is None else Image(plan.shape, after),
            before=None if before is None else Image(plan.shape, before),
            partial=False,
            large=None,
            reference=None,
            before_unknown=(),
            fingerprint=fingerprint(_payload(value) or value, source.db, source.table, source.commit_ts),
            lossy=lossy,
        )

    def _images(self, operation: Operation, payload: dict[str, Any]) -> dict[str, dict[str, Any] | None]:
        """Both images by their side. Raises MessageError where they do not fit the operation, or one another."""
        images = {
            side: None if payload.get(side) is None else read_image(payload[side], side) for side in ("before", "after")
        }
        before, after = images["before"], images["after"]
        if operation is _DELETE:
            if before is None or after is not None:
                raise MessageError("bad_value", "op d: before must be an object, and after null")
        elif after is None:
            raise MessageError("bad_value", f"op {payload['op']}: after must be an object")
        elif operation is _INSERT and before is not None:
            raise MessageError("bad_value", "op c: before must be null")
        elif operation is _UPDATE and before is None:
            if "before" in payload:
                raise MessageError("bad_value", "op u: before is null")
            if self._old_values:
                raise MessageError(
                    "incomplete_old_image",
                    "op u: no before; if the changefeed had debezium.output-old-value=false then, say so in its configuration",
                )
        if before is not None and after is not None and before.keys() != after.keys():
            names = ", ".join(sorted(map(repr, before.keys() ^ after.keys())))
            raise MessageError("bad_value", f"before and after have other columns: {names}")
        return images

    def _plan(
        self,
        source: ChangeSource,
        names: tuple[str, ...],
        fields: dict[str, ConnectField] | None,
        handle_key: tuple[str, ...],
        definition: TableDefinition | None,
    ) -> RowPlan:
        sent = None if fields is None else tuple(fields.values())
        identity = (source.db, source.table, names, sent, handle_key, id(definition))
        plan = self._plans.get(identity)
        if plan is None:
            if len(self._plans) >= _MAX_FORMS:
                for remembered in (self._plans, self._forms, self._routes):
                    remembered.clear()
            try:
                plan = self._plans[identity] = plan_of(names, fields, handle_key, definition, self._zone, self._modes)
            except SchemaError as error:
                raise MessageError("bad_schema", str(error)) from None
        return plan

    def _learn(
        self,
        value: bytes,
        key: bytes | None,
        names: tuple[str, ...],
        plan: RowPlan,
        definition: TableDefinition | None,
    ) -> None:
        """Compile a form when it is met for the second time, and read the next row of the table with it."""
        payload, key_payload = _payload(value), None if key is None else _payload(key)
        if payload is None or (key is not None and key_payload is None):
            return
        at = value.find(_TABLE)
        route = value[at : value.find(_AFTER_TABLE, at)]
        suffix = value[11 + len(payload) :]
        key_suffix = None if key is None or key_payload is None else key[11 + len(key_payload) :]
        identity = (route, xxhash.xxh3_128_digest(suffix), key_suffix, id(plan))
        if identity not in self._forms:
            self._forms[identity] = None
            return
        known = self._forms[identity]
        if known is None:
            form = compile_form(names, plan.cells, plan.key)
            if form is None:
                return
            known = self._forms[identity] = _Known(suffix, key_suffix, plan, form, definition)
        forms = self._routes.setdefault(route, [])
        if known not in forms:
            forms.insert(0, known)
            del forms[_FORMS_PER_ROUTE:]


def fingerprint(payload: bytes, schema: str, table: str, commit_ts: int) -> bytes:
    """A hash of what *payload* says of its row. When it was built is left out: copies differ in that."""
    return xxhash.xxh3_128_digest(payload[max(payload.find(_OPERATION), 0) :], seed_of(schema, table) ^ commit_ts)


def _check_key(document: Document, names: tuple[str, ...], plan: RowPlan, cells: tuple[Any, ...] | None) -> None:
    assert cells is not None
    for at in plan.key:
        name = names[at]
        value = wire_value(document.payload[name], plan.cells[at], document.raw, f"key: column {name!r}")
        if value != cells[at]:
            raise MessageError("key_mismatch", f"column {name!r} of the key has another value than the row")


def _cells(image: dict[str, Any], plan: RowPlan, raw: bool, side: str) -> tuple[Any, ...]:
    return tuple(
        wire_value(image[name], cells, raw, f"column {name!r} of {side}")
        for name, cells in zip(plan.shape.names, plan.cells, strict=True)
    )


def _payload(data: bytes) -> bytes | None:
    """The payload of a key or value that is written as TiCDC writes it; None for any other spelling."""
    if not data.startswith(_PAYLOAD):
        return None
    at = data.find(_SCHEMA)
    return data[len(_PAYLOAD) : at + 1] if at >= 0 else data[len(_PAYLOAD) : -1]
