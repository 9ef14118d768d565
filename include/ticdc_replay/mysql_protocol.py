"""How a server that speaks MySQL's protocol (MySQL, TiDB, MariaDB) is reached: one connection → arguments of pymysql."""

import ssl
from typing import Any

import pymysql

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError

TLS_FIELDS = ("ssl_ca", "ssl_cert", "ssl_key")

_SYSTEM_SCHEMAS = frozenset(
    {
        "information_schema", "inspection_schema", "lightning_task_info", "metrics_schema", "mysql", "performance_schema", "sys",
        "tidb_cdc", "workload_schema",
    }
)  # fmt: skip
"""Of MySQL, TiDB and its tools: TiCDC replicates none of their tables."""


def is_system_schema(name: str) -> bool:
    """Whether *name*, in any letter case, is a schema of the server's own."""
    return name.strip().casefold() in _SYSTEM_SCHEMAS


def identifier(name: str) -> str:
    """*name* as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def quoted(name: str) -> str:
    """*name* as an identifier, in a statement with placeholders."""
    return identifier(name).replace("%", "%%")


def arguments(given: Connection, default_port: int) -> dict[str, Any]:
    """Where the server is, who logs in, and its TLS. Raises ConfigError for an unknown extra or an unreadable certificate."""
    unknown = sorted(set(given.extra) - {*TLS_FIELDS, "charset"})
    if unknown:
        raise ConfigError(
            f"connection {given.conn_id}: unknown extra {', '.join(unknown)}; allowed: {', '.join(TLS_FIELDS)}"
        )
    return {
        "host": given.host or "localhost",
        "port": given.port or default_port,
        "user": given.login or "",
        "password": given.password or "",
        "charset": "utf8mb4",
        "ssl": _tls_context(given),
    }


def code_and_text(error: Exception) -> tuple[int, str]:
    """The number of the error that the server or pymysql reports, 0 where it has none, and its text."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    return code, str(error.args[1] if len(error.args) > 1 else error)


def is_bad_certificate(error: Exception) -> bool:
    """Whether the server's certificate was not accepted."""
    return isinstance(error.__cause__ or error.__context__, ssl.SSLCertVerificationError)


def end(session: "pymysql.connections.Connection[Any]") -> None:
    """End *session*, whose connection may be broken."""
    session._force_close()  # type: ignore[attr-defined]


def _tls_context(given: Connection) -> ssl.SSLContext | None:
    """TLS that knows the server by ``ssl_ca`` and shows ``ssl_cert``; None where the connection names no certificate.

    Without, the session is encrypted if the server asks for it, and the server is not verified.
    """
    if not any(name in given.extra for name in TLS_FIELDS):
        return None
    ca, certificate, key = (given.extra.get(name) for name in TLS_FIELDS)
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(
                certificate, key, ""
            )  # without a password, OpenSSL would ask for one at the terminal
    except (OSError, TypeError) as error:
        paths = ", ".join(f"{name} {given.extra[name]}" for name in TLS_FIELDS if name in given.extra)
        raise ConfigError(f"connection {given.conn_id}: extra {paths}: {error}") from None
    return context
