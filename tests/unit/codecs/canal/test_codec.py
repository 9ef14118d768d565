"""What each form of a Canal-JSON message means. The captures show the ordinary ones; these are the rest."""

import json
from typing import Any

import lz4.frame
import pyarrow as pa
import pytest

from tests.support.canal_json import LOCATION, TS, ddl, message, row, watermark
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried
from ticdc_replay.changefeed.rules import ColumnSelector, Dispatch
from ticdc_replay.changefeed.table_filter import ColumnFilter, TableFilter
from ticdc_replay.codecs.canal.codec import CanalCodec
from ticdc_replay.codecs.canonical import line
from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.domain.events import (
    DdlEvent,
    Event,
    Image,
    LargeMessage,
    Operation,
    RowEvent,
    Undecodable,
    WatermarkEvent,
)
from ticdc_replay.domain.tso import from_ms, physical_ms
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import SchemaLookup

NO_HISTORY = SchemaHistory()
MS = physical_ms(TS)


def codec(history: SchemaHistory = NO_HISTORY, **options: Any) -> CanalCodec:
    options = {"enable_tidb_extension": True, **options}
    return CanalCodec(
        Changefeed(protocol="canal-json", topic="t", timezone="UTC", **options), 1 << 20, SchemaLookup(history)
    )


def decode_one(value: bytes, history: SchemaHistory = NO_HISTORY, **options: Any) -> Event:
    """The event of *value*; decoded thrice, as the last time takes the fast way."""
    reader = codec(history, **options)
    answers = [reader.decode(message(value)) for _ in range(3)]
    assert shown(answers[0]) == shown(answers[1]) == shown(answers[2])
    (event,) = answers[2]
    return event


def shown(events: list[Event]) -> list[Any]:
    return [
        event
        if isinstance(event, Undecodable)
        else (line(message(b""), event), event.fingerprint, event.large, key(event))
        if isinstance(event, RowEvent)
        else event
        for event in events
    ]


def decoded_row(value: bytes, history: SchemaHistory = NO_HISTORY, **options: Any) -> RowEvent:
    event = decode_one(value, history, **options)
    assert isinstance(event, RowEvent), event
    return event


def cells(image: Image | None) -> dict[str, Any] | None:
    if image is None:
        return None
    columns = zip(image.shape.columns, image.values, strict=True)
    return {column.name: column.neutral([value])[0] for column, value in columns}


def key(event: RowEvent) -> tuple[str, ...]:
    image = event.after or event.before
    assert image is not None
    return image.shape.handle_key


def history_of(*ddls: tuple[str, int]) -> SchemaHistory:
    return SchemaHistory().with_ddls(DdlEvent(0, ts, "s", "t", query, "CREATE") for query, ts in ddls)


class TestRows:
    def test_an_insert_has_a_new_image(self) -> None:
        event = decoded_row(row(data={"id": "1", "v": None}))
        assert (event.operation, cells(event.after), event.before) == (Operation.INSERT, {"id": 1, "v": None}, None)
        assert (event.ordinal, event.commit_ts, event.schema, event.table, event.partial) == (0, TS, "s", "t", False)

    def test_an_update_has_both_images(self) -> None:
        event = decoded_row(row("UPDATE", data={"id": "2", "v": "y"}, old={"id": "1", "v": None}))
        assert (event.operation, cells(event.after)) == (Operation.UPDATE, {"id": 2, "v": "y"})
        assert cells(event.before) == {"id": 1, "v": None}

    def test_the_data_of_a_delete_is_the_old_image(self) -> None:
        event = decoded_row(row("DELETE"))
        assert (event.operation, event.after, cells(event.before)) == (Operation.DELETE, None, {"id": 1, "v": "x"})

    def test_the_order_of_members_means_nothing(self) -> None:
        document = json.loads(row("UPDATE", old={"id": "1", "v": "y"}))
        mixed = {name: document[name] for name in sorted(document)}
        mixed["mysqlType"] = dict(reversed(document["mysqlType"].items()))
        event = decoded_row(json.dumps(mixed, indent=1).encode())
        assert (cells(event.after), cells(event.before)) == ({"id": 1, "v": "x"}, {"id": 1, "v": "y"})

    def test_members_that_later_releases_may_add_are_passed_over(self) -> None:
        document = json.loads(row(newer="x")) | {"gtid": "", "x": {"y": [1, None]}}
        assert cells(decoded_row(json.dumps(document, separators=(",", ":")).encode()).after) == {"id": 1, "v": "x"}

    def test_text_that_looks_like_members_is_text(self) -> None:
        texts = ['":"', '{"a":null,"b":"c"}', ":", '\\":null', ":null", ':"x', "\\", '"', ',"old":null,"data":[{', "}]"]
        for text in texts:
            event = decoded_row(row("UPDATE", data={"id": "1", "v": text}, old={"id": "1", "v": text[::-1]}))
            assert (cells(event.after), cells(event.before)) == ({"id": 1, "v": text}, {"id": 1, "v": text[::-1]})

    @pytest.mark.parametrize("name", ["old", "data", "_tidb", "es", 'q"', "b\\", "a\nb", "é", ":", "commitTs", "c0"])
    def test_columns_may_have_any_name(self, name: str) -> None:
        event = decoded_row(row("UPDATE", data={"id": "1", name: None}, old={"id": "1", name: "x"}))
        assert (cells(event.after), cells(event.before)) == ({"id": 1, name: None}, {"id": 1, name: "x"})

    def test_a_change_of_the_schema_is_noticed(self) -> None:
        reader = codec()
        for value in [row()] * 3 + [row(types={"v": "varbinary"})] * 3 + [row(data={"id": "1"})] * 3 + [row()]:
            (event,) = reader.decode(message(value))
            assert isinstance(event, RowEvent)
            wanted = json.loads(value)
            assert event.after is not None
            assert [str(column.type) for column in event.after.shape.columns] == [*wanted["mysqlType"].values()]
            assert event.after.values == tuple(wanted["data"][0].values())


class TestUpdatedColumns:
    @pytest.mark.parametrize("option", ["only_output_updated_columns", "content_compatible"])
    def test_what_old_lacks_did_not_change(self, option: str) -> None:
        update = row("UPDATE", data={"id": "1", "v": "new", "w": None}, old={"v": None})
        assert cells(decoded_row(update, NO_HISTORY, **{option: True}).before) == {"id": 1, "v": None, "w": None}

    def test_an_update_of_nothing_visible(self) -> None:
        event = decoded_row(row("UPDATE", old={}), only_output_updated_columns=True)
        assert (event.operation, cells(event.before)) == (Operation.UPDATE, cells(event.after))

    def test_an_incomplete_old_image_is_not_filled_without_the_option(self) -> None:
        event = decode_one(row("UPDATE", old={"v": "y"}))
        assert isinstance(event, Undecodable)
        assert (event.reason, event.commit_ts, event.schema, event.table) == ("incomplete_old_image", TS, "s", "t")
        assert "old lacks 'id'" in event.detail

    def test_full_types_are_declared(self) -> None:
        types = {"id": "int(10) unsigned", "v": "enum('a','it''s')", "w": "datetime"}
        data: dict[str, str | None] = {"id": "1", "v": "2", "w": "2024-01-01 00:00:00"}
        after = decoded_row(row(data=data, types=types), content_compatible=True).after
        assert after is not None
        assert [str(column.type) for column in after.shape.columns] == ["int unsigned", "enum('a','it''s')", "datetime"]
        assert all(column.type.declared for column in after.shape.columns)


class TestHandleKey:
    """Only the primary key is named; which unique key identifies a row is known from elsewhere, or not at all."""

    UNIQUE = "CREATE TABLE t (a INT, B VARCHAR(9) NOT NULL, c INT NOT NULL, UNIQUE k (b, c))"
    DATA = {"a": "1", "B": "x", "c": "2"}

    def test_the_primary_key_identifies_a_row(self) -> None:
        assert key(decoded_row(row(data=self.DATA, pk=["c", "a"]))) == ("a", "c")

    def test_without_primary_key_the_history_tells(self) -> None:
        assert key(decoded_row(row(data=self.DATA, pk=[]), history_of((self.UNIQUE, TS - 1)))) == ("B", "c")

    def test_the_history_is_asked_for_each_row(self) -> None:
        """A definition of commitTs T holds after T."""
        reader = codec(history_of((self.UNIQUE, TS), ("ALTER TABLE t DROP INDEX k", TS + 2)))
        keys = []
        for ts in [TS, TS, TS, TS + 1, TS + 2, TS + 3, TS + 1, TS]:
            (event,) = reader.decode(message(row(data=self.DATA, pk=[], ts=ts)))
            assert isinstance(event, RowEvent)
            keys.append(key(event))
        assert keys == [(), (), (), ("B", "c"), ("B", "c"), (), ("B", "c"), ()]

    @pytest.mark.parametrize("pk", [[], None])
    def test_a_row_without_known_key_has_no_identity(self, pk: list[str] | None) -> None:
        assert key(decoded_row(row(data=self.DATA, pk=pk))) == ()

    def test_a_primary_key_that_is_not_all_there_identifies_nothing(self) -> None:
        assert key(decoded_row(row(data=self.DATA, pk=["a", "z"]))) == ()

    def test_what_a_column_selector_left_of_a_primary_key_identifies_nothing(self) -> None:
        """Classic TiCDC leaves dropped columns out of pkNames too."""
        history = history_of(("CREATE TABLE t (a INT, B VARCHAR(9), c INT, z INT, PRIMARY KEY (a, z))", TS - 1))
        selector = ColumnSelector(TableFilter(("*.*",)), ColumnFilter(("*", "!z")))
        dispatch = Dispatch(selectors=(selector,))
        assert key(decoded_row(row(data=self.DATA, pk=["a"]), history, dispatch=dispatch)) == ()
        assert key(decoded_row(row(data=self.DATA, pk=["a"]), dispatch=dispatch)) == ("a",)

    @pytest.mark.parametrize(("es", "known"), [(MS + 1, True), (MS, False), (MS - 1, False)])
    def test_without_commit_ts_the_history_must_say_the_same_for_the_whole_millisecond(
        self, es: int, known: bool
    ) -> None:
        value = row(data=self.DATA, pk=[], ts=None, es=es)
        history = history_of((self.UNIQUE, from_ms(MS)))
        assert key(decoded_row(value, history, enable_tidb_extension=False)) == (("B", "c") if known else ())


class TestTypesWithoutCommitTs:
    """A row without commitTs has no place in the history but its millisecond, so the codec itself looks there."""

    CREATED = "CREATE TABLE t (ID INT PRIMARY KEY, d DECIMAL(9,3), v ENUM('a','b'), x BIGINT)"

    def types_at(self, es: int, *, extension: bool = False) -> list[str]:
        data = {"id": "1", "d": "1.000", "v": "2", "x": "5"}
        types = {"d": "decimal", "v": "enum", "x": "int"}
        value = row(data=data, types=types, ts=from_ms(es) if extension else None, es=es)
        event = decoded_row(value, history_of((self.CREATED, from_ms(MS))), enable_tidb_extension=extension)
        assert event.after is not None
        assert key(event) == ("id",)
        return [str(column.type) for column in event.after.shape.columns]

    def test_declared_types_count_where_the_wire_agrees(self) -> None:
        assert self.types_at(MS + 1) == ["int", "decimal(9,3)", "enum('a','b')", "int"]

    @pytest.mark.parametrize("es", [MS, MS - 1])
    def test_nothing_is_declared_where_the_history_is_not_certain(self, es: int) -> None:
        assert self.types_at(es) == ["int", "decimal", "enum", "int"]

    def test_with_commit_ts_they_are_left_to_the_resolver(self) -> None:
        assert self.types_at(MS + 1, extension=True) == ["int", "decimal", "enum", "int"]


class TestPartialRows:
    def test_a_claim_check(self) -> None:
        event = decoded_row(row(data={"id": "1"}, claimCheckLocation=LOCATION))
        assert (event.partial, event.large) == (True, LargeMessage.CLAIM_CHECK)
        assert event.reference is not None
        assert (event.reference.location, event.reference.object_name) == (LOCATION, LOCATION.rpartition("/")[2])

    def test_a_handle_key_alone(self) -> None:
        event = decoded_row(row("UPDATE", data={"id": "2"}, old={"id": "1"}, onlyHandleKey=True))
        assert (event.partial, event.large, event.reference) == (True, LargeMessage.HANDLE_KEY_ONLY, None)
        assert (cells(event.after), cells(event.before), key(event)) == ({"id": 2}, {"id": 1}, ("id",))

    def test_all_columns_of_a_reduced_row_are_its_handle_key(self) -> None:
        data: dict[str, str | None] = {"b": "x", "a": "1"}
        assert key(decoded_row(row("DELETE", data=data, pk=[], onlyHandleKey=True))) == ("a", "b")

    def test_a_reduced_row_of_a_table_without_key_is_empty(self) -> None:
        event = decoded_row(row("DELETE", data={}, pk=[], onlyHandleKey=True))
        assert (event.partial, cells(event.before), key(event)) == (True, {}, ())

    def test_an_old_image_that_was_reduced_and_did_not_change(self) -> None:
        update = row("UPDATE", data={"id": "2"}, old={}, claimCheckLocation=LOCATION)
        assert cells(decoded_row(update, only_output_updated_columns=True).before) == {"id": 2}

    def test_a_delete_of_keys_alone_is_partial_when_the_changefeed_sends_such(self) -> None:
        option: dict[str, Any] = {"delete_only_output_handle_key_columns": True}
        assert decoded_row(row("DELETE", data={"id": "1"}), **option).partial
        assert decoded_row(row("DELETE", data={"a": "1"}, pk=[]), **option).partial
        assert decoded_row(row("DELETE", data={}, pk=[]), **option).partial
        assert not decoded_row(row("DELETE"), **option).partial
        assert not decoded_row(row(data={"id": "1"}), **option).partial
        assert not decoded_row(row("DELETE", data={"id": "1"})).partial


class TestFingerprints:
    def test_copies_differ_in_the_time_of_writing_and_the_order_of_types(self) -> None:
        document = json.loads(row())
        document["ts"] += 5
        document["mysqlType"] = dict(reversed(document["mysqlType"].items()))
        copy = json.dumps(document, separators=(",", ":")).encode()
        assert decoded_row(copy).fingerprint == decoded_row(row()).fingerprint

    def test_what_says_something_else_differs(self) -> None:
        values = [
            row(), row("DELETE"), row(table="u"), row(schema="u"), row(ts=TS + 1), row(data={"id": "1", "v": None}),
            row("UPDATE", old={"id": "1", "v": "x"}), row("UPDATE", old={"id": "1", "v": "y"}),
            row("UPDATE", data={"id": "1", "v": "y"}, old={"id": "1", "v": "x"}),
        ]  # fmt: skip
        without = [row(ts=None), row(ts=None, es=MS + 1)]
        prints = [decoded_row(value).fingerprint for value in values]
        prints += [decoded_row(value, enable_tidb_extension=False).fingerprint for value in without]
        assert len(set(prints)) == len(prints)

    def test_no_order_of_members_hides_a_difference(self) -> None:
        def data_first(value: bytes) -> bytes:
            document = json.loads(value)
            return json.dumps({"data": document.pop("data"), **document}, separators=(",", ":")).encode()

        one = data_first(row("UPDATE", data={"id": "1", "v": "y"}, old={"id": "1", "v": "x"}))
        two = data_first(row("UPDATE", data={"id": "1", "v": "z"}, old={"id": "1", "v": "x"}))
        assert decoded_row(one).fingerprint != decoded_row(two).fingerprint


class TestOtherEvents:
    def test_a_ddl(self) -> None:
        assert decode_one(ddl("CREATE TABLE `t` (`id` INT)")) == DdlEvent(
            0, TS, "s", "t", "CREATE TABLE `t` (`id` INT)", "CREATE"
        )

    def test_a_ddl_of_a_database(self) -> None:
        event = decode_one(ddl("DROP DATABASE `s`", type_="QUERY", table=""))
        assert event == DdlEvent(0, TS, "s", "", "DROP DATABASE `s`", "QUERY")

    def test_the_commit_ts_of_a_ddl_is_rounded_without_the_extension(self) -> None:
        event = decode_one(ddl("DROP TABLE `t`", ts=None), enable_tidb_extension=False)
        assert isinstance(event, DdlEvent)
        assert (event.commit_ts, event.rounded) == (from_ms(MS), True)
        assert json.loads(line(message(b""), event))["commit_ts"] is None

    def test_a_watermark(self) -> None:
        assert decode_one(watermark(TS)) == WatermarkEvent(0, TS)

    def test_rows_have_no_commit_ts_without_the_extension(self) -> None:
        assert decoded_row(row(ts=None), enable_tidb_extension=False).commit_ts is None

    @pytest.mark.parametrize("between", [b"", b"\n", b"\r\n", b" "])
    def test_several_documents_in_one_value(self, between: bytes) -> None:
        reader = codec()
        for _ in range(3):
            events = reader.decode(
                message(between.join([row(), ddl("DROP TABLE `t`"), watermark(TS), row("DELETE"), b""]))
            )
            assert [type(event) for event in events] == [RowEvent, DdlEvent, WatermarkEvent, RowEvent]
            assert [event.ordinal for event in events] == [0, 1, 2, 3]


class TestCompression:
    @pytest.mark.parametrize(
        ("compression", "compress"),
        [("snappy", lambda value: pa.compress(value, "snappy", asbytes=True)), ("lz4", lz4.frame.compress)],
    )
    def test_the_whole_value_is_compressed(self, compression: str, compress: Any) -> None:
        reader = codec(compression=compression)
        for value, kind in ((row(), RowEvent), (ddl("DROP TABLE `t`"), DdlEvent), (watermark(TS), WatermarkEvent)):
            packed = message(compress(value))
            (event,) = reader.decode(packed)
            assert isinstance(event, kind)
            assert reader.is_schema_change(packed) is (kind is DdlEvent)
            assert reader.is_watermark(packed) is (kind is WatermarkEvent)


@pytest.mark.parametrize(
    ("value", "schema_change", "is_watermark"),
    [
        (row(), False, False),
        (row(data={"id": "1", "v": '"isDdl":true,"type":"TIDB_WATERMARK"'}), False, False),
        (ddl("DROP TABLE `t`"), True, False),
        (watermark(TS), False, True),
        (row() + b"\n" + ddl("DROP TABLE `t`") + watermark(TS), True, True),
        (ddl("DROP TABLE `t`").replace(b'"isDdl":true', b'"is\\u0044dl" : true'), True, True),
        (watermark(TS).replace(b"TIDB_", b"TIDB\\u005f"), True, True),
        (None, False, False),
        (b"", False, False),
    ],
)
def test_what_a_message_may_hold_is_seen_without_decoding_it(
    value: bytes | None, schema_change: bool, is_watermark: bool
) -> None:
    assert codec().is_schema_change(message(value)) is schema_change
    assert codec().is_watermark(message(value)) is is_watermark


def test_what_messages_carry_depends_on_the_extension() -> None:
    def carries(extension: bool) -> Carried:
        return carried_by(Changefeed(protocol="canal-json", topic="t", timezone="UTC", enable_tidb_extension=extension))

    assert carries(True) == Carried("rows", watermarks=True, ddl="first partition", old_keys=True)
    assert carries(False) == Carried("nothing", watermarks=False, ddl="first partition", old_keys=True)
