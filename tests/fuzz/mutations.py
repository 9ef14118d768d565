"""The changes that are made to messages, and what each of them allows the codec to say."""

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, NamedTuple

import lz4.frame
import pyarrow as pa

from tests.fuzz.documents import (
    AvroDocument,
    Members,
    Number,
    Place,
    Tree,
    avro_places,
    parse_json,
    places,
    write_json,
)
from tests.fuzz.oracle import DECOMPRESSED_CAP, Allowed, Subject
from tests.fuzz.units import close_units, compress, decompress, open_units
from ticdc_replay.domain.messages import RawMessage


class Changed(NamedTuple):
    """A changed message. ``allowed`` is what it may say, compared with the unchanged one."""

    message: RawMessage
    allowed: Allowed = Allowed.ANYTHING


Mutation = Callable[[Random, Subject, RawMessage], Changed | None]
"""Makes a change at random; None where the message has nothing that it could change."""

SNIPPETS = (
    b"", b"\x00", b"\xff", b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\xfe\xff\xff\xff\x0f", b"{", b"}", b"[", b'"', b",", b":",
    b"null", b"true", b"-0", b"1e999", b"18446744073709551616", b'"v":null', b'"t":', b"\\u0000", b"\\ud800", b"\xed\xa0\x80",
    b"\xc2\x85", b"\x04\x22\x4d\x18", b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x00\x00\x00\x00\x01", b"\x03\x00", b"\x16\x06",
)  # fmt: skip
TEXTS = (
    "", " ", "0", "-0", "+1", "1.", ".5", "1e5", "00", "1_0", "٣", "NaN", "Infinity", "-9223372036854775809",
    "18446744073709551616", "9" * 400, "0x10", "null", "true", "2024-02-30", "0000-00-00", "2024-13-01 00:00:00",
    "9999-99-99 99:99:99", "24:00:00", "839:00:00", "-838:59:59.9999999", "1970-01-01T00:00:00Z", "a,b", "[1,2", "[]",
    '{"a":1', "{", "Ā", "\x00", "\ud800", "\udc80", "=", "====", "AAE", "A" * 100_000, "INSERT", "DELETE", "BOOTSTRAP",
    "TIDB_WATERMARK", "CREATE TABLE t (a int)", "CREATE TABLE `", "RENAME TABLE a TO b", "s3://a/b/../c.json", "\\x4",
    "int unsigned", "enum('a'",
)  # fmt: skip
NUMBERS = (
    "0", "-0", "-1", "1", "127", "255", "256", "65536", "2147483648", "4294967296", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
    "-9223372036854775809", "1.5", "1e5", "1e999", "1e-999", "9" * 400,
)  # fmt: skip
NAMES = (
    "", "id", "t", "v", "f", "h", "u", "p", "d", "ts", "type", "data", "old", "payload", "schema", "op", "_tidb", "x" * 300,
)  # fmt: skip


def edited(chance: Random, part: bytes, other: bytes) -> bytes:
    """*part* with one to three changes that know nothing of its form; *other* is what may be spliced in."""
    changed = bytearray(part)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(7):
            case 0 if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(changed):
                changed[at] = chance.randrange(256)
            case 2:
                del changed[at : at + chance.randint(1, 20)]
            case 3:
                changed[at:at] = chance.choice(SNIPPETS)
            case 4:
                changed[at:at] = changed[at : at + chance.randint(1, 40)]
            case 5:
                del changed[at:]
            case _:
                start = chance.randrange(len(other) + 1)
                changed[at : at + chance.randint(0, 40)] = other[start : start + chance.randint(0, 200)]
    return bytes(changed)


def bytes_of_message(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    """Key or value as Kafka has it."""
    other = chance.choice(subject.messages)
    if chance.random() < 0.02:
        return Changed(message._replace(value=chance.choice((None, b"")), key=chance.choice((message.key, None, b""))))
    if message.key is not None and (message.value is None or chance.random() < 0.3):
        return Changed(message._replace(key=edited(chance, message.key, other.key or b"")))
    if message.value is None:
        return None
    return Changed(message._replace(value=edited(chance, message.value, other.value or b"")))


def bytes_of_document(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    """A document inside of intact frames and compression."""
    units = open_units(subject.changefeed, message)
    if not units:
        return None
    at = chance.randrange(len(units))
    foreign = open_units(subject.changefeed, chance.choice(subject.messages))
    units[at] = edited(chance, units[at], chance.choice(foreign) if foreign else b"")
    return Changed(close_units(subject.changefeed, message, units))


def exchange(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    """A key, a value or a document of another message in the place of one's own."""
    other = chance.choice(subject.messages)
    if chance.random() < 0.3:
        half = chance.random() < 0.5
        return Changed(message._replace(key=other.key) if half else message._replace(value=other.value))
    units, foreign = open_units(subject.changefeed, message), open_units(subject.changefeed, other)
    if not units or not foreign:
        return None
    units[chance.randrange(len(units))] = chance.choice(foreign)
    return Changed(close_units(subject.changefeed, message, units))


def is_json(subject: Subject) -> bool:
    feed = subject.changefeed
    return (not subject.writer_schemas and feed.encoding_format == "json") or feed.protocol not in (
        "simple",
        "avro",
        "debezium-avro",
    )


def _tree(chance: Random, subject: Subject, message: RawMessage) -> tuple[list[bytes], int, Tree] | None:
    """The documents of *message*, and one of them that is JSON as a tree."""
    if not is_json(subject):
        return None
    units = open_units(subject.changefeed, message)
    candidates = [at for at, unit in enumerate(units) if unit]
    if not candidates:
        return None
    at = chance.choice(candidates)
    return units, at, parse_json(units[at])


def structure(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    """Members lost, doubled, renamed, nested, moved and taken from elsewhere."""
    found = _tree(chance, subject, message)
    if found is None:
        return None
    units, at, tree = found
    for _ in range(chance.randint(1, 2)):
        nodes = list(places(tree))
        if not nodes:
            break
        _restructure(chance, chance.choice(nodes), nodes)
    units[at] = write_json(tree)
    return Changed(close_units(subject.changefeed, message, units))


def _restructure(chance: Random, node: Place, nodes: list[Place]) -> None:
    parent, at = node.parent, node.at
    match chance.randrange(8):
        case 0:
            del parent[at]
        case 1:
            copy = deepcopy(node.value)
            parent.insert(chance.randrange(len(parent) + 1), (node.name, copy) if isinstance(parent, Members) else copy)
        case 2 if isinstance(parent, Members):
            name = chance.choice((*NAMES, node.name.upper(), node.name[:-1], f"{node.name} "))
            parent[at] = (name, node.value)
        case 3:
            node.put(Members([(chance.choice(NAMES), node.value)]))
        case 4:
            node.put([deepcopy(node.value) for _ in range(chance.randint(0, 3))])
        case 5:
            other = chance.choice(nodes)
            mine, taken = deepcopy(node.value), deepcopy(other.value)
            other.put(mine)
            node.put(taken)
        case 6 if chance.random() < 0.02:
            depth = chance.choice((500, 20_000))
            node.put(Number("[" * depth + "]" * depth))
        case 6:
            node.put(deepcopy(chance.choice(nodes).value))
        case _ if isinstance(parent, Members):
            parent.append((chance.choice(NAMES), node.value))
        case _:
            node.put(None)


def values(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    """Values at the edges of their types, of other types, and of none."""
    if not is_json(subject):
        return _avro_values(chance, subject, message)
    found = _tree(chance, subject, message)
    if found is None:
        return None
    units, at, tree = found
    leaves = [node for node in places(tree) if not isinstance(node.value, list)]
    for _ in range(chance.randint(1, 3)):
        if leaves:
            _revalue(chance, chance.choice(leaves))
    units[at] = write_json(tree)
    return Changed(close_units(subject.changefeed, message, units))


def _revalue(chance: Random, node: Place) -> None:
    value = node.value
    match chance.randrange(6):
        case 0 if isinstance(value, Number):
            node.put(str(value))
        case 0 if isinstance(value, str):
            node.put(Number(value) if value.isdigit() else Number("7"))
        case 1:
            node.put(chance.choice((None, True, False, [], Members())))
        case 2 if isinstance(value, str) and value:
            digit = chance.randrange(len(value))
            new = f"{value[:digit]}{chance.choice('0123456789-:. aZ')}{value[digit + 1 :]}"
            node.put(new if not isinstance(value, Number) else Number(_number_or(new, "7")))
        case 3 | 4 if isinstance(value, Number):
            node.put(Number(chance.choice(NUMBERS)))
        case _:
            node.put(chance.choice(TEXTS) if chance.random() < 0.8 else Number(chance.choice(NUMBERS)))


def _number_or(text: str, otherwise: str) -> str:
    try:
        parsed = parse_json(text.encode())
    except ValueError:
        return otherwise
    return text if isinstance(parsed, Number) else otherwise


def _avro_values(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    units = open_units(subject.changefeed, message)
    if not units:
        return None
    at = chance.randrange(len(units))
    if units[at][:1] in (b"\x01", b"\x02") or (units[at][:1] == b"\x03" and len(units[at]) < 18):
        return None  # Avro's test mode: DDL, watermark, time of a delete
    document = AvroDocument.parse(units[at], subject.writer_schemas)
    nodes = list(avro_places(document.content))
    for _ in range(chance.randint(1, 3)):
        _key, value, put = chance.choice(nodes)
        put(_other_value(chance, value))
    try:
        units[at] = document.write()
    except ValueError:
        return None
    return Changed(close_units(subject.changefeed, message, units))


def _other_value(chance: Random, value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return chance.choice((0, -1, 1, 127, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), value ^ 1))
        case float():
            return chance.choice((0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324))
        case str():
            return chance.choice(TEXTS).encode(errors="replace").decode()
        case bytes():
            return chance.choice((b"", b"\x00", b"\xff" * 9, b"\x80" + b"\x00" * 30, value + b"\x00"))
        case None:
            return chance.choice((0, "", "1", b"\x01", 1.5))
        case list():
            return value[:-1] if chance.random() < 0.5 else value * 2
        case dict():
            return {name: cell for name, cell in value.items() if chance.random() < 0.8} | {"x": 1}
        case _:
            return None


def frames(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    """Compression frames that are damaged, wrong, doubled or bombs; ids of other schemas; what stands behind the end."""
    feed = subject.changefeed
    if feed.protocol in ("avro", "debezium-avro"):
        return _framed(chance, subject, message)
    part = message.value
    if not part:
        return None
    if feed.compression != "none" and feed.protocol not in ("open-protocol", "default"):
        return Changed(message._replace(value=_recompressed(chance, part, feed.compression)))
    units = open_units(feed, message)
    at = len(units) - 1
    if units[at] and chance.random() < 0.5 and feed.protocol != "canal-json":
        broken = (
            units[at] + chance.choice((b"x", b"}", b"\x00", units[at][:1])) if chance.random() < 0.5 else units[at][:-1]
        )
        units[at] = broken
        return Changed(close_units(feed, message, units), Allowed.BAD if is_json(subject) else Allowed.ANYTHING)
    if feed.protocol in ("open-protocol", "default"):
        longer = message._replace(value=part + bytes(chance.randint(1, 7)))
        return Changed(longer, Allowed.BAD)
    return Changed(message._replace(value=compress(part, chance.choice(("snappy", "lz4")))))


def _recompressed(chance: Random, part: bytes, compression: Any) -> bytes:
    plain = decompress(part, compression)
    match chance.randrange(7):
        case 0:
            return plain
        case 1:
            return compress(plain, "lz4" if compression == "snappy" else "snappy")
        case 2:
            return compress(part, compression)
        case 3:
            return part + part
        case 4:
            return part[: chance.randrange(len(part))]
        case 5:
            return compress(b" " * (DECOMPRESSED_CAP + 1) + plain, compression)
        case _:
            return pa.compress(plain, "gzip", asbytes=True)  # type: ignore[no-any-return]


def _framed(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    name = "value" if message.value and (not message.key or chance.random() < 0.7) else "key"
    part = getattr(message, name)
    ids = list(subject.writer_schemas)
    if not part or part[0] != (3 if "-" in ids[0] else 0):
        return None  # in TiCDC's test mode other first bytes stand before other messages
    if chance.random() < 0.3 and len(part) > 18:
        return Changed(message._replace(**{name: part + b"\x00"}), Allowed.BAD)
    size = 5 if part[0] == 0 else 18
    other = chance.choice(ids)
    if size == 5:
        number = int(other) if chance.random() < 0.8 else chance.randrange(1 << 32)
        return Changed(message._replace(**{name: b"\x00" + number.to_bytes(4, "big") + part[5:]}))
    return Changed(
        message._replace(
            **{
                name: part[:1]
                + chance.choice((b"\x00", b"\x05", b"\x09"))
                + bytes.fromhex(other.replace("-", ""))
                + part[18:]
            }
        )
    )


def spelling(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    """The same JSON in other words: order of members, spaces, escapes. LZ4 frames with other headers."""
    feed = subject.changefeed
    if feed.compression == "lz4" and feed.protocol in ("canal-json", "simple") and chance.random() < 0.3:
        plain = decompress(message.value or b"", "lz4")
        frame = lz4.frame.compress(
            plain,
            block_size=chance.choice((lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX1MB)),
            block_linked=chance.random() < 0.5,
            content_checksum=chance.random() < 0.5,
            block_checksum=chance.random() < 0.5,
            store_size=chance.random() < 0.5,
        )
        return Changed(message._replace(value=frame), Allowed.SAME)
    found = _tree(chance, subject, message)
    if found is None:
        return None
    units, at, tree = found
    if chance.random() < 0.5:
        for node in [tree, *(node.value for node in places(tree))]:
            if isinstance(node, Members) and len({name for name, _ in node}) == len(node):
                chance.shuffle(node)
    units[at] = write_json(tree, chance)
    return Changed(close_units(feed, message, units), Allowed.SAME)


def checked_bytes(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    """One bit within what a checksum protects: LZ4 frames."""
    feed = subject.changefeed
    if feed.compression != "lz4" or not message.value or feed.protocol in ("avro", "debezium-avro"):
        return None
    start = 8 if feed.protocol in ("open-protocol", "default") else 0
    if (start and len(open_units(feed, message)) != 2) or len(message.value) <= start:
        return None
    changed = bytearray(message.value)
    changed[chance.randrange(start, len(changed))] ^= 1 << chance.randrange(8)
    return Changed(message._replace(value=bytes(changed)), Allowed.SAME_OR_BAD)


def checked_cells(chance: Random, subject: Subject, message: RawMessage) -> Changed | None:
    """Another value of one cell, where a row checksum shows it."""
    if not subject.changefeed.row_checksum:
        return None
    if not is_json(subject):
        changed = _avro_values(chance, subject, message) if subject.changefeed.protocol == "simple" else None
        return None if changed is None else changed
    tree = parse_json(open_units(subject.changefeed, message)[0])
    members = dict(tree)
    images = [members[side] for side in ("data", "old") if side in members]
    cells = [node for image in images for node in places(image) if isinstance(node.value, str) and node.value]
    if not cells or not isinstance(members.get("checksum"), list):
        return None
    sums = dict(members["checksum"])
    if any(sums[name] == "0" for name, side in (("current", "data"), ("previous", "old")) if side in members):
        return None
    node = chance.choice(cells)
    digits = [at for at, char in enumerate(node.value) if char.isdigit()]
    if not digits or node.name == "location":
        return None
    at = chance.choice(digits)
    node.put(f"{node.value[:at]}{(int(node.value[at]) + chance.randint(1, 9)) % 10}{node.value[at + 1 :]}")
    return Changed(close_units(subject.changefeed, message, [write_json(tree)]), Allowed.DAMAGED)


MUTATIONS: dict[str, tuple[Mutation, int]] = {
    "bytes": (bytes_of_message, 4),
    "document bytes": (bytes_of_document, 6),
    "structure": (structure, 6),
    "values": (values, 8),
    "exchange": (exchange, 3),
    "frames": (frames, 3),
    "spelling": (spelling, 2),
    "checked bytes": (checked_bytes, 2),
    "checked cells": (checked_cells, 2),
}
"""Every change with its weight."""
