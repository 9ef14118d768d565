"""Captures: Kafka messages that TiCDC's own encoders made, kept in a folder with what is needed to read them.

    messages.jsonl[.gz]  one message a line: topic, partition, offset, timestamp_ms, key_b64, value_b64 (null allowed)
    meta.json            sink_uri, replica_config (settings of the changefeed), ticdc_timezone
    objects/             claim-check objects, by name
    schemas.json         writer schemas of Avro: [{id, schema, …}]

This is a thin adapter for tests, the demo and ``decode --capture``: the settings are handed to ``changefeed.sink_uri`` as the
TOML they stand for, so that there is no second dialect.
"""

import gzip
import json
from binascii import a2b_base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ticdc_replay.changefeed import known_options
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.sink_uri import from_sink_uri
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.messages import RawMessage

_OF_ALL_TABLES = {"partition-rule": "partition", "topic-rule": "topic"}
"""Settings that are not TiCDC's: members of a dispatcher rule for all tables."""
_KEYS = known_options.KEYS | {
    "integrity.integrity-check-level",
    "integrity.corruption-handle-level",
    "sink.column-selectors",
    "sink.dispatchers",
    "sink.kafka-config.glue-schema-registry-config",
    "sink.kafka-config.large-message-handle",
}


class _Meta(msgspec.Struct):
    sink_uri: str
    replica_config: dict[str, Any]
    ticdc_timezone: str


class _Schema(msgspec.Struct):
    id: int | str
    schema: str


class _Line(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key_b64: str | None
    value_b64: str | None


class Capture:
    """One capture. Raises ConfigError for a folder that holds none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._messages = next(
            (folder / name for name in ("messages.jsonl.gz", "messages.jsonl") if (folder / name).is_file()), None
        )
        if self._messages is None or not (folder / "meta.json").is_file():
            raise ConfigError(
                f"{folder} is not a capture: it must hold meta.json and messages.jsonl or messages.jsonl.gz"
            )

    @property
    def objects(self) -> str:
        """URI of the folder with the claim-check objects; it exists only where there are some."""
        return (self.folder.resolve() / "objects").as_uri()

    def changefeed(self) -> Changefeed:
        """The changefeed's configuration. Raises ConfigError when ``meta.json`` is not understood."""
        path = self.folder / "meta.json"
        try:
            meta = msgspec.json.decode(path.read_bytes(), type=_Meta)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}: {error}") from None
        toml = changefeed_toml(meta.replica_config, str(path))
        return from_sink_uri(meta.sink_uri, toml, meta.ticdc_timezone, f"{path} sink_uri").changefeed

    def writer_schemas(self) -> dict[str, str]:
        """Schema documents by the id that stands before Avro messages; empty where the capture has none."""
        path = self.folder / "schemas.json"
        if not path.is_file():
            return {}
        try:
            return {
                str(schema.id): schema.schema for schema in msgspec.json.decode(path.read_bytes(), type=list[_Schema])
            }
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}: {error}") from None

    def messages(self) -> Iterator[RawMessage]:
        """The messages, in (topic, partition, offset) order. Raises ConfigError with the line that can't be read."""
        found = []
        decode = msgspec.json.Decoder(_Line).decode
        for number, line in enumerate(self._lines(), start=1):
            try:
                raw = decode(line)
                key = None if raw.key_b64 is None else a2b_base64(raw.key_b64, strict_mode=True)
                value = None if raw.value_b64 is None else a2b_base64(raw.value_b64, strict_mode=True)
            except ValueError as error:
                raise ConfigError(f"{self._messages}, line {number}: {error}") from None
            found.append(RawMessage(raw.topic, raw.partition, raw.offset, raw.timestamp_ms, key, value))
        found.sort(key=lambda message: (message.topic, message.partition, message.offset))
        return iter(found)

    def _lines(self) -> Iterator[bytes]:
        assert self._messages is not None
        if self._messages.suffix == ".gz":
            with gzip.open(self._messages) as lines:
                yield from lines
        else:
            with self._messages.open("rb") as lines:
                yield from lines


def changefeed_toml(settings: dict[str, Any], where: str) -> str:
    """The TOML of a changefeed with *settings*, as ``meta.json`` has them: by their names in TOML, or the last parts of those,
    beside a ``partition-rule`` and a ``topic-rule`` for all tables. Raises ConfigError that names *where*."""
    rule = [f"{key} = {_toml(settings[name])}" for name, key in _OF_ALL_TABLES.items() if settings.get(name)]
    keys = {name: _toml_key(name) for name in settings.keys() - _OF_ALL_TABLES}
    unknown = sorted(name for name, key in keys.items() if key is None)
    if unknown:
        raise ConfigError(f"{where}: replica_config has unknown settings {', '.join(unknown)}")
    lines = [f"{keys[name]} = {_toml(value)}" for name, value in settings.items() if name in keys and value is not None]
    return "\n".join([*lines, f'sink.dispatchers = [{{matcher = ["*.*"], {", ".join(rule)}}}]' if rule else ""])


def _toml_key(name: str) -> str | None:
    """The whole name in TOML of the setting *name*; None where TiCDC has none, or several that end so."""
    if name in _KEYS:
        return name
    found = [key for key in _KEYS if key.endswith(f".{name}")]
    return found[0] if len(found) == 1 else None


def _toml(value: Any) -> str:
    """*value*, which was read from JSON, in TOML."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(name)} = {_toml(member)}' for name, member in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
