"""A MariaDB server that shows the past of a capture's upstream as TiDB does.

MariaDB keeps the history of tables WITH SYSTEM VERSIONING: ``@@timestamp`` dates a change, ``@@system_versioning_asof`` shows an
earlier state. A proxy in front of it puts that in the place of TiDB's ``SET @@tidb_snapshot``, and answers SHOW CREATE TABLE
with the definition of the snapshot; all else passes as it is.
"""

import base64
import re
import socket
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any, NamedTuple

import msgspec
import pymysql

from ticdc_replay.domain.connections import Connection

Json = dict[str, Any]

"""The server's options: the proxy reads and changes packets. MariaDB offers TLS by itself from 11.4 on, and clients take it."""

_BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
_QUERY = b"\x03"
_SNAPSHOT = re.compile(r"SET @@tidb_snapshot = '(\d+)'")
_SHOW_CREATE = re.compile(r"SHOW CREATE TABLE `(\w+)`\.`(\w+)`")


class Definition(NamedTuple):
    """A table as it is from ``commit_ts`` (TSO) on."""

    schema: str
    table: str
    commit_ts: int
    create: str


class Upstream:
    """What happened upstream: *definitions*, of which the last of a table has all columns, and *events* as captures have them."""

    def __init__(self, definitions: Sequence[Definition], events: Sequence[Json]) -> None:
        self._definitions = definitions
        self._rows = [event for event in events if event["type"] != "ddl"]
        self._commits = sorted({event["commit_ts"] for event in self._rows})

    def happen(self, server: Connection) -> None:
        """Make the history in *server*."""
        assert server.host is not None
        assert server.port is not None
        assert server.password is not None
        with closing(
            pymysql.connect(
                host=server.host,
                port=server.port,
                user=server.login,
                password=server.password,
                charset="utf8mb4",
                autocommit=True,
            )
        ) as session:
            cursor = session.cursor()
            cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
            cursor.execute("CREATE TABLE mysql.tidb (VARIABLE_NAME varchar(64), VARIABLE_VALUE varchar(1024))")
            cursor.execute("INSERT INTO mysql.tidb VALUES ('tikv_gc_safe_point', '20200101-00:00:00 +0000')")
            for schema in sorted({definition.schema for definition in self._definitions}):
                cursor.execute(f"CREATE DATABASE {schema} CHARSET utf8mb4")
            last = {(definition.schema, definition.table): definition.create for definition in self._definitions}
            for (schema, table), create in last.items():
                cursor.execute(create.replace(f" {table} ", f" {schema}.{table} ", 1) + " WITH SYSTEM VERSIONING")
            for event in sorted(self._rows, key=lambda event: (event["commit_ts"], event["type"] != "delete")):
                cursor.execute("SET @@timestamp = %s", (self._moment(event["commit_ts"]).timestamp(),))
                for sql, parameters in _statements(event):
                    cursor.execute(sql, parameters)

    def translated(self, sql: str, snapshot: int) -> tuple[str, int]:
        """What MariaDB is told for *sql* in a session whose snapshot is *snapshot*, and the snapshot from then on."""
        if found := _SNAPSHOT.fullmatch(sql):
            moment = self._moment(int(found[1])) + timedelta(seconds=0.5)
            return f"SET @@system_versioning_asof = '{moment:%Y-%m-%d %H:%M:%S.%f}'", int(found[1])
        if found := _SHOW_CREATE.fullmatch(sql):
            known = [each for each in self._definitions if (each.schema, each.table) == (found[1], found[2])]
            held = [each.create for each in known if each.commit_ts <= snapshot][-1]
            return f"SELECT '{found[2]}', '{pymysql.converters.escape_string(held)}'", snapshot
        return sql, snapshot

    def _moment(self, tso: int) -> datetime:
        """The second that stands for *tso*: one more with each commit."""
        return _BEGIN + timedelta(seconds=bisect_right(self._commits, tso))


@contextmanager
def shown(upstream: Upstream, server: Connection) -> Iterator[Connection]:
    """The connection to a proxy of *server*, which takes connections without TLS, that shows *upstream*'s past."""

    class Session(BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((server.host, server.port)) as behind:
                back = Thread(target=_pass_on, args=(behind, self.request), daemon=True)
                back.start()
                snapshot = 0
                while packet := _packet(self.request):
                    head, payload = packet
                    if head[3] == 0 and payload.startswith(_QUERY):
                        sql, snapshot = upstream.translated(payload[1:].decode(), snapshot)
                        payload = _QUERY + sql.encode()
                    behind.sendall(len(payload).to_bytes(3, "little") + head[3:] + payload)
                behind.shutdown(socket.SHUT_RDWR)
                back.join(5)

    class Proxy(ThreadingTCPServer):
        daemon_threads = True

    with Proxy(("127.0.0.1", 0), Session) as proxy:
        thread = Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield msgspec.structs.replace(server, port=proxy.server_address[1])
        proxy.shutdown()
        thread.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    while content := source.recv(1 << 16):
        target.sendall(content)


def _packet(connection: socket.socket) -> tuple[bytes, bytes] | None:
    """Length and number of the next packet, and its payload; None at the end."""
    head = _exactly(connection, 4)
    if head is None:
        return None
    payload = _exactly(connection, int.from_bytes(head[:3], "little"))
    return None if payload is None else (head, payload)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            return None
        content += part
    return content


def _statements(event: Json) -> Iterator[tuple[str, list[Any]]]:
    """The statements that do what *event* tells."""
    place = f"{event['schema']}.{event['table']}"
    if event.get("pre") is not None:
        condition = " AND ".join(f"{name} = %s" for name in event["handle_key"])
        yield f"DELETE FROM {place} WHERE {condition}", [_value(event["pre"][name]) for name in event["handle_key"]]
    if event.get("columns") is not None:
        cells = event["columns"]
        marks = ", ".join(["%s"] * len(cells))
        yield f"INSERT INTO {place} ({', '.join(cells)}) VALUES ({marks})", [_value(cell) for cell in cells.values()]


def _value(cell: Json) -> str | bytes | None:
    value: str | None = cell["value"]
    return base64.b64decode(value) if value is not None and cell.get("is_binary") else value
