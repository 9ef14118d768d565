"""Writing rows of any table, in either database's dialect."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.state.database import Database

_ROWS_PER_STATEMENT = 1_000


class Rows:
    """What the parts of the state store have in common."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._insert = postgresql.insert if database.dialect == "postgresql" else sqlite.insert

    def _replace(self, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        with self._database.writing() as connection:
            self._upsert(connection, table, rows)

    def _upsert(self, connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Insert *rows*, replacing those with the same primary key."""
        keys = [column.name for column in table.primary_key]
        statement = self._insert(table)
        others = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
        if others:
            statement = statement.on_conflict_do_update(index_elements=keys, set_=others)
        else:
            statement = statement.on_conflict_do_nothing()
        for at in range(0, len(rows), _ROWS_PER_STATEMENT):
            connection.execute(statement, rows[at : at + _ROWS_PER_STATEMENT])

    def _insert_new(self, connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Insert those of *rows* whose unique keys are not there yet."""
        statement = self._insert(table).on_conflict_do_nothing()
        for at in range(0, len(rows), _ROWS_PER_STATEMENT):
            connection.execute(statement, rows[at : at + _ROWS_PER_STATEMENT])


def columns_of(topic: TopicIdentity) -> dict[str, str]:
    """The columns that name *topic* in a row."""
    return {"cluster_id": topic.cluster_id, "topic": topic.name, "topic_id": topic.topic_id}
