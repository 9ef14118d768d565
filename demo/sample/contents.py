"""Reads what ``data/`` holds."""

import gzip
import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).with_name("data")


class SampleMessage(NamedTuple):
    """One Kafka record; ``offset`` counts from 0 in its partition."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes


class SampleObject(NamedTuple):
    """One object of the claim-check store. An orphan is one that no message refers to."""

    name: str
    path: Path
    written_ms: int
    orphan: bool


class SampleWindow(NamedTuple):
    """What is right for one window: row versions by table and operation, DDL, row versions that came by claim check."""

    from_ts: int
    to_ts: int
    tables: dict[str, dict[str, int]]
    ddl: int
    claim_checked: int

    @property
    def row_versions(self) -> int:
        """Row versions of all tables."""
        return sum(count for kinds in self.tables.values() for count in kinds.values())


class SampleRow(NamedTuple):
    """One row at the end. ``columns``: name → cell in the form of the captures (``value`` and its companions)."""

    schema: str
    table: str
    key: dict[str, str]
    commit_ts: int
    columns: dict[str, dict[str, Any]]


def messages() -> Iterator[SampleMessage]:
    """All messages in the order they are sent."""
    for line in _lines("messages.jsonl.gz"):
        yield SampleMessage(
            line["partition"],
            line["offset"],
            line["timestamp_ms"],
            b64decode(line["key_b64"]),
            b64decode(line["value_b64"]),
        )


def objects() -> list[SampleObject]:
    """All objects of the store."""
    with (DATA / "objects.jsonl").open(encoding="utf-8") as lines:
        return [
            SampleObject(line["name"], DATA / "objects" / line["name"], line["written_ms"], line["orphan"])
            for line in map(json.loads, lines)
        ]


def windows() -> list[SampleWindow]:
    """The windows, in order, without gaps."""
    return [
        SampleWindow(window["from_ts"], window["to_ts"], window["tables"], window["ddl"], window["claim_checked"])
        for window in summary()["windows"]
    ]


def rows() -> list[SampleRow]:
    """All rows of all tables as they are after the last window."""
    return [SampleRow(**line) for line in _lines("rows.jsonl.gz")]


def summary() -> dict[str, Any]:
    """The content of ``expected.json``."""
    loaded: dict[str, Any] = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
    return loaded


def meta() -> dict[str, Any]:
    """The changefeed's settings, as in a capture's ``meta.json``."""
    loaded: dict[str, Any] = json.loads((DATA / "meta.json").read_text(encoding="utf-8"))
    return loaded


def _lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
