"""A server of MySQL, TiDB or MariaDB, as mirrors and histories reach it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property

from ticdc_replay.domain.connections import Connection
from ticdc_replay.targets.base import Load, Target
from ticdc_replay.targets.mirror.marks import place_of
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mysql import ledger_tables, staging
from ticdc_replay.targets.mysql.dialect import DIALECT, FOLDING_DIALECT
from ticdc_replay.targets.mysql.errors import translated
from ticdc_replay.targets.mysql.section import MysqlTarget
from ticdc_replay.targets.mysql.server import look
from ticdc_replay.targets.mysql.session import MysqlSession
from ticdc_replay.targets.mysql.settings import MysqlSettings


class MysqlDatabase(Target[MysqlTarget]):
    """What ``DatabaseMirror`` and ``DatabaseHistory`` ask for."""

    @cached_property
    def dialect(self) -> Dialect:
        """That of the server's names, which are asked for once."""
        settings = self.settings
        with translated("connect", settings.conn_id), closing(settings.connect()) as connection:
            return FOLDING_DIALECT if look(connection).folds_names else DIALECT

    @property
    def destination(self) -> Connection:
        return self.connections[self.config.connection]

    @property
    def writers(self) -> int:
        return self.config.writers

    @contextmanager
    def session(self, doing: str) -> Iterator[MysqlSession]:
        settings = self.settings
        with translated(doing, settings.conn_id), closing(settings.connect()) as connection:
            server = look(connection)
            ledger_tables.create(connection, server)
            place = place_of(self.config, self.dialect)
            session = MysqlSession(connection, server, settings.conn_id, place, self.config.rows_per_commit)
            session.end_begun()
            yield session
            connection.commit()

    @contextmanager
    def attempt(self, load: Load) -> Iterator[MysqlSession]:
        settings = self.settings
        with staging.attempt(settings, load) as (connection, server):
            place = place_of(self.config, self.dialect)
            session = MysqlSession(connection, server, settings.conn_id, place, self.config.rows_per_commit)
            with session.translated("end what broke"):
                session.end_begun()
            yield session

    @property
    def settings(self) -> MysqlSettings:
        """How it is reached."""
        return MysqlSettings(self.destination)
