"""Schemas are fetched once, and what was used is known."""

from hashlib import sha256

import pytest

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.registry import UsedSchemas


class Source:
    """A registry that counts what it is asked."""

    def __init__(self, texts):
        self.texts = texts
        self.asked = []

    def text(self, schema_id):
        self.asked.append(schema_id)
        found = self.texts.get(schema_id)
        if isinstance(found, Exception):
            raise found
        return found


def test_a_schema_is_fetched_once():
    source = Source({"1": "a", "2": "b"})
    used = UsedSchemas(source)
    assert [used.text(schema_id) for schema_id in ("1", "2", "1", "2")] == ["a", "b", "a", "b"]
    assert source.asked == ["1", "2"]


def test_the_hashes_tell_which_schemas_were_used():
    used = UsedSchemas(Source({"1": "a", "2": "b"}))
    used.text("1")
    assert used.hashes == {"1": sha256(b"a").hexdigest()}


def test_an_id_that_is_not_there_is_no_schema_and_may_come():
    source = Source({})
    used = UsedSchemas(source)
    assert used.text("1") is None
    assert used.hashes == {}
    source.texts["1"] = "a"
    assert used.text("1") == "a"


def test_a_failure_is_not_remembered():
    source = Source({"1": TransientError("away")})
    used = UsedSchemas(source)
    with pytest.raises(TransientError):
        used.text("1")
    source.texts["1"] = "a"
    assert used.text("1") == "a"


def test_memory_is_bounded_and_hashes_are_kept():
    source = Source({str(number): "x" * 10 for number in range(5)})
    used = UsedSchemas(source, max_bytes=25)
    for number in range(5):
        used.text(str(number))
    assert used.text("0") == "x" * 10
    assert source.asked == ["0", "1", "2", "3", "4", "0"]
    assert sorted(used.hashes) == ["0", "1", "2", "3", "4"]
