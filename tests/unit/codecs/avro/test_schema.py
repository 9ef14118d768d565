"""Schema documents as TiCDC registers them are parsed, others are refused."""

import json

import pytest

from tests.support.avro_messages import record
from ticdc_replay.codecs.avro.schema import SchemaError, parse


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("{", "not JSON"),
        ("\ud800", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('"string"', "a str instead of a record"),
        ('{"type":"enum","name":"e"}', "'enum' instead of record"),
        ('{"type":"record","name":"t"}', "without name, namespace or fields"),
        (json.dumps(record({"name": "a"})), "no type"),
        (json.dumps(record({"type": "int"})), "without name"),
        (json.dumps(record({"name": "a", "type": "int"}, {"name": "a", "type": "int"})), "two fields of one name"),
        (json.dumps(record({"name": "a", "type": {"type": "array", "items": "int"}})), "'array' is none"),
        (json.dumps(record({"name": "a", "type": ["null", "int", "string"]})), "not of null and one type"),
        (json.dumps(record({"name": "a", "type": ["int", "string"]})), "not of null and one type"),
        (json.dumps(record({"name": "a", "type": {"type": "int", "connect.parameters": {"x": 1}}})), "not texts"),
        (
            json.dumps(record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 0}})),
            "not those of a decimal",
        ),
        (
            json.dumps(
                record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 65, "scale": 31}})
            ),
            "not those of a decimal",
        ),
        (json.dumps(record({"name": "a", "type": record({"name": "b", "type": record()})})), "a record in a record"),
    ],
)
def test_a_document_that_is_no_schema_of_ticdc_is_refused(document, told):
    with pytest.raises(SchemaError, match=told):
        parse(document)


def test_defaults_are_not_looked_at():
    fields = [{"name": "a", "type": "double", "default": 1}, {"name": "b", "type": "bytes", "default": "AAE="}]
    assert [field.name for field in parse(json.dumps(record(*fields))).fields] == ["a", "b"]
