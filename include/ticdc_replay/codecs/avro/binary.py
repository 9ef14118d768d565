"""Avro binary, read by fastavro and held to what an encoder writes.

fastavro also reads bytes that are no Avro: an integer of more than 64 bits, a negative branch of a union, a boolean that is not
0 or 1, a name twice in a map. So a value is accepted only if writing it gives the same bytes again. TiCDC's encoder, goavro, has
one way to write a value: the shortest integers, and one block for a map or array.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from ticdc_replay.codecs.avro.schema import AvroField, AvroRecord

Schema = Any
"""A schema that fastavro has parsed."""


class AvroError(ValueError):
    """Bytes are not of the schema. The text says where."""


def schema_of(record: AvroRecord) -> Schema:
    """What *record* is read by: no logical types, and strings as bytes, for they may be text that is not UTF-8."""
    return parse_schema(_plain(record))


def _as_it_is(value: Any) -> Any:
    return value


def read(schema: Schema, data: bytes, named: Callable[[Any], Any] = _as_it_is) -> tuple[Any, int]:
    """The value that *data* begins with, and the position after it; what follows is for the caller to judge. Raises AvroError.

    A record is a dict. In a union it is a pair of its name and that dict. *named* may make such pairs of other values: they are
    written by that name, which is faster than to look for the branch. Memory and time grow as *data* does.
    """
    source = BytesIO(data)
    try:
        value = named(schemaless_reader(source, schema, None, return_record_name=True))
        end = source.tell()
        written = encode(schema, value)
    except (EOFError, IndexError) as error:  # a branch or symbol that there is not is an IndexError, too
        at = source.tell()
        raise AvroError(
            f"the record ends after {at} bytes" if at == len(data) else f"before byte {at}: {error}"
        ) from None
    except ValueError as error:  # the key of a map that is not UTF-8, an int of more than 32 bits in a union
        raise AvroError(f"before byte {source.tell()}: {error!s:.200}") from None
    if data[:end] != written:
        at = next((at for at, (byte, right) in enumerate(zip(data, written, strict=False)) if byte != right), 0)
        raise AvroError(f"byte {at}: no encoder of Avro writes this")
    return value, end


def encode(schema: Schema, value: Any) -> bytes:
    """*value* as Avro binary. Raises ValueError where it is not of *schema*."""
    target = BytesIO()
    schemaless_writer(target, schema, value)
    return target.getvalue()


def _plain(record: AvroRecord, name: str = "r") -> dict[str, Any]:
    """*record* under a name of its own: a union may not have two of one name, nor a schema."""
    fields = [{"name": field.name, "type": _type(field, f"{name}{at}")} for at, field in enumerate(record.fields)]
    return {"type": "record", "name": name, "fields": fields}


def _type(field: AvroField, name: str) -> Any:
    written: Any
    if isinstance(field.type, AvroRecord):
        written = _plain(field.type, f"{name}_")
    else:
        written = "bytes" if field.type == "string" else field.type
    if field.null_branch is None:
        return written
    return ["null", written] if field.null_branch == 0 else [written, "null"]
