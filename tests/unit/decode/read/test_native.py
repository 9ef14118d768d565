"""The native extension and the codecs in Python write the same changelog, byte for byte."""

import logging
from collections.abc import Callable
from functools import partial
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutations import MUTATIONS
from tests.fuzz.oracle import Subject
from tests.support import canal_json, open_protocol
from tests.support.capture_sets import COMMITTED, CaptureSets, Committed
from tests.support.examples import examples
from tests.support.native_decoding import EVER, LIMITS, Written, both
from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import lookup_in
from ticdc_replay.decode.read import split
from ticdc_replay.domain import tso
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.extension import INTERFACE, native_extension
from ticdc_replay.schemas.history import SchemaHistory

pytest.importorskip("ticdc_replay_native", reason="the native extension is not built here (no cargo)")

READABLE = tuple(
    capture
    for capture in COMMITTED
    if (
        capture.archive == "open"
        or (capture.archive == "canal-json" and capture.variant not in ("canal-json", "canal-json-rowkey"))
    )
    and not capture.variant.endswith(("lz4", "snappy", "claim-check"))
)
TS = canal_json.TS


@pytest.mark.parametrize("capture", READABLE, ids=str)
def test_captures_give_the_same_files(write: Callable[..., Written], captures: CaptureSets, capture: Committed) -> None:
    found = Capture(captures.of(capture))
    history = lookup_in(found, LIMITS.decompressed_max_bytes).history
    messages = list(found.messages())
    taken = both(write, messages, found.changefeed(), history).taken
    assert taken > 10 or "handle-key-only" in capture.variant or "large" in capture.variant


def test_columns_without_flags_are_read_as_the_definition_of_their_time_says(write: Callable[..., Written]) -> None:
    added = "ALTER TABLE t ADD COLUMN b varbinary(20) NOT NULL, ADD COLUMN u bigint unsigned"
    again = "ALTER TABLE t DROP COLUMN b, ADD COLUMN b varchar(20) NOT NULL"
    history = SchemaHistory().with_ddls([
        DdlEvent(0, 1, "s", "t", "CREATE TABLE t (id bigint PRIMARY KEY) PARTITION BY HASH(id) PARTITIONS 3", 3),
        DdlEvent(0, 5, "s", "t", added, 5),
        DdlEvent(0, 100, "s", "t", again, 61),
    ])  # fmt: skip
    messages = [
        open_protocol.message(
            [
                open_protocol.row(
                    at,
                    new={
                        "id": {"t": 8, "h": True, "f": 11, "v": at},
                        "b": {"t": 15, "f": 0, "v": "a\\x00"},
                        "u": {"t": 8, "f": 0, "v": (1 << 64) - at},
                    },
                    ptn=180,
                )
            ],
            at,
        )
        for at in (*range(10, 30), *range(110, 130))
    ]
    changefeed = Changefeed(protocol="open-protocol", topic="topic", timezone="UTC")
    written = both(write, messages, changefeed, history)
    assert (written.taken, written.result.quarantine_reasons) == (40, {})


@pytest.mark.parametrize("archive", ["canal-json", "open"])
def test_a_window_and_a_table_filter_leave_the_same_rows_out(
    write: Callable[..., Written], captures: CaptureSets, archive: str
) -> None:
    variant = {"canal-json": "canal-json-ext", "open": "open-default"}[archive]
    found = Capture(captures.of(Committed(archive, "classic", variant)))
    history = lookup_in(found, LIMITS.decompressed_max_bytes).history
    middle = sorted(epoch.after for epoch in history.epochs)[len(history.epochs) // 2]
    for window in (Window(1, middle), Window(middle, EVER.to_ts)):
        assert (
            both(write, list(found.messages()), found.changefeed(), history, window=window, tables=("*.*t*",)).taken
            > 10
        )


@pytest.mark.parametrize(
    "capture",
    [Committed("canal-json", "classic", "canal-json-ext"), Committed("open", "new", "open-updated-columns")],
    ids=str,
)
def test_changed_messages_give_the_same_rows_and_quarantine(
    write: Callable[..., Written], captures: CaptureSets, capture: Committed
) -> None:
    subject = Subject(Capture(captures.of(capture)))
    chance = Random(2026)
    kinds = [change for change, _ in MUTATIONS.values()]
    messages = []
    while len(messages) < 1100:
        message = chance.choice(subject.messages)
        changed = chance.choice(kinds)(chance, subject, message)
        if changed is not None:
            messages.append(changed.message._replace(topic="topic", partition=0, offset=len(messages)))
    assert both(write, messages, subject.changefeed, subject.lookup.history).taken > 5


TYPES = {
    "tinyint": ("tinyint", ["-128", "127", "-129", "128", "0", "-0", "+1", "01", "", "1.0", "1e2"]),
    "tinyint unsigned": ("tinyint unsigned", ["0", "255", "256", "-1"]),
    "mediumint": ("mediumint", ["-8388608", "8388607", "8388608", "-8388609"]),
    "int": ("int", ["-2147483648", "2147483647", "2147483648"]),
    "bigint": ("bigint", ["-9223372036854775808", "9223372036854775807", "9223372036854775808", "33", "-33", "-129"]),
    "bigint unsigned": ("bigint unsigned", ["18446744073709551615", "18446744073709551616", "0"]),
    "float": ("float", ["3.4028235e38", "0.1", "-0", "-0.0", "0", "16777217", "1e-45", "34028235" + "0" * 31]),
    "double": ("double", ["0.1", "5", "-1.5", "1e308", "123456789012345678", "-0.0", "9007199254740993", "0.30000000000000004"]),
    "decimal": ("decimal(10,2)", ["1.5", "12345678.90", "123456789.00", "1.234", "-0.00", "0", "00.10", ".5", "-1"]),
    "bit": ("bit(3)", ["7", "8", "0"]),
    "year": ("year", ["0", "1901", "2155", "2156", "0000"]),
    "date": ("date", ["0001-01-01", "9999-12-31", "0000-00-00", "2024-02-29", "2023-02-29", "2024-00-01", "1969-12-31"]),
    "time": ("time(6)", ["-838:59:59.000000", "00:00:00", "24:00:00", "1:00:00", "12:60:00", "-00:00:01", "12:00:00.1234567"]),
    "datetime": ("datetime(3)", ["0001-01-01 00:00:00", "2024-01-01 10:00:00.123", "2024-01-01 10:00:00.1234",
                                 "0000-00-00 00:00:00", "2024-01-01 24:00:00", "2024-01-01T10:00:00"]),
    "timestamp": ("timestamp(6)", ["2024-03-31 02:30:00", "2024-10-27 02:30:00.000001", "1970-01-01 01:00:01",
                                   "2024-06-01 00:00:00.999999", "2024-06-01 00:00:00Z"]),
    "varchar": ("varchar(99)", ["", "é\U0001f600", "a\\b\"c\n\u0000", "\ufffd", "null", "<&>\u2028", "x" * 300]),
    "varbinary": ("varbinary(99)", ["", "ÿ\u0080", "a\\x00", "Ā", "\u0000\u007f", "\\xff\\u00e9\\\"", "\\q", "\\"]),
    "enum": ("enum('a','b')", ["1", "2", "0", "3"]),
    "set": ("set('a','b')", ["0", "1", "3", "4"]),
    "json": ("json", ['{"a": [1, "é"]}', "null"]),
}  # fmt: skip
"""By wire type: the declared type, and values at its borders."""
OPEN_CODES = {
    "tinyint": (1, 65), "tinyint unsigned": (1, 193), "mediumint": (9, 65), "int": (3, 65), "bigint": (8, 65),
    "bigint unsigned": (8, 193), "float": (4, 65), "double": (5, 65), "decimal": (246, 65), "bit": (16, 193), "year": (13, 193),
    "date": (10, 65), "time": (11, 65), "datetime": (12, 65), "timestamp": (7, 65), "varchar": (15, 64), "varbinary": (15, 65),
    "enum": (247, 64), "set": (248, 64), "json": (245, 65),
}  # fmt: skip
NUMBERS = ("tinyint", "tinyint unsigned", "mediumint", "int", "bigint", "bigint unsigned", "float", "double", "bit", "year",
           "enum", "set")  # fmt: skip
CREATE = "CREATE TABLE t (id bigint PRIMARY KEY, " + ", ".join(
    f"`{wire}` {declared}" for wire, (declared, _) in TYPES.items()
) + ")"  # fmt: skip
HISTORY = SchemaHistory().with_ddls([DdlEvent(0, 1, "s", "t", CREATE, "CREATE")])
ORDINARY = {wire: values[0] for wire, (_, values) in TYPES.items()} | {
    "float": "0.5",
    "timestamp": "2024-06-01 00:00:00",
}
CELLS = st.sampled_from([(wire, value) for wire, (_, values) in TYPES.items() for value in (*values, None)])
ROWS = st.lists(st.tuples(CELLS, CELLS, st.sampled_from(["put", "update", "delete"])), min_size=1, max_size=40)
FEW = settings(max_examples=examples(0.2), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def canal_message(at: int, first: dict[str, str | None], second: dict[str, str | None], change: str) -> RawMessage:
    image, other = ({"id": str(at), **ORDINARY, **cells} for cells in (first, second))
    types = {"id": "bigint"} | {wire: wire for wire in TYPES}
    kind = {"put": "INSERT", "update": "UPDATE", "delete": "DELETE"}[change]
    old = other if change == "update" else None
    return canal_json.message(canal_json.row(kind, data=image, old=old, types=types, ts=TS + at), at)


def open_message(at: int, first: dict[str, str | None], second: dict[str, str | None], change: str) -> RawMessage:
    images = []
    for cells in (first, second):
        image: dict[str, dict[str, Any]] = {"id": {"t": 8, "h": True, "f": 11, "v": at}}
        for wire, text in {**ORDINARY, **cells}.items():
            code, flags = OPEN_CODES[wire]
            image[wire] = {"t": code, "f": flags, "v": f"@{text}@" if text is not None and wire in NUMBERS else text}
        images.append(image)
    new = None if change == "delete" else images[0]
    old = images[0] if change == "delete" else images[1] if change == "update" else None
    key, value = open_protocol.row(TS + at, new=new, old=old)
    return open_protocol.message([(key, value.replace(b'"@', b"").replace(b'@"', b""))], at)


@pytest.mark.parametrize(
    ("message", "changefeed"),
    [
        (
            canal_message,
            Changefeed(protocol="canal-json", topic="topic", timezone="Europe/Berlin", enable_tidb_extension=True),
        ),
        (open_message, Changefeed(protocol="open-protocol", topic="topic", timezone="Europe/Berlin")),
    ],
    ids=["canal-json", "open"],
)
@FEW
@given(rows=ROWS)
def test_values_at_the_borders_of_types_become_the_same(
    write: Callable[..., Written],
    message: Callable[..., RawMessage],
    changefeed: Changefeed,
    rows: list[tuple[tuple[str, str | None], tuple[str, str | None], str]],
) -> None:
    messages = [message(at, {}, {}, change) for at, change in enumerate(("put", "update", "delete"))]
    messages += [
        message(at, dict([first]), dict([second]), change) for at, (first, second, change) in enumerate(rows, 3)
    ]
    assert both(write, messages, changefeed, HISTORY).taken >= 3


def test_an_element_without_characters_becomes_the_same(write: Callable[..., Written]) -> None:
    """It is what tells 0 from 1, and the third set from the second."""
    create = CREATE.replace("enum('a','b')", "enum('','a')").replace("set('a','b')", "set('','a','b')")
    history = SchemaHistory().with_ddls([DdlEvent(0, 1, "s", "t", create, "CREATE")])
    values = list(product(("0", "1", "2", "3"), map(str, range(9))))
    messages = [open_message(at, {"enum": enum, "set": set_}, {}, "put") for at, (enum, set_) in enumerate(values)]
    changefeed = Changefeed(protocol="open-protocol", topic="topic", timezone="UTC")
    fitting = {"1", "2"}, {"0", "2", "3", "4", "5", "6", "7"}
    assert both(write, messages, changefeed, history).taken == len(fitting[0]) * len(fitting[1])


@pytest.mark.parametrize(
    ("limits", "file_rows"),
    [
        ({"data_file.ROW_GROUP_ROWS": 70}, 1000),
        ({"data_file.ROW_GROUP_BYTES": 9000}, 1000),
        ({"writer.WAITING_BYTES": 9000}, 1000),
        ({}, 70),
    ],
    ids=["rows of a row group", "bytes of a row group", "bytes of all tables", "rows of a file"],
)
def test_limits_fall_on_the_same_rows_where_python_reads_some_of_them(
    write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], file_rows: int
) -> None:
    monkeypatch.setattr(split, "CHECKED_MESSAGES", 16)
    monkeypatch.setattr(split, "BATCH_ROWS", 16)
    for name, limit in limits.items():
        monkeypatch.setattr(f"ticdc_replay.changelog.files.{name}", limit)
    rows = [
        canal_json.row(ts=TS + at, data={"id": str(at), "v": "x" * (at % 37)}, table=f"t{at % 2}") for at in range(400)
    ]
    # Python alone reads escapes of U+FFFD, which may stand for bytes that were lost.
    rows = [row.replace(b'"v":"x', rb'"v":"\ufffd') if at % 3 else row for at, row in enumerate(rows)]
    changefeed = Changefeed(protocol="canal-json", topic="topic", timezone="UTC", enable_tidb_extension=True)
    messages = [canal_json.message(row, at) for at, row in enumerate(rows)]
    assert 80 <= both(write, messages, changefeed, SchemaHistory(), file_rows=file_rows).taken < 200


@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol"])
def test_messages_for_whose_rows_there_is_no_room_are_read_by_python(
    write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch, protocol: Any
) -> None:
    """Each of the 40 deletes becomes 20 * 4 + 2 * (4 + 20 * 4) + 20 * len("before.c00") bytes beside its text: 448."""
    create = f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(f'c{at:02} INT' for at in range(20))})"
    history = SchemaHistory().with_ddls([DdlEvent(0, 1, "s", "t", create, "CREATE")])
    changefeed = Changefeed(
        protocol=protocol,
        topic="topic",
        timezone="UTC",
        enable_tidb_extension=True,
        delete_only_output_handle_key_columns=True,
    )
    if protocol == "canal-json":
        rows = [canal_json.row("DELETE", ts=TS + at, data={"id": str(at)}) for at in range(40)]
        messages = [canal_json.message(row, at) for at, row in enumerate(rows)]
    else:
        keys = [{"id": {"t": 3, "h": True, "f": 11, "v": at}} for at in range(40)]
        messages = [open_protocol.message([open_protocol.row(TS + at, old=key)], at) for at, key in enumerate(keys)]
    assert both(write, messages, changefeed, history).taken == 40
    for room, taken in ((447, 0), (448, 1), (448 * 7 + 447, 7)):
        monkeypatch.setattr("ticdc_replay.changelog.cells.convert.BATCH_MAX_BYTES", room)
        assert both(write, messages, changefeed, history).taken == taken
    # What was written leaves room.
    monkeypatch.setattr(split, "CHECKED_MESSAGES", 4)
    monkeypatch.setattr(split, "BATCH_ROWS", 20)
    assert both(write, messages, changefeed, history).taken == 7 + 7


def test_rows_of_unreadable_keys_come_to_quarantine_in_the_same_order(write: Callable[..., Written]) -> None:
    images = ({"id": "1", "v": "x"}, {"v": "x", "id": "bad"}, {"id": "bad", "v": "x"})
    rows = [canal_json.row(ts=TS + at, data=image) for at, image in enumerate(images)]
    changefeed = Changefeed(protocol="canal-json", topic="topic", timezone="UTC", enable_tidb_extension=True)
    create = DdlEvent(0, 1, "s", "t", "CREATE TABLE t (id int PRIMARY KEY, v varchar(9))", "CREATE")
    history = SchemaHistory().with_ddls([create])
    assert both(write, [canal_json.message(row, at) for at, row in enumerate(rows)], changefeed, history).taken == 1


@pytest.mark.parametrize("operation", ["INSERT", "UPDATE", "DELETE"])
@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol"])
def test_a_row_whose_handle_key_is_null_is_set_aside_as_damaged(
    write: Callable[..., Written], protocol: Any, operation: str
) -> None:
    messages = []
    for at, key in enumerate((1, None, 2)):
        if protocol == "canal-json":
            image = {"id": None if key is None else str(key), "v": "x"}
            old = image | {"v": "y"} if operation == "UPDATE" else None
            messages.append(canal_json.message(canal_json.row(operation, ts=TS + at, data=image, old=old), at))
        else:
            cells = open_protocol.columns(1, "x")
            cells["id"]["v"] = key
            images = {
                "INSERT": {"new": cells},
                "UPDATE": {"new": cells, "old": cells | {"v": cells["v"] | {"v": "y"}}},
                "DELETE": {"old": cells},
            }
            messages.append(open_protocol.message([open_protocol.row(TS + at, **images[operation])], at))
    changefeed = Changefeed(protocol=protocol, topic="topic", timezone="UTC", enable_tidb_extension=True)
    written = both(write, messages, changefeed, SchemaHistory())
    assert (written.taken, written.result.events.written) == (2, 2)
    assert written.result.quarantine_reasons == {"row_damaged": 1}


def test_an_old_null_of_a_column_that_is_not_null_is_left_to_python(write: Callable[..., Written]) -> None:
    """TiCDC 8.5.4 writes it for an old value that is empty or zero."""
    messages = []
    for at, (flags, before) in enumerate(((0, "y"), (0, None), (0, "y"), (64, "y"), (64, None))):
        key = {"t": 8, "h": True, "f": 11, "v": at}
        new = {"id": key, "a": {"t": 15, "f": flags, "v": "x"}}
        old = {"a": {"t": 15, "f": flags, "v": before}}
        messages.append(open_protocol.message([open_protocol.row(TS + at, new=new, old=old)], at))
    changefeed = Changefeed(protocol="open-protocol", topic="topic", timezone="UTC", only_output_updated_columns=True)
    assert both(write, messages, changefeed, SchemaHistory()).taken == 4


@pytest.mark.parametrize("again", ['"table":"u"', '"database":"z"', '"type":"DELETE"', '"pkNames":["v"]'])
def test_a_message_that_says_something_twice_teaches_nothing_of_others(
    write: Callable[..., Written], again: str
) -> None:
    rows = [canal_json.message(canal_json.row(ts=TS + at, data={"id": str(at), "v": "x"}), at) for at in range(4)]
    odd = rows[-1].value.replace(b',"sql":""', f',{again},"sql":""'.encode())
    changefeed = Changefeed(protocol="canal-json", topic="topic", timezone="UTC", enable_tidb_extension=True)
    assert both(write, [*rows, rows[-1]._replace(value=odd, offset=4)], changefeed, SchemaHistory()).taken == 4


def test_rows_of_a_table_whose_name_none_has_are_left_to_python(write: Callable[..., Written]) -> None:
    tables = ["t" * 65, "t" * 64]
    rows = [
        canal_json.message(canal_json.row(ts=TS + at, table=tables[at % 2], data={"id": str(at), "v": "x"}), at)
        for at in range(10)
    ]
    changefeed = Changefeed(protocol="canal-json", topic="topic", timezone="UTC", enable_tidb_extension=True)
    assert both(write, rows, changefeed, SchemaHistory()).taken == 5


def test_a_commit_years_after_its_record_is_left_to_python(write: Callable[..., Written]) -> None:
    recorded_ms = 1_760_000_000_000
    latest = tso.from_ms(recorded_ms + 10 * 365 * 86_400_000)
    usable = [(recorded_ms, TS), (recorded_ms, TS), (recorded_ms, latest), (0, latest + 1), (1 << 62, latest + 1)]
    too_late = [(recorded_ms, latest + 1), (recorded_ms, tso.MAX_TSO - 1), (1_420_070_400_000, latest)]
    rows = [
        canal_json.message(canal_json.row(ts=ts, data={"id": str(at), "v": "x"}), at)._replace(timestamp_ms=recorded)
        for at, (recorded, ts) in enumerate([*usable, *too_late])
    ]
    changefeed = Changefeed(protocol="canal-json", topic="topic", timezone="UTC", enable_tidb_extension=True)
    found = both(write, rows, changefeed, SchemaHistory())
    assert found.taken == len(usable)
    assert found.result.quarantine_reasons == {"bad_value": len(too_late)}


PIECES = [
    '"isDdl"',
    ":",
    " ",
    "\t",
    "\f",
    "\v",
    "\x1f",
    "t",
    "true",
    "false",
    "f",
    ",",
    "\\u00",
    "\\u0044",
    "4",
    "8",
    "\\",
    '"',
]


@given(values=st.lists(st.lists(st.sampled_from(PIECES)).map(lambda pieces: "".join(pieces).encode()), max_size=4))
def test_the_same_messages_may_hold_a_ddl(values: list[bytes]) -> None:
    messages = [canal_json.message(value, at) for at, value in enumerate([*values, b"", None])]
    reader = codec_for(Changefeed(protocol="canal-json", topic="topic", timezone="UTC"), 1 << 20)
    expected = [each.offset for each in messages if reader.is_schema_change(each)]
    assert [each.offset for each in reader.schema_changes(messages)] == expected
    extension = native_extension()
    assert extension is not None
    assert extension.may_be_ddl([each.value or b"" for each in messages]) == expected


def test_a_ddl_that_is_larger_than_may_be_counts_for_neither() -> None:
    messages = [canal_json.message(canal_json.ddl(f"CREATE TABLE t{'x' * at} (id int)"), at) for at in (1, 3000, 2)]
    reader = codec_for(Changefeed(protocol="canal-json", topic="topic", timezone="UTC"), 2000)
    assert [each.offset for each in reader.schema_changes(messages)] == [1, 2]


def test_a_message_on_which_the_extension_panics_is_read_by_python(
    write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    extension = native_extension()
    assert extension is not None
    monkeypatch.setattr(extension, "Decoder", partial(extension.Decoder, panic_at=1))
    changefeed = Changefeed(protocol="open-protocol", topic="topic", timezone="UTC")
    messages = [open_message(at, {}, {}, "update") for at in range(3)]
    assert both(write, messages, changefeed, HISTORY).taken == 2
    assert "the native decoder failed on 1 messages; Python reads them" in caplog.text


def test_the_switch_leaves_the_extension_alone_and_the_log_says_so(
    write: Callable[..., Written], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    changefeed = Changefeed(protocol="open-protocol", topic="topic", timezone="UTC")
    assert write([open_message(0, {}, {}, "put")], changefeed, HISTORY, on=False).taken == 0
    assert "TICDC_REPLAY_NATIVE=off" in caplog.text


def test_a_wheel_of_another_version_is_left_alone_and_the_log_says_so(
    write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert native_extension() is not None
    monkeypatch.setattr("ticdc_replay_native.INTERFACE", INTERFACE + 1)
    native_extension.cache_clear()
    assert native_extension() is None
    assert f"has interface {INTERFACE + 1}" in caplog.text
