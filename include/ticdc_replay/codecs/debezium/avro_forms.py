"""What writer schemas of Debezium-Avro say of keys and values, ready to read with, by their ids."""

from dataclasses import replace
from typing import NamedTuple

from ticdc_replay.codecs.avro.binary import Schema, schema_of
from ticdc_replay.codecs.avro.registered import MAX_REMEMBERED, forms_by_id
from ticdc_replay.codecs.avro.schema import AvroField, AvroRecord, SchemaError
from ticdc_replay.codecs.debezium.avro_schema import WriterSchema, parse_key, parse_value
from ticdc_replay.codecs.debezium.row_plans import RowPlan, plan_of
from ticdc_replay.codecs.debezium.schema import ConnectField
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.schemas.lookup import SchemaLookup

SOURCE = ("db", "table", "commit_ts", "ts_ms")
"""Fields of the source that are read."""
_BUILD_TIME = "ts_ms"


class KeyForm(NamedTuple):
    """The schema of a key. The cells of a record are those of ``columns``, in their order."""

    columns: tuple[ConnectField, ...]
    avro: Schema


class ValueForm(NamedTuple):
    """The schema of a value. The cells of an image are those of ``columns``, in their order."""

    columns: tuple[ConnectField, ...]
    is_ddl: bool
    avro: Schema
    """The fields before the time that the message was built at; of a schema change, those up to ``ddl``."""
    rest: Schema
    """The fields after ``avro``: none of them is needed. Of a schema change they are not known."""


class Forms:
    """The forms of a registry's schemas by id, and what follows from pairs of them.

    *drops_columns*: a column selector may drop some from values, which keys still have. Then rows have no identity.
    """

    def __init__(self, schemas: SchemaLookup, zone: str, *, drops_columns: bool) -> None:
        self._drops_columns = drops_columns
        self._definition_at = schemas.history.definition_at
        self._zone = zone
        self._plans: dict[tuple[str, str | None, int], RowPlan] = {}
        self.key = forms_by_id(schemas.writer_schemas, _key_form)
        self.value = forms_by_id(schemas.writer_schemas, _value_form)

    def plan(self, value_id: str, key_id: str | None, about: tuple[str, str, int]) -> RowPlan:
        """How rows of *value_id* are read beside keys of *key_id*. Raises MessageError.

        *about* are schema, table and commitTs.
        """
        definition = self._definition_at(*about)
        # A definition lives as long as the history, so its id names it.
        identity = (value_id, key_id, id(definition))
        plan = self._plans.get(identity)
        if plan is None:
            fields = {field.name: field for field in self.value(value_id).columns}
            if key_id is not None:
                handle_key = tuple(field.name for field in self.key(key_id).columns)
            else:
                handle_key = definition.handle_key() if definition is not None else ()
            if not set(handle_key) <= fields.keys() and self._drops_columns:
                handle_key = ()
            if not set(handle_key) <= fields.keys():
                unknown = ", ".join(sorted(set(handle_key) - fields.keys()))
                raise MessageError("key_mismatch", f"the key has columns that the value lacks: {unknown}")
            if len(self._plans) >= MAX_REMEMBERED:
                self._plans.clear()
            plan = self._plans[identity] = plan_of(tuple(fields), fields, handle_key, definition, self._zone)
        return plan


def _key_form(text: str) -> KeyForm:
    schema = parse_key(text)
    return KeyForm(schema.columns, schema_of(schema.record))


def _value_form(text: str) -> ValueForm:
    schema = parse_value(text)
    fields = schema.record.fields
    places = {field.name: at for at, field in enumerate(fields)}
    _check_members(fields, places)
    _check_images(schema, places)
    is_ddl = "ddl" in places
    split = len(fields) if is_ddl else places.get(_BUILD_TIME, len(fields))
    avro, rest = (schema_of(replace(schema.record, fields=part)) for part in (fields[:split], fields[split:]))
    return ValueForm(schema.columns, is_ddl, avro, rest)


def _check_members(fields: tuple[AvroField, ...], places: dict[str, int]) -> None:
    """The fields that are read have the types that TiCDC gives them."""
    if "ddl" not in places and "op" not in places:
        raise SchemaError("neither op nor ddl")
    source = fields[places["source"]] if "source" in places else None
    if source is None or not isinstance(source.type, AvroRecord) or source.null_branch is not None:
        raise SchemaError("no record called source")
    types = {field.name: field.type for field in source.type.fields}
    lacking = set(SOURCE) - types.keys()
    if lacking:
        raise SchemaError(f"source lacks {', '.join(sorted(lacking))}")
    types |= {name: fields[places[name]].type for name in ("op", "ddl") if name in places}
    for name in ("db", "table", "op", "ddl"):
        if types.get(name, "string") != "string":
            raise SchemaError(f"{name} is not a string")


def _check_images(schema: WriterSchema, places: dict[str, int]) -> None:
    """Both images are one record, each or NULL."""
    images = [schema.record.fields[places[name]] for name in ("before", "after") if name in places]
    if images and (
        len(images) != 2
        or images[0].type is not images[1].type
        or not isinstance(images[0].type, AvroRecord)
        or any(image.null_branch is None for image in images)
    ):
        raise SchemaError("before and after are not of one record, or never NULL")
    names = [field.name for field in schema.columns]
    if len(set(names)) != len(names):
        raise SchemaError("two columns of one name")
