"""A database of PostgreSQL, as mirrors and histories reach it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import ClassVar

from ticdc_replay.domain.connections import Connection
from ticdc_replay.targets.base import Load, Target
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.postgres import ledger_tables, staging
from ticdc_replay.targets.postgres.dialect import DIALECT
from ticdc_replay.targets.postgres.errors import translated
from ticdc_replay.targets.postgres.section import PostgresTarget
from ticdc_replay.targets.postgres.session import PostgresSession
from ticdc_replay.targets.postgres.settings import PostgresSettings


class PostgresDatabase(Target[PostgresTarget]):
    """What ``DatabaseMirror`` and ``DatabaseHistory`` ask for."""

    dialect: ClassVar[Dialect] = DIALECT

    @property
    def destination(self) -> Connection:
        return self.connections[self.config.connection]

    @property
    def writers(self) -> int:
        return self.config.writers

    @contextmanager
    def session(self, doing: str) -> Iterator[PostgresSession]:
        settings = self.settings
        with translated(doing, settings.conn_id), closing(settings.connect()) as connection:
            ledger_tables.create(connection)
            yield PostgresSession(connection, settings.conn_id)
            connection.commit()

    @contextmanager
    def attempt(self, load: Load) -> Iterator[PostgresSession]:
        settings = self.settings
        with staging.attempt(settings, load) as connection:
            yield PostgresSession(connection, settings.conn_id)

    @property
    def settings(self) -> PostgresSettings:
        """How it is reached."""
        return PostgresSettings(self.destination)
