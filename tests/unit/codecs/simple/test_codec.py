"""Simple, in both encodings: what a message says, and by which schema."""

import base64
from typing import Any

import pytest

from tests.support.simple_protocol import (
    COMMIT_TS,
    ID,
    PRIMARY_ID,
    VERSION,
    Encoding,
    Json,
    bootstrap,
    codec,
    column,
    ddl,
    index,
    message,
    number,
    row,
    table_schema,
    text,
    timestamp,
    watermark,
)
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried
from ticdc_replay.changefeed.rules import ColumnSelector, Dispatch
from ticdc_replay.changefeed.table_filter import ColumnFilter, TableFilter
from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.codecs.simple.codec import SimpleCodec
from ticdc_replay.domain.events import (
    BootstrapEvent,
    DdlEvent,
    Event,
    LargeMessage,
    Operation,
    RowEvent,
    Undecodable,
    WatermarkEvent,
)
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.versions import MissingVersion

NAME = column("name", "varchar", charset="utf8mb4", length=20)
TABLE = table_schema(ID, NAME)
OBJECT = "0b9d2f6c-0000-4000-8000-000000000001.json"

pytestmark = pytest.mark.parametrize("encoding", ["json", "avro"])


def cells(encoding: Encoding, key: int | None, name: str | None = "a") -> Json:
    return {"id": number(encoding, key), "name": text(encoding, name)}


def one(reader: SimpleCodec, value: bytes) -> Event:
    (event,) = reader.decode(message(value))
    return event


def decoded(reader: SimpleCodec, value: bytes) -> RowEvent:
    event = one(reader, value)
    assert isinstance(event, RowEvent), event
    return event


def neutral(image: Any) -> dict[str, Any]:
    columns = zip(image.shape.columns, image.values, strict=True)
    return {column.name: column.neutral((cell,))[0] for column, cell in columns}


def test_a_row_has_the_images_of_its_operation_in_the_order_of_its_table(encoding: Encoding) -> None:
    reader = codec(encoding, table_schema(NAME, ID))
    inserted = decoded(reader, row(encoding, data=cells(encoding, 1)))
    updated = decoded(reader, row(encoding, "UPDATE", data=cells(encoding, 1, None), old=cells(encoding, 1)))
    deleted = decoded(reader, row(encoding, "DELETE", old=cells(encoding, 1)))
    assert [event.operation for event in (inserted, updated, deleted)] == ["insert", "update", "delete"]
    assert (neutral(inserted.after), inserted.before) == ({"name": "a", "id": 1}, None)
    assert (neutral(updated.after), neutral(updated.before)) == ({"name": None, "id": 1}, {"name": "a", "id": 1})
    assert (deleted.after, neutral(deleted.before)) == (None, {"name": "a", "id": 1})
    assert inserted.after is not None
    assert inserted.after.shape.names == ("name", "id")
    assert inserted.after.shape.handle_key == ("id",)
    assert inserted.after.shape.definition is not None
    assert inserted[1:5] == (COMMIT_TS, "shop", "t", 7)
    assert not inserted.partial


def test_a_row_of_a_version_that_nobody_defined_is_named_with_all_that_is_known_of_it(encoding: Encoding) -> None:
    reader = codec(encoding, TABLE)
    location = f"s3://bucket/{OBJECT}"
    later = one(reader, row(encoding, data=cells(encoding, 1), version=VERSION + 1, claimCheckLocation=location))
    assert isinstance(later, Undecodable)
    assert (later.ordinal, later.reason, later.commit_ts) == (0, "schema_unknown", COMMIT_TS)
    assert (later.schema, later.table, later.reference and later.reference.object_name) == ("shop", "t", OBJECT)
    one(reader, row(encoding, data=cells(encoding, 1), table="other"))
    assert reader.missing_versions == {
        MissingVersion(TableName("shop", "t"), VERSION + 1),
        MissingVersion(TableName("shop", "other"), VERSION),
    }


def test_rows_of_a_version_that_two_tables_share_are_refused(encoding: Encoding) -> None:
    other = column("name", "enum", elements=["new", "paid"])
    reader = codec(encoding, TABLE, table_schema(ID, other), table_schema(ID, NAME, version=VERSION + 1))
    for _ in range(3):
        refused = one(reader, row(encoding, data=cells(encoding, 1), claimCheckLocation=f"s3://bucket/{OBJECT}"))
        assert isinstance(refused, Undecodable)
        assert (refused.ordinal, refused.reason, refused.commit_ts) == (0, "schema_ambiguous", COMMIT_TS)
        assert (refused.schema, refused.table, refused.reference and refused.reference.object_name) == (
            "shop", "t", OBJECT,
        )  # fmt: skip
        assert "`name` is varchar(20) in one, enum('new','paid') in another" in refused.detail
        decoded(reader, row(encoding, data=cells(encoding, 1), version=VERSION + 1))
    assert not reader.missing_versions


def test_columns_without_a_cell_are_left_out_and_cells_without_a_column_refuse_the_row(encoding: Encoding) -> None:
    virtual, hidden = column("v", "int", length=11), column("_V$_expr_0", "bigint", length=20)
    reader = codec(encoding, table_schema(ID, virtual, NAME, hidden))
    row_ = decoded(reader, row(encoding, data=cells(encoding, 1)))
    assert row_.after is not None
    assert row_.after.shape.names == ("id", "name")
    refused = one(reader, row(encoding, data=cells(encoding, 1) | {"later": number(encoding, 1)}))
    assert isinstance(refused, Undecodable)
    assert (refused.reason, refused.commit_ts) == ("schema_mismatch", COMMIT_TS)
    assert "later" in refused.detail


def test_rows_that_lack_a_column_of_their_primary_key_are_refused(encoding: Encoding) -> None:
    refused = one(codec(encoding, TABLE), row(encoding, data={"name": text(encoding, "a")}))
    assert isinstance(refused, Undecodable)
    assert (refused.reason, "id" in refused.detail) == ("schema_mismatch", True)


@pytest.mark.parametrize(
    ("indexes", "sent", "key"),
    [
        ((PRIMARY_ID, index("u", "a")), "id a b", "id"),
        ((index("PRIMARY", "b", "A", primary=True),), "id a b", "a b"),
        # TiDB takes the first unique index of NOT NULL columns for the primary key of a table without one.
        ((index("u", "id", "a"), index("v", "b"), index("primary", "id", "a", primary=True)), "id a b", "b"),
        ((index("u", "id"), index("v", "a"), index("primary", "id", primary=True)), "id a b", "id"),
        ((index("n", "nullable"), index("u", "a", "b")), "id a b nullable", "a b"),
        ((index("g", "a"), index("u", "b", "id")), "id b", "b id"),  # `a` is not sent: it is virtual
        ((index("plain", "a", unique=False),), "id a b", ""),
        ((index("expression", "_V$_e_0"),), "id a b", ""),
        ((), "id a b", ""),
    ],
)
def test_the_handle_key_is_the_one_that_ticdc_chooses(
    encoding: Encoding, indexes: tuple[Json, ...], sent: str, key: str
) -> None:
    columns = [column(name, "int", null=False, length=11) for name in ("a", "b", "_V$_e_0")]
    schema = table_schema(ID, *columns, column("nullable", "int", length=11), indexes=indexes)
    event = decoded(codec(encoding, schema), row(encoding, data={name: number(encoding, 1) for name in sent.split()}))
    assert event.after is not None
    assert event.after.shape.handle_key == tuple(key.split())


def test_bootstraps_and_ddl_bring_definitions(encoding: Encoding) -> None:
    reader = codec(encoding)
    before, after = table_schema(ID), table_schema(ID, NAME, version=VERSION + 1)
    found = one(reader, bootstrap(encoding, before))
    assert isinstance(found, BootstrapEvent)
    assert (found.schema, found.table) == ("shop", "t")
    altered = one(reader, ddl(encoding, "ALTER", "ALTER TABLE `t` ADD COLUMN `name` VARCHAR(20)", after, before))
    assert isinstance(altered, DdlEvent)
    assert (altered.schema, altered.table, altered.type, altered.commit_ts) == ("shop", "t", "ALTER", COMMIT_TS)
    assert [definition.valid_from for definition in altered.definitions] == [VERSION, VERSION + 1]
    assert altered.definitions[0] == found.definition


def test_ddl_without_table_schema_is_about_the_database_that_its_text_names(encoding: Encoding) -> None:
    reader = codec(encoding)
    created = one(reader, ddl(encoding, "QUERY", "CREATE DATABASE IF NOT EXISTS `dev-db 2.x`"))
    dropped = one(reader, ddl(encoding, "QUERY", "DROP TABLE `a`.`b`"))
    view = table_schema(column("c", "unspecified"), indexes=())
    viewed = one(reader, ddl(encoding, "QUERY", "CREATE VIEW `t` AS SELECT 1", view))
    assert isinstance(created, DdlEvent)
    assert isinstance(dropped, DdlEvent)
    assert isinstance(viewed, DdlEvent)
    assert (created.schema, created.table, created.definitions) == ("dev-db 2.x", "", ())
    assert (dropped.schema, dropped.table) == ("", "")
    assert (viewed.schema, viewed.table, viewed.definitions) == ("shop", "t", ())


def test_messages_are_told_apart_without_decoding_them(encoding: Encoding) -> None:
    reader = codec(encoding, TABLE)
    values = [
        row(encoding, data=cells(encoding, 1)),
        watermark(encoding),
        bootstrap(encoding, TABLE),
        ddl(encoding, "CREATE", "CREATE TABLE `t` (`id` INT)", TABLE),
    ]
    assert [reader.is_schema_change(message(value)) for value in values] == [False, False, True, True]
    assert [reader.is_watermark(message(value)) for value in values] == [False, True, False, False]
    assert one(reader, values[1]) == WatermarkEvent(0, COMMIT_TS)


def test_copies_that_say_the_same_have_one_fingerprint(encoding: Encoding) -> None:
    reader = codec(encoding, TABLE)
    data = cells(encoding, 1)
    sent = [
        row(encoding, data=data),
        row(encoding, data=data, build_ts=1795222633158),  # Go writes the entries of a map in any order
        row(encoding, data=dict(reversed(data.items()))),
    ]
    other = row(encoding, data=cells(encoding, 1, "b"))
    for _ in range(3):  # by the general reader, and by the one made for the form
        assert len({decoded(reader, value).fingerprint for value in sent}) == 1
        assert decoded(reader, other).fingerprint != decoded(reader, sent[0]).fingerprint


def test_handle_keys_alone_are_partial_and_may_be_none_at_all(encoding: Encoding) -> None:
    reader = codec(encoding, TABLE, table_schema(NAME, table="keyless", indexes=()), large_message="handle-key-only")
    key = {"id": number(encoding, 1)}
    updated = decoded(reader, row(encoding, "UPDATE", data=key, old=key, handleKeyOnly=True))
    assert (updated.partial, updated.large) == (True, LargeMessage.HANDLE_KEY_ONLY)
    assert updated.after is not None
    assert (updated.after.shape.handle_key, neutral(updated.after), neutral(updated.before)) == (
        ("id",),
        {"id": 1},
        {"id": 1},
    )
    # JSON leaves the members out, which makes them look like DDL; Avro has empty maps.
    images: dict[str, Json] = {} if encoding == "json" else {"data": {}, "old": {}}
    keyless = decoded(reader, row(encoding, "UPDATE", table="keyless", handleKeyOnly=True, **images))
    assert (keyless.operation, keyless.partial, keyless.after and keyless.after.values) == (Operation.UPDATE, True, ())


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_a_claim_check_is_replaced_by_the_whole_row_of_its_object(
    encoding: Encoding, raw: bool, compression: str
) -> None:
    import pyarrow as pa

    def packed(value: bytes) -> bytes:
        return value if compression == "none" else pa.compress(value, "snappy", asbytes=True)

    settings = {"claim_check_raw_value": raw, "compression": compression, "large_message": "claim-check"}
    reader = codec(encoding, TABLE, **settings)
    marks = {"claimCheckLocation": f"s3://bucket/{OBJECT}", "handleKeyOnly": True}
    small = decoded(reader, packed(row(encoding, data={"id": number(encoding, 1)}, **marks)))
    assert (small.partial, small.large, small.reference and small.reference.object_name) == (
        True,
        "claim_check",
        OBJECT,
    )

    def content(value: bytes) -> bytes:
        if raw:
            return packed(value)
        return b'{"key":null,"value":"' + base64.b64encode(packed(value)) + b'"}'

    whole = reader.decode_claim_check(small, content(row(encoding, data=cells(encoding, 1))))
    assert isinstance(whole, RowEvent)
    assert (whole.partial, neutral(whole.after), whole.reference) == (False, {"id": 1, "name": "a"}, small.reference)
    wrong = reader.decode_claim_check(small, content(row(encoding, data=cells(encoding, 2))))
    broken = reader.decode_claim_check(small, b"nothing of the kind")
    assert isinstance(wrong, Undecodable)
    assert isinstance(broken, Undecodable)
    assert wrong.reason == "claim_check_mismatch"
    assert broken.reason in ("claim_check_unreadable", "bad_message", "bad_compression")


def test_timestamps_are_local_in_the_changefeeds_zone_and_utc_in_any_other(encoding: Encoding) -> None:
    reader = codec(encoding, table_schema(ID, column("ts", "timestamp", length=22, decimal=2)))

    def read(text_: str, location: str) -> Any:
        data = {"id": number(encoding, 1), "ts": timestamp(encoding, text_, location)}
        return [neutral(decoded(reader, row(encoding, data=data)).after)["ts"] for _ in range(3)][-1]

    assert read("2024-07-01 12:00:00.50", "Asia/Shanghai") == "2024-07-01 12:00:00.50"
    assert read("2024-07-01 12:00:00.50", "Local") == "2024-07-01 12:00:00.50"
    assert read("2024-07-01 12:00:00.50", "Europe/Berlin") == "2024-07-01 10:00:00.50Z"
    assert read("0000-00-00 00:00:00.00", "Europe/Berlin") == "0000-00-00 00:00:00.00"
    # Clocks showed it twice: no moment, and no reason to lose the row.
    assert read("2024-10-27 02:30:00.00", "Europe/Berlin") == "2024-10-27 02:30:00.00 Europe/Berlin"
    unknown = {"id": number(encoding, 1), "ts": timestamp(encoding, "2024-07-01 12:00:00.50", "Mars/Olympus")}
    refused = one(reader, row(encoding, data=unknown))
    assert isinstance(refused, Undecodable)
    assert refused.reason == "schema_mismatch"


def test_what_messages_carry_follows_the_changefeed(encoding: Encoding) -> None:
    changefeed = Changefeed(protocol="simple", topic="t", timezone="UTC", encoding_format=encoding)
    alone = Changefeed(protocol="simple", topic="t", timezone="UTC", send_bootstrap_to_all_partition=False)
    assert carried_by(changefeed) == Carried("rows", True, "every partition", old_keys=True)
    assert carried_by(alone) == Carried("rows", True, "first partition", old_keys=True)


def test_a_primary_key_of_which_a_selector_drops_a_column_identifies_no_row(encoding: Encoding) -> None:
    selector = ColumnSelector(TableFilter(("*.*",)), ColumnFilter(("*", "!id")))
    value = row(encoding, data={"name": text(encoding, "a")})
    refused = one(codec(encoding, TABLE), value)
    assert isinstance(refused, Undecodable)
    assert refused.reason == "schema_mismatch"
    dropping = codec(encoding, TABLE, dispatch=Dispatch(selectors=(selector,)))
    for data, key in (({"name": text(encoding, "a")}, ()), (cells(encoding, 7), ("id",))):
        event = one(dropping, row(encoding, data=data))
        assert isinstance(event, RowEvent)
        assert event.after is not None
        assert event.after.shape.handle_key == key
