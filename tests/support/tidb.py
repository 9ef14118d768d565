"""A TiDB server on loopback that keeps its data in memory. ``make tidb`` builds its program, once, with Go."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from demo.embedded_stack import cache
from demo.embedded_stack.process import ManagedProcess
from tests.support.mariadb import PASSWORD, USER
from tests.support.waiting import wait_for
from ticdc_replay.domain.connections import Connection

MODULE = Path(__file__).parents[1] / "data" / "tidb"
VERSION = "v1.1.0-beta.0.20241125141335-ec8b81b98edc"
"""As Go names it; it calls itself 8.4."""


def program() -> Path | None:
    """The server's program; None where it was not built."""
    path = cache.folder("tidb") / VERSION / "tidb-server"
    return path if path.exists() else None


def build() -> Path:
    """The server's program, built where it is missing: with Go, in 10 to 20 minutes, out of 3 GB of sources."""
    path = cache.folder("tidb") / VERSION / "tidb-server"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=cache.folder("tidb")) as workshop:
            made = Path(workshop, "made")
            command = [
                "go",
                "build",
                "-mod=readonly",
                "-ldflags",
                "-checklinkname=0 -s -w",
                "-o",
                f"{made}/tidb-server",
            ]
            subprocess.run([*command, "github.com/pingcap/tidb/cmd/tidb-server"], cwd=MODULE, check=True)
            cache.keep(made, path.parent)
    return path


def required() -> Path:
    """The server's program. Skips the test where it was not built."""
    found = program()
    if found is None:
        pytest.skip("no TiDB server: `make tidb` builds it, with Go")
    return found


@contextmanager
def running(folder: Path, found: Path) -> Iterator[Connection]:
    """A fresh server that logs into *folder*; the connection's user may do all."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(found), "-store", "unistore", "-path", "", "-host", "127.0.0.1", "-P", str(port)]
    command += ["-report-status=false", "-socket", "", "-log-file", str(folder / "tidb.log")]
    server = ManagedProcess(command, log=folder / "output.log", env=os.environ, cwd=folder, grace=30.0)

    def answers() -> bool:
        try:
            pymysql.connect(host="127.0.0.1", port=port, user="root").close()
        except pymysql.err.OperationalError:
            if server.exit_code is not None:
                raise RuntimeError(server.log_tail()) from None
            return False
        return True

    try:
        wait_for("TiDB to answer", answers)
        with pymysql.connect(host="127.0.0.1", port=port, user="root") as session, session.cursor() as cursor:
            cursor.execute(f"CREATE USER {USER} IDENTIFIED BY %s", (PASSWORD,))
            cursor.execute(f"GRANT ALL ON *.* TO {USER} WITH GRANT OPTION")
        yield Connection("source", "tidb", "127.0.0.1", port, USER, PASSWORD)
    finally:
        server.stop()


def tso(connection: Connection) -> int:
    """A TSO after all that is committed."""
    arguments = {"host": connection.host, "port": connection.port, "user": USER, "password": PASSWORD}
    with pymysql.connect(**arguments) as session, session.cursor() as cursor:  # type: ignore[arg-type]
        cursor.execute("BEGIN")
        cursor.execute("SELECT TIDB_CURRENT_TSO()")
        ((found,),) = cursor.fetchall()
    return int(found)


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
