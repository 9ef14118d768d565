"""Rows in bulk: LOAD DATA LOCAL out of memory where the server takes it, otherwise INSERT of many rows."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pymysql.connections import MySQLResult

from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.targets.mysql import row_text
from ticdc_replay.targets.mysql.server import MysqlConnection, Server

log = logging.getLogger(__name__)

_PACKET = 1 << 20
"""Bytes of a file that go to the server at once."""
_STATEMENT = 4 << 20
"""Bytes of an INSERT, where the server takes so many."""


class BulkConnection(MysqlConnection):
    """A connection whose server gets the rows that were handed over, and never a file of this machine: with pymysql's own
    LOCAL a server could ask for any."""

    def __init__(self, **arguments: Any) -> None:
        self.to_send: memoryview | None = None
        self.packet = _PACKET
        super().__init__(**arguments, local_infile=True)

    def load(self, server: Server, table: str, columns: str, rows: pa.RecordBatch) -> None:
        """Put *rows* into *columns* of *table*; both are quoted. Raises the errors of pymysql, also for a value that does not
        fit."""
        self.packet = min(_PACKET, server.max_packet // 2)
        if rows.num_rows == 0 or (server.reads_local and self._load_data(table, columns, rows)):
            return
        self._insert(server, table, columns, rows)

    def _load_data(self, table: str, columns: str, rows: pa.RecordBatch) -> bool:
        """Whether the server took *rows* as they are: with LOCAL a value that does not fit is altered, with a warning, whatever
        the mode. Then it has none of them."""
        self.to_send = row_text.load_data(rows)
        try:
            with self.cursor() as cursor:
                cursor.execute("SAVEPOINT rows_before")
                # Bytes are taken as they are: texts are UTF-8 already.
                count = cursor.execute(
                    f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table} CHARACTER SET binary ({columns})"
                )
                warnings = cursor.execute("SHOW WARNINGS")
                if count == rows.num_rows and not warnings:
                    return True
                first = cursor.fetchone()  # its text may show a value
                code = first[1] if first else None
                log.info("%s: LOAD DATA would have altered rows (warning %s); they are inserted", table, code)
                cursor.execute("ROLLBACK TO SAVEPOINT rows_before")
                return False
        finally:
            self.to_send = None

    def _insert(self, server: Server, table: str, columns: str, rows: pa.RecordBatch) -> None:
        begin = f"INSERT INTO {table} ({columns}) VALUES ".encode()
        room = server.max_packet - 1024 - len(begin)
        values = row_text.values(rows)
        longest = max(map(len, values))
        if longest > room:
            raise PermanentError(
                f"a row of {longest} bytes is longer than the server's max_allowed_packet, {server.max_packet}: set that higher, "
                "or local_infile on"
            )
        with self.cursor() as cursor:
            for part in _parts(values, min(_STATEMENT, room)):
                cursor.execute(begin + b",".join(part))

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        """As pymysql does, with a result that sends ``to_send`` where the server asks for a file."""
        self._result = None
        result = _Result(self)
        if unbuffered:
            result.init_unbuffered_query()
        else:
            result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows


class _Result(MySQLResult):
    """A result of a ``BulkConnection``."""

    def _read_load_local_packet(self, first_packet: Any) -> None:
        connection: Any = self.connection
        rows, connection.to_send = connection.to_send, None
        for start in range(0, len(rows or b""), connection.packet):
            connection.write_packet(bytes(rows[start : start + connection.packet]))
        connection.write_packet(b"")
        packet = connection._read_packet()
        if rows is None:
            raise PermanentError("the server asked for a file of this machine, which no statement named")
        self._read_ok_packet(packet)  # type: ignore[attr-defined]


def _parts(values: Sequence[bytes], room: int) -> Iterator[list[bytes]]:
    """*values* in their order, at most *room* bytes at once, but at least one."""
    part: list[bytes] = []
    size = 0
    for value in values:
        if part and size + len(value) > room:
            yield part
            part, size = [], 0
        part.append(value)
        size += len(value) + 1
    if part:
        yield part
