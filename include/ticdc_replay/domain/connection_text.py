"""Connections as text, in the two forms that Airflow's variables and secrets backends keep: JSON, or a URI."""

from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError

_FIELDS = {"conn_type", "host", "port", "login", "password", "schema", "extra"}
_UNUSED = {"description"}
_EXTRA = "__extra__"


def parse_connection(conn_id: str, text: str, where: str) -> Connection:
    """The connection called *conn_id*, whose *text* is from *where*: a JSON object of Airflow's fields, or Airflow's URI form.

    Raises ConfigError, which never shows the text: it holds secrets.
    """
    if not text.lstrip().startswith("{"):
        return connection_of(conn_id, _of_uri(text.strip(), where), where)
    try:
        fields = msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise ConfigError(f"{where} is not JSON") from None
    return connection_of(conn_id, fields, where)


def connection_of(conn_id: str, fields: Any, where: str) -> Connection:
    """The connection called *conn_id* with *fields* of Airflow, which are from *where*. Raises ConfigError."""
    if not isinstance(fields, dict):
        raise ConfigError(f"{where}: a mapping of connection fields is expected")
    unknown = sorted(set(fields) - _FIELDS - _UNUSED)
    if unknown:
        raise ConfigError(f"{where}: unknown field {', '.join(unknown)}; allowed: {', '.join(sorted(_FIELDS))}")
    given = {name: value for name, value in fields.items() if name in _FIELDS}
    if isinstance(given.get("extra"), str):
        given["extra"] = _extra(given["extra"], where)
    if isinstance(given.get("port"), str):
        given["port"] = _port(given["port"], where)
    try:
        found = msgspec.convert({"conn_id": conn_id, **given}, Connection)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    return msgspec.structs.replace(found, conn_type=_normal(found.conn_type))


def _of_uri(text: str, where: str) -> dict[str, Any]:
    """The fields of ``type://login:password@host:port/schema?extra``, read as Airflow reads them; the host may begin with a
    protocol of its own."""
    conn_type, mark, rest = text.partition("://")
    protocol, again, after = rest.partition("://")
    if not mark or not conn_type or "://" in after or (again and ("@" in protocol or ":" in protocol)):
        raise ConfigError(f"{where} is neither JSON nor Airflow's URI form of a connection")
    try:
        parts = urlsplit(rest if again else f"//{rest}")
        port = parts.port
    except ValueError:  # its text may have the password
        raise ConfigError(f"{where}: the URI's host or port can't be read") from None
    host = _host(parts)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        "conn_type": conn_type.lower(),
        "host": f"{parts.scheme}://{host}" if again and host else host,
        "port": port,
        "login": _unquoted(parts.username),
        "password": _unquoted(parts.password),
        "schema": unquote(parts.path[1:]),
        "extra": query.get(_EXTRA, query),
    }


def _host(parts: SplitResult) -> str:
    host = unquote(parts.hostname or "")
    if "/" not in host:
        return host
    return unquote(parts.netloc.rpartition("@")[2].partition(":")[0])  # a path keeps its upper case


def _unquoted(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _normal(conn_type: str) -> str:
    return "postgres" if conn_type == "postgresql" else conn_type.replace("-", "_")


def _extra(text: str, where: str) -> Any:
    try:
        return msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        raise ConfigError(f"{where}: extra is not JSON") from None


def _port(text: str, where: str) -> int | None:
    if text and not text.isdecimal():
        raise ConfigError(f"{where}: the port is no number")
    return int(text) if text else None
