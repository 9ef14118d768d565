"""Sessions of a load that the server ends: at any statement, and at any commit, before it or after it was done."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pymysql
import pytest

from tests.support.target_rigs import MysqlRig, PostgresRig
from tests.support.waiting import wait_for
from ticdc_replay.targets.postgres.settings import PostgresSettings


class MysqlFault:
    """Kills the load's own session before its *number*-th statement or commit, or after the latter was done."""

    def __init__(self, mirror: MysqlRig, number: int, *, after: bool) -> None:
        self.mirror, self.number, self.after = mirror, number, after
        self.seen, self.struck = 0, False

    @contextmanager
    def watching(self) -> Iterator[None]:
        fault = self

        class Watched(pymysql.connections.Connection):  # type: ignore[type-arg]
            def query(self, sql: Any, unbuffered: bool = False) -> int:
                fault.strike(self, is_after=False)
                done = super().query(sql, unbuffered)
                fault.strike(self, is_after=True)
                return done

            def commit(self) -> None:
                fault.strike(self, is_after=False)
                super().commit()
                fault.strike(self, is_after=True)

        with pytest.MonkeyPatch.context() as patch:
            real = pymysql.connect
            patch.setattr(
                pymysql, "connect", lambda **given: Watched(**given) if "connect_timeout" in given else real(**given)
            )
            yield

    def strike(self, connection: Any, *, is_after: bool) -> None:
        if is_after is not self.after or self.struck:
            return
        self.seen += 1
        if self.seen == self.number:
            self.struck = True
            with contextlib.suppress(pymysql.err.OperationalError):
                self.mirror.execute(f"KILL {connection.thread_id()}")
            gone = f"SELECT 1 FROM information_schema.processlist WHERE id = {connection.thread_id()}"
            wait_for("the session to give back its locks", lambda: not self.mirror.rows(gone))
            if is_after:
                connection.ping(reconnect=False)  # raises: the session is gone


def kill(dsn: str, condition: str) -> None:
    """End the backends that fulfil *condition*, and wait until they have ended."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND {condition}"
        )


class PostgresFault:
    """Kills the load's own connection at the *number*-th moment; ``struck`` tells whether it came to that."""

    def __init__(self, mirror: PostgresRig, number: int) -> None:
        self.mirror = mirror
        self.number = number
        self.seen, self.struck = 0, False

    def __call__(self, connection: psycopg.Connection[Any]) -> None:
        self.seen += 1
        if self.seen == self.number:
            self.struck = True
            kill(self.mirror.dsn, f"pid = {connection.info.backend_pid}")

    @contextmanager
    def before_statements(self) -> Iterator[None]:
        """Strike before a statement or a commit is sent."""
        with self._watching(before=self, after_commit=lambda connection: None):
            yield

    @contextmanager
    def after_commits(self) -> Iterator[None]:
        """Strike after a commit was done and before its answer came."""

        def lose_the_answer(connection: psycopg.Connection[Any]) -> None:
            before = self.struck
            self(connection)
            if self.struck and not before:
                connection.execute("SELECT 1")  # raises: the connection is gone

        with self._watching(before=lambda connection: None, after_commit=lose_the_answer):
            yield

    @contextmanager
    def _watching(self, before: Callable[[Any], None], after_commit: Callable[[Any], None]) -> Iterator[None]:
        class Watched(psycopg.Connection[Any]):
            def execute(self, *arguments: Any, **options: Any) -> Any:
                before(self)
                return super().execute(*arguments, **options)

            def commit(self) -> None:
                before(self)
                super().commit()
                after_commit(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PostgresSettings, "connect", lambda settings: Watched.connect(settings._conninfo))
            yield
