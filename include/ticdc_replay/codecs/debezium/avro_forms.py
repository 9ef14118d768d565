"""What writer schemas of Debezium-Avro say of keys and values, ready to read with, by their ids."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ticdc_replay.codecs.avro import schema as avro_schema
from ticdc_replay.codecs.avro.binary import Schema, schema_of
from ticdc_replay.codecs.avro.schema import Record, SchemaError
from ticdc_replay.codecs.debezium.avro_schema import WriterSchema, parse_key, parse_value
from ticdc_replay.codecs.debezium.json import MessageError
from ticdc_replay.codecs.debezium.row_plans import Plan, plan_of
from ticdc_replay.codecs.debezium.schema import Field
from ticdc_replay.schemas.lookup import SchemaLookup, UnusableAnswerError

_MAX_REMEMBERED = 10_000
SOURCE = ("db", "table", "commit_ts", "ts_ms")
"""Fields of the source that are read."""
_BUILD_TIME = "ts_ms"

_Form = TypeVar("_Form")


class KeyForm(NamedTuple):
    """The schema of a key. The cells of a record are those of ``columns``, in their order."""

    id: str
    columns: tuple[Field, ...]
    avro: Schema


class ValueForm(NamedTuple):
    """The schema of a value. The cells of an image are those of ``columns``, in their order."""

    id: str
    columns: tuple[Field, ...]
    is_ddl: bool
    avro: Schema
    """The fields before the time that the message was built at; of a schema change, those up to ``ddl``."""
    rest: Schema
    """The fields after ``avro``: none of them is needed. Of a schema change they are not known."""


class Forms:
    """The forms of a registry's schemas, and what follows from pairs of them. Remembers ids that are not there, too."""

    def __init__(self, schemas: SchemaLookup, zone: str) -> None:
        self._text = schemas.writer_schemas.text
        self._definition_at = schemas.history.definition_at
        self._zone = zone
        self._keys: dict[str, KeyForm | MessageError] = {}
        self._values: dict[str, ValueForm | MessageError] = {}
        self._plans: dict[tuple[Any, ...], Plan] = {}

    def key(self, schema_id: str) -> KeyForm:
        """The form of keys with *schema_id*.

        Raises MessageError (``schema_unknown``, ``bad_schema``), and what the registry raises.
        """
        form = self._keys.get(schema_id)
        if form is None:
            form = self._keys[schema_id] = self._load(schema_id, _key_form)
        if isinstance(form, MessageError):
            raise MessageError(form.reason, str(form))
        return form

    def value(self, schema_id: str) -> ValueForm:
        """The form of values with *schema_id*; raises as ``key``."""
        form = self._values.get(schema_id)
        if form is None:
            form = self._values[schema_id] = self._load(schema_id, _value_form)
        if isinstance(form, MessageError):
            raise MessageError(form.reason, str(form))
        return form

    def plan(self, value: ValueForm, key: KeyForm | None, about: tuple[str, str, int]) -> Plan:
        """How rows of *value* are read beside *key*; *about* are schema, table and commitTs. Raises MessageError."""
        definition = self._definition_at(*about)
        identity = (value.id, None if key is None else key.id, id(definition))
        plan = self._plans.get(identity)
        if plan is None:
            fields = {field.name: field for field in value.columns}
            if key is not None:
                handle_key = tuple(field.name for field in key.columns)
            else:
                handle_key = definition.handle_key() if definition is not None else ()
            if not set(handle_key) <= fields.keys():
                unknown = ", ".join(sorted(set(handle_key) - fields.keys()))
                raise MessageError("key_mismatch", f"the key has columns that the value lacks: {unknown}")
            names = tuple(fields)
            plan = self._plans[identity] = plan_of(names, fields, handle_key, definition, self._zone)
        return plan

    def _load(self, schema_id: str, form_of: Callable[[str, str], _Form]) -> _Form | MessageError:
        if len(self._keys) + len(self._values) >= _MAX_REMEMBERED:
            for remembered in (self._keys, self._values, self._plans):
                remembered.clear()
        try:
            text = self._text(schema_id)
            if text is None:
                return MessageError("schema_unknown", f"the schema registry has no schema {schema_id}")
            return form_of(schema_id, text)
        except UnusableAnswerError as error:
            return MessageError("schema_unknown", str(error))
        except SchemaError as error:
            return MessageError("bad_schema", f"schema {schema_id} of the registry: {error}")


def _key_form(schema_id: str, text: str) -> KeyForm:
    schema = parse_key(text)
    return KeyForm(schema_id, schema.columns, schema_of(schema.record))


def _value_form(schema_id: str, text: str) -> ValueForm:
    schema = parse_value(text)
    fields = schema.record.fields
    places = {field.name: at for at, field in enumerate(fields)}
    _check_members(fields, places)
    _check_images(schema, places)
    is_ddl = "ddl" in places
    split = len(fields) if is_ddl else places.get(_BUILD_TIME, len(fields))
    avro, rest = (schema_of(replace(schema.record, fields=part)) for part in (fields[:split], fields[split:]))
    return ValueForm(schema_id, schema.columns, is_ddl, avro, rest)


def _check_members(fields: tuple[avro_schema.Field, ...], places: dict[str, int]) -> None:
    """The fields that are read have the types that TiCDC gives them."""
    if "ddl" not in places and "op" not in places:
        raise SchemaError("neither op nor ddl")
    source = fields[places["source"]] if "source" in places else None
    if source is None or not isinstance(source.type, Record) or source.null_branch is not None:
        raise SchemaError("no record called source")
    types = {field.name: field.type for field in source.type.fields}
    lacking = set(SOURCE) - types.keys()
    if lacking:
        raise SchemaError(f"source lacks {', '.join(sorted(lacking))}")
    types |= {name: fields[places[name]].type for name in ("op", "ddl") if name in places}
    for name in ("db", "table", "op", "ddl"):
        if types.get(name, "string") != "string":
            raise SchemaError(f"{name} is no string")


def _check_images(schema: WriterSchema, places: dict[str, int]) -> None:
    """Both images are one record, each or NULL."""
    images = [schema.record.fields[places[name]] for name in ("before", "after") if name in places]
    if images and (
        len(images) != 2
        or images[0].type is not images[1].type
        or not isinstance(images[0].type, Record)
        or any(image.null_branch is None for image in images)
    ):
        raise SchemaError("before and after are not of one record, or never NULL")
    names = [field.name for field in schema.columns]
    if len(set(names)) != len(names):
        raise SchemaError("two columns of one name")
