"""A decode fetches the schemas that rows were written with, and tells which they were."""

import json
from hashlib import sha256

import pytest

from tests.avro_messages import EXTENSION, column, confluent, encoded, extension, record
from tests.decoded_captures import LIMITS
from tests.schema_registry import Registry, serve
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.decode.split import SplitDecoder
from ticdc_replay.decode.tasks import Attempt, Split
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import AuthenticationError
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory

pytestmark = pytest.mark.integration

ID = column("id", "int", "INT")
KEY = record(ID)
VALUE = record(ID, column("v", "string", "TEXT", null=0), *EXTENSION)
TSO = 470_000_000_000_000_000


@pytest.fixture
def registry():
    with serve(Registry({1: json.dumps(KEY), 2: json.dumps(VALUE), 3: "not used"})) as running:
        yield running


def decoder(folder, registry, **fields):
    job = DecodeJob(
        library_version="test",
        pipeline="p",
        artifacts=folder.as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        schema_registry_connection="registry",
        manifest="manifests/m.json",
        input_hash="i" * 64,
        changefeed=Changefeed(protocol="avro", topic="topic", timezone="UTC", enable_tidb_extension=True),
        tables=("s.*",),
        limits=LIMITS,
    )
    connection = Connection("registry", "http", host="127.0.0.1", port=registry.port, **fields)
    split = Split(0, (OffsetRange("topic", 0, 0, 3),))
    window = Window(TSO, TSO + 100)
    return SplitDecoder(
        split, Attempt("attempt"), job, window, SchemaHistory(), Connections({connection.conn_id: connection})
    )


def messages():
    for number in range(3):
        body = encoded(VALUE, {"id": number, "v": "a", **extension("c", TSO + number)})
        key = confluent(1, encoded(KEY, {"id": number}))
        yield RawMessage("topic", 0, number, 0, key, confluent(2, body))


def test_the_schemas_that_were_used_are_in_the_result(tmp_path, registry):
    decoding = decoder(tmp_path, registry)
    decoding.add(list(messages()))
    result = decoding.finish()
    assert result.events.written == 3
    hashes = {str(number): sha256(registry.schemas[number].encode()).hexdigest() for number in (1, 2)}
    assert result.writer_schemas == hashes
    assert sorted(registry.requests) == ["/schemas/ids/1", "/schemas/ids/2"]


def test_a_registry_that_refuses_stops_the_decode_instead_of_filling_the_quarantine(tmp_path, registry):
    registry.basic("reader", "right")
    with pytest.raises(AuthenticationError):
        decoder(tmp_path, registry, login="reader", password="wrong").add(list(messages()))


def test_a_schema_that_is_not_there_puts_its_rows_into_quarantine(tmp_path, registry):
    del registry.schemas[2]
    decoding = decoder(tmp_path, registry)
    decoding.add(list(messages()))
    result = decoding.finish()
    assert result.quarantine_reasons == {"schema_unknown": 3}
    assert len(registry.requests) == 1


def test_an_id_that_the_registry_can_t_look_up_is_one_message_s_trouble(tmp_path, registry):
    good = list(messages())
    bad = [good[0]._replace(offset=9, value=confluent(number, good[0].value[5:])) for number in (7, 1 << 31, 5)]
    registry.schemas[5] = "x" * (9 << 20)
    registry.answers = [(404, "<html>Not Found</html>")]
    decoding = decoder(tmp_path, registry)
    decoding.add([bad[0], *good, *bad[1:]])
    result = decoding.finish()
    assert result.events.written == 3
    assert result.quarantine_reasons == {"schema_unknown": 3}
