"""What the subjects of the state store share: how they read, and how they write rows in either database's dialect."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, Table
from sqlalchemy.dialects import postgresql, sqlite

from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.window import Window
from ticdc_replay.state.database import Database

_ROWS_PER_STATEMENT = 1_000


class Subject:
    """One subject of the state store: its records, and the statements that read and write them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _all(self, wanted: Select[Any]) -> Sequence[Row[Any]]:
        with self._database.reading() as connection:
            return connection.execute(wanted).all()

    def _one(self, wanted: Select[Any]) -> Row[Any] | None:
        with self._database.reading() as connection:
            return connection.execute(wanted).one_or_none()

    def _replace(self, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        with self._database.writing() as connection:
            upsert(connection, table, rows)

    def _keep_first(self, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        with self._database.writing() as connection:
            insert_new(connection, table, rows)


def upsert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert *rows*, replacing those with the same primary key."""
    keys = [column.name for column in table.primary_key]
    statement = _insert(connection, table)
    others = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
    if others:
        statement = statement.on_conflict_do_update(index_elements=keys, set_=others)
    else:
        statement = statement.on_conflict_do_nothing()
    _execute(connection, statement, rows)


def insert_new(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert those of *rows* whose unique keys are not there yet."""
    _execute(connection, _insert(connection, table).on_conflict_do_nothing(), rows)


def _insert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _execute(
    connection: Connection, statement: postgresql.Insert | sqlite.Insert, rows: Sequence[dict[str, Any]]
) -> None:
    for at in range(0, len(rows), _ROWS_PER_STATEMENT):
        connection.execute(statement, rows[at : at + _ROWS_PER_STATEMENT])


def is_of_window(table: Table, pipeline: str, window: Window) -> tuple[Any, ...]:
    """The conditions for a row of *table* to be of *window* of *pipeline*."""
    return table.c.pipeline == pipeline, table.c.from_ts == window.from_ts, table.c.to_ts == window.to_ts


def overlaps(table: Table, pipeline: str, window: Window) -> tuple[Any, ...]:
    """The conditions for a row of *table* to be of a window of *pipeline* that overlaps *window*."""
    return table.c.pipeline == pipeline, table.c.from_ts < window.to_ts, table.c.to_ts > window.from_ts


def topic_columns(topic: TopicIdentity) -> dict[str, str]:
    """The columns that name *topic* in a row."""
    return {"cluster_id": topic.cluster_id, "topic": topic.name, "topic_id": topic.topic_id}


def topic_of(row: Row[Any]) -> TopicIdentity:
    """The topic that *row* names."""
    return TopicIdentity(row.cluster_id, row.topic, row.topic_id)
