"""The ``Info`` that ``cdc cli changefeed create`` and ``query`` print: a changefeed's whole configuration as one JSON object.

Field names are the TOML's with ``_`` for ``-`` (``api/v2/model.go`` of both architectures); older releases printed them with
``-`` (``ChangeFeedInfo``). TiCDC masks what it takes for secrets as ``xxxxx`` or ``******``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ticdc_replay.domain.errors import ConfigError

_RENAMED = {"advance-timeout": "advance-timeout-in-sec", "file-index-width": "file-index-digit"}
"""Members of ``sink`` whose names in JSON differ from the TOML's in more than the dash."""


class ChangefeedInfo(NamedTuple):
    """What an Info says. ``start_ts`` and ``target_ts`` (TSO) are None where it has none."""

    sink_uri: str
    toml: dict[str, Any]
    """The configuration with the names of the TOML."""
    start_ts: int | None
    target_ts: int | None


def parse_info(text: str, where: str) -> ChangefeedInfo:
    """The Info in *text*. A line ``Info: {…}``, as the command prints it, may be given whole.

    Raises ConfigError, which names *where* and never quotes the text, for what is no Info.
    """
    start = text.find("{")
    try:
        document = msgspec.json.decode(text[max(start, 0) :].encode())
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ConfigError(f"{where}: not the JSON that `cdc cli changefeed query` prints: {error}") from None
    if not isinstance(document, Mapping):
        raise ConfigError(f"{where}: must be a JSON object")
    document = _with_toml_names(document)
    # Releases before v6.2 printed `query` as {"info": {…}, "status": {…}}.
    if isinstance(document.get("info"), Mapping):
        document = document["info"]
    sink_uri, config = document.get("sink-uri"), document.get("config", {})
    if not isinstance(sink_uri, str) or not sink_uri:
        raise ConfigError(f"{where}: has no sink_uri; print it with `cdc cli changefeed query` without --simple")
    if not isinstance(config, Mapping):
        raise ConfigError(f"{where}: config: must be an object")
    return ChangefeedInfo(sink_uri, dict(config), _tso(document, "start-ts", where), _tso(document, "target-ts", where))


def _with_toml_names(value: Any) -> Any:
    """*value* with the names of the TOML, and without members that are null, which TOML does not have."""
    if isinstance(value, Mapping):
        named = {name.replace("_", "-"): member for name, member in value.items() if member is not None}
        return {_RENAMED.get(name, name): _with_toml_names(member) for name, member in named.items()}
    if isinstance(value, list):
        return [_with_toml_names(item) for item in value]
    return value


def _tso(document: Mapping[str, Any], name: str, where: str) -> int | None:
    value = document.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{where}: {name.replace('-', '_')}: must be a TSO")
    return value or None
