"""A MariaDB server on loopback: the peer for what is MySQL's in reading the source. It has no ``tidb_snapshot``."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql

from ticdc_replay.domain.connections import Connection

USER, PASSWORD = "replay", "replay's secret"


def installed() -> bool:
    """Whether this machine has the server's programs."""
    return shutil.which("mariadbd") is not None and shutil.which("mariadb-install-db") is not None


@contextmanager
def running(folder: Path) -> Iterator[Connection]:
    """A fresh server with its data in *folder*; the connection's user may do all."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = ["--no-defaults", f"--datadir={folder / 'data'}"]
    if os.getuid() == 0:
        common.append("--user=root")
    subprocess.run(
        ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    start = folder / "start.sql"
    quoted = PASSWORD.replace("'", "''")
    start.write_text(
        f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{quoted}';\nGRANT ALL ON *.* TO {USER}@'127.0.0.1';\n"
    )
    log = folder / "error.log"
    options = [f"--socket={folder / 's'}", f"--port={port}", "--bind-address=127.0.0.1", f"--log-error={log}"]
    server = subprocess.Popen(["mariadbd", *common, *options, f"--init-file={start}", "--innodb-buffer-pool-size=32M"])
    try:
        connection = Connection("source", "mysql", "127.0.0.1", port, USER, PASSWORD)
        _wait(connection, server, log)
        yield connection
    finally:
        server.terminate()
        server.wait(30)


def execute(connection: Connection, *statements: str) -> None:
    """Run *statements* in one session that takes any value."""
    assert connection.host is not None
    assert connection.port is not None
    with pymysql.connect(
        host=connection.host, port=connection.port, user=USER, password=PASSWORD, charset="utf8mb4", autocommit=True
    ) as session:
        cursor = session.cursor()
        for statement in ("SET time_zone = '+00:00', sql_mode = ''", *statements):
            cursor.execute(statement)


def cut_sessions(connection: Connection) -> None:
    """End every session of the connection's user, as a restart of the server would."""
    with contextlib.suppress(pymysql.err.OperationalError):  # this session is cut as well
        execute(connection, f"KILL USER {USER}@'127.0.0.1'")


def _wait(connection: Connection, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            execute(connection)
            return
        except pymysql.err.OperationalError:
            if time.monotonic() > deadline or server.poll() is not None:
                raise RuntimeError(log.read_text() if log.exists() else "mariadbd did not start") from None
            time.sleep(0.1)
