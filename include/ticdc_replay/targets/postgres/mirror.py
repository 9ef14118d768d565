"""The mirror in PostgreSQL: what the room ``mirror`` does, over PostgreSQL's sessions, types and COPY."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import ClassVar

from ticdc_replay.domain.connections import Connection
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror.comparison import ComparableMirror, Comparisons
from ticdc_replay.targets.mirror.load import DatabaseMirror
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.session import Session
from ticdc_replay.targets.mirror.staging import StageResult, StageTask
from ticdc_replay.targets.postgres import ledger_tables, staging
from ticdc_replay.targets.postgres.comparison import PostgresComparisons
from ticdc_replay.targets.postgres.dialect import DIALECT
from ticdc_replay.targets.postgres.errors import translated
from ticdc_replay.targets.postgres.section import PostgresTarget
from ticdc_replay.targets.postgres.session import PostgresSession
from ticdc_replay.targets.postgres.settings import PostgresSettings
from ticdc_replay.targets.postgres.stage import stage


class PostgresMirror(DatabaseMirror[PostgresTarget], ComparableMirror[PostgresTarget]):
    """Loads changelogs into PostgreSQL."""

    dialect: ClassVar[Dialect] = DIALECT

    @property
    def destination(self) -> Connection:
        return self.connections[self.config.connection]

    @property
    def writers(self) -> int:
        return self.config.writers

    @contextmanager
    def session(self, doing: str) -> Iterator[Session]:
        settings = self._settings
        with translated(doing, settings.conn_id), closing(settings.connect()) as connection:
            ledger_tables.create(connection)
            yield PostgresSession(connection, settings.conn_id)
            connection.commit()

    @contextmanager
    def attempt(self, load: Load) -> Iterator[Session]:
        settings = self._settings
        with staging.attempt(settings, load) as connection:
            yield PostgresSession(connection, settings.conn_id)

    @contextmanager
    def comparisons(self) -> Iterator[Comparisons]:
        with closing(PostgresComparisons(self._settings)) as session:
            yield session

    @property
    def stage(self) -> Callable[[StageTask], StageResult]:
        return stage

    @property
    def _settings(self) -> PostgresSettings:
        return PostgresSettings(self.destination)
