"""What codecs have in common whose keys and values name a schema in a registry."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from ticdc_replay.codecs.avro.binary import AvroError, Schema, read
from ticdc_replay.codecs.avro.framing import Framed, is_framed, unframe
from ticdc_replay.codecs.avro.schema import SchemaError
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.lookup import UnusableAnswerError, WriterSchemas

MAX_REMEMBERED = 10_000

_Form = TypeVar("_Form")


class RegisteredCodec(Codec):
    """A codec of keys and values that are framed, by Confluent or by AWS Glue."""

    def has_no_location(self, message: RawMessage) -> bool:
        return is_framed(message.key, message.value)

    def _unframed(self, part: str, data: bytes) -> Framed:
        try:
            framed = unframe(data, self.decompressed_max_bytes)
        except MessageError as error:
            raise MessageError(error.reason, f"{part}: {error}") from None
        self.expanded += max(0, len(framed.body) - len(data))
        return framed


def read_whole(part: str, schema: Schema, body: bytes, *about: Any) -> dict[str, Any]:
    """The record that *body* is, all of it. *part* is ``key`` or ``value``. Raises MessageError, which gets *about*."""
    try:
        record, end = read(schema, body)
    except AvroError as error:
        raise MessageError(f"bad_{part}", f"{part}: {error}", *about) from None
    if end != len(body):
        raise MessageError(f"bad_{part}", f"{part}: {len(body) - end} bytes follow the record", *about)
    found: dict[str, Any] = record
    return found


def forms_by_id(schemas: WriterSchemas, form_of: Callable[[str], _Form]) -> Callable[[str], _Form]:
    """A look-up by id of what *form_of* makes of the texts of *schemas*. It remembers schemas that can't be used, too.

    It raises MessageError (``schema_unknown``, ``bad_schema``), and what the registry raises.
    """

    @lru_cache(MAX_REMEMBERED)
    def loaded(schema_id: str) -> _Form | MessageError:
        try:
            text = schemas.text(schema_id)
            if text is None:
                return MessageError("schema_unknown", f"the schema registry has no schema {schema_id}")
            return form_of(text)
        except UnusableAnswerError as error:
            return MessageError("schema_unknown", str(error))
        except SchemaError as error:
            return MessageError("bad_schema", f"schema {schema_id} of the registry: {error}")

    def form(schema_id: str) -> _Form:
        found = loaded(schema_id)
        if isinstance(found, MessageError):
            raise MessageError(found.reason, str(found))
        return found

    return form
