"""What the subjects of the state store share: records as rows, and reading and writing them in either database's dialect."""

import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Row, Select, Table, text
from sqlalchemy.dialects import postgresql, sqlite

from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.window import Window
from ticdc_replay.state.database import Database

Record = TypeVar("Record", bound=msgspec.Struct)

_ROWS_PER_STATEMENT = 1_000
_SERVER_CLOCK = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


class Subject:
    """One subject of the state store: its records, and the statements that read and write them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _all(self, wanted: Select[Any]) -> Sequence[Row[Any]]:
        with self._database.reading() as connection:
            return connection.execute(wanted).all()

    def _records(self, kind: type[Record], wanted: Select[Any]) -> list[Record]:
        return [record_of(kind, row) for row in self._all(wanted)]

    def _replace(self, table: Table, records: Iterable[msgspec.Struct], **columns: str) -> None:
        """Write *records*, all with these *columns*; they replace rows with the same keys."""
        with self._database.writing() as connection:
            upsert(connection, table, [row_of(record) | columns for record in records])


def row_of(record: msgspec.Struct) -> dict[str, Any]:
    """The columns of *record*: its members, but a window, a topic and offsets have columns with names of their own."""
    row = msgspec.structs.asdict(record)
    if "window" in row:
        row |= msgspec.structs.asdict(row.pop("window"))
    if isinstance(row.get("topic"), TopicIdentity):
        row |= topic_columns(row["topic"])
    if "start" in row:
        row["start_offset"], row["end_offset"] = row.pop("start"), row.pop("end")
    return row


def record_of(kind: type[Record], row: Row[Any], **others: object) -> Record:
    """The record of *kind* that *row* holds, with the *others* of its members, which have no column."""
    members = {str(name): value for name, value in row._mapping.items()} | others
    if "from_ts" in members:
        members["window"] = Window(row.from_ts, row.to_ts)
    if "topic" in members and "topic_id" not in kind.__struct_fields__:
        members["topic"] = topic_of(row)
    if "start_offset" in members:
        members["start"], members["end"] = row.start_offset, row.end_offset
    if "selection" in members:
        members["selection"] = tuple(row.selection)
    return kind(**{name: members[name] for name in kind.__struct_fields__ if name in members})


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


def now_ms(connection: Connection) -> int:
    """The time of the one clock of a state store, in ms since the Unix epoch: PostgreSQL's, or that of the file's machine."""
    if connection.dialect.name == "postgresql":
        return int(connection.execute(_SERVER_CLOCK).scalar_one())
    return int(time.time() * 1000)


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
