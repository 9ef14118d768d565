"""Any value in any place of a message: what is read of it fits into files and into the state store, in either database."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import canal_json, debezium_messages, open_protocol, simple_protocol
from tests.support.decoded_splits import LIMITS
from tests.support.topics import identity
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.rules import Dispatch, DispatchRule
from ticdc_replay.codecs.base import DECODER_FAILED
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import schemas_in
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.state import open_state
from ticdc_replay.state.ddl import KnownDdl

LONG = "n" * 9_000
NUMBERS = (-1, 0, 1 << 31, 1 << 63, 1 << 64, 10**400, 1.5, -0.0, 1e300)
VALUES = (
    None,
    True,
    *NUMBERS,
    "",
    "\0",
    "\ud800",
    "\uffff0000",
    LONG,
    "9" * 400,
    "2026-13-45",
    [],
    [None],
    {},
    {"": ""},
)
NAMES = ("", "\0", "\ud800", LONG, "_tidb", "commitTs", "id")
EVER = Window(1, (1 << 63) - 1)


def variants(document: Any) -> Iterator[Any]:
    """*document* with one value, or one name of a member, replaced by each of the hostile ones."""
    if isinstance(document, dict):
        for name, value in document.items():
            for other in VALUES:
                yield document | {name: other}
            for other in NAMES:
                yield {other if each == name else each: kept for each, kept in document.items()}
            for changed in variants(value):
                yield document | {name: changed}
    elif isinstance(document, list):
        for at, value in enumerate(document):
            for changed in (*VALUES, *variants(value)):
                yield [*document[:at], changed, *document[at + 1 :]]


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def open_messages() -> Iterator[RawMessage]:
    row = open_protocol.row(7, new=open_protocol.columns(1, "x"), old=open_protocol.columns(1, "y"), ptn=5)
    ddl = open_protocol.ddl(7, "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(10))")
    for key, value in (row, ddl, (open_protocol.resolved(9)[0], b"{}")):
        yield open_protocol.message([(key, value)], 0)
        for changed in variants(json.loads(key)):
            yield open_protocol.message([(dump(changed), value)], 0)
        for changed in variants(json.loads(value)):
            yield open_protocol.message([(key, dump(changed))], 0)


def canal_messages() -> Iterator[RawMessage]:
    image: dict[str, str | None] = {"id": "1", "v": "x"}
    for document in (
        canal_json.row("UPDATE", data=image, old=image),
        canal_json.ddl("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(10))"),
        canal_json.watermark(canal_json.TS),
    ):
        yield canal_json.message(document)
        for changed in variants(json.loads(document)):
            yield canal_json.message(dump(changed))


COLUMNS = simple_protocol.ID, simple_protocol.column("v", "varchar", length=10)
SCHEMA = simple_protocol.table_schema(*COLUMNS)
OTHER_SCHEMA = simple_protocol.table_schema(*COLUMNS, version=simple_protocol.VERSION + 1)
"""Not of the row: a version with several definitions types no row."""


def simple_messages() -> Iterator[RawMessage]:
    checksum = {"version": 1, "corrupted": False, "current": 1, "previous": 2}
    yield simple_protocol.message(simple_protocol.bootstrap("json", SCHEMA))
    for document in (
        simple_protocol.row("json", "UPDATE", data={"id": "1", "v": "x"}, old={"id": "1", "v": "y"}, checksum=checksum),
        simple_protocol.bootstrap("json", OTHER_SCHEMA),
        simple_protocol.ddl("json", "ALTER", "ALTER TABLE t ADD COLUMN v VARCHAR(10)", OTHER_SCHEMA, OTHER_SCHEMA),
        simple_protocol.watermark("json"),
    ):
        yield simple_protocol.message(document)
        for changed in variants(json.loads(document)):
            yield simple_protocol.message(dump(changed))


def debezium() -> Iterator[RawMessage]:
    fields = [debezium_messages.ID, debezium_messages.field("v", "string")]
    image = {"id": 1, "v": "x"}
    for sent in (
        debezium_messages.row("u", before=image, after=image, fields=fields),
        debezium_messages.ddl("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(10))"),
        debezium_messages.watermark(),
    ):
        yield sent
        assert sent.value is not None
        for changed in variants(json.loads(sent.value)):
            yield sent._replace(value=dump(changed))
        for changed in variants(json.loads(sent.key or b"{}")):
            yield sent._replace(key=dump(changed))
    moment = debezium_messages.field(
        "id", "string", "io.debezium.time.ZonedTimestamp", optional=False, tidb_type="timestamp"
    )
    for text in ("2026-02-31T00:00:00Z", "9999-12-31T23:59:59Z"):  # in key and value: it tells the row's partition
        yield debezium_messages.row(after={"id": text}, fields=[moment])


PROTOCOLS: dict[str, Callable[[], Iterator[RawMessage]]] = {
    "open-protocol": open_messages,
    "canal-json": canal_messages,
    "simple": simple_messages,
    "debezium": debezium,
}


@pytest.mark.slow
@pytest.mark.parametrize("natively", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def test_any_value_in_any_place(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, protocol: str, natively: bool
) -> None:
    changefeed = Changefeed(
        protocol=protocol,
        topic="topic",
        timezone="UTC",
        enable_tidb_extension=True,
        dispatch=Dispatch((DispatchRule(partition="index-value"),)),
    )
    sent = [message._replace(offset=at, topic="topic") for at, message in enumerate(PROTOCOLS[protocol]())]
    sent = [each for message in sent for each in [message] * 2]  # a form is learnt when it is met again
    found = schemas_in([sent], codec_for(changefeed, 1 << 24))
    url = f"sqlite:///{tmp_path}/state.db" if database == "sqlite" else request.getfixturevalue("make_database")()
    state = open_state(url)
    known = [KnownDdl(identity(), event._replace(definitions=(), ordinal=0)) for event in found.ddl]
    state.ddl.record("shop", known)
    assert {each.event for each in state.ddl.all("shop")} <= {each.event for each in known}
    state.table_versions.record(
        "shop", list({(each.name, each.valid_from): each for each in found.definitions}.values())
    )
    assert set(state.table_versions.all("shop")) <= set(found.definitions)
    state.close()
    history = SchemaHistory().with_ddls(found.ddl).with_versions(found.definitions)
    assert canonical.encode([found.ddl, found.definitions, found.unread])

    job = DecodeJob(
        library_version="test",
        pipeline="p",
        artifacts=tmp_path.as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest="manifests/m.json",
        input_hash="0" * 64,
        changefeed=changefeed,
        tables=("*.*",),
        limits=LIMITS,
    )
    split = Split(0, (OffsetRange("topic", 0, 0, len(sent)),), partitions={"topic": 3}, sampled=1)
    decoder = SplitDecoder(
        split, SplitContext(Attempt("attempt"), job, EVER, history, Connections()), natively=natively
    )
    decoder.add(sent)
    result = decoder.finish()
    assert canonical.encode(result)
    assert result.events.written
    assert result.events.placed
    assert result.elsewhere
    assert result.messages.quarantined + result.events.undecodable
    assert DECODER_FAILED not in result.quarantine_reasons
