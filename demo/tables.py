"""Reads the mirrors of the sample, each cell as the text that the sample has for it."""

import base64
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import psycopg
from psycopg import sql
from pyiceberg.catalog.sql import SqlCatalog

from demo.pipeline import CATALOG, catalog_database

BINARY = ("varbinary", "binary", "blob", "longblob", "mediumblob", "tinyblob")


class Row(NamedTuple):
    """One row of a mirror: its cells as text, and the commitTs (TSO) of its version."""

    cells: dict[str, str | None]
    commit_ts: int


class Tables(ABC):
    """The mirrors in one system."""

    system: ClassVar[str]
    """What people call it."""

    @abstractmethod
    def rows(self, schema: str, table: str, kinds: Mapping[str, str]) -> Iterator[Row]:
        """All rows of a mirror; *kinds* has the type of each column upstream."""

    @abstractmethod
    def close(self) -> None:
        """End what was begun to read."""


class PostgresTables(Tables):
    """Those in a database. PostgreSQL prints each cell by the type that the mirror has."""

    system = "PostgreSQL"

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn)

    def rows(self, schema: str, table: str, kinds: Mapping[str, str]) -> Iterator[Row]:
        fields = sql.SQL(", ").join(_as_text(name, kind) for name, kind in kinds.items())
        query = sql.SQL("SELECT _commit_ts, {} FROM {}").format(fields, sql.Identifier(schema, table))
        for commit_ts, *cells in self._connection.execute(query).fetchall():
            yield Row(dict(zip(kinds, cells, strict=True)), commit_ts)

    def close(self) -> None:
        self._connection.close()


class IcebergTables(Tables):
    """Those of the catalog in a folder, as pyiceberg reads them: without Spark, which has written them."""

    system = "Iceberg"

    def __init__(self, lakehouse: Path) -> None:
        database = catalog_database(lakehouse)
        self._catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{database}", warehouse=lakehouse.as_uri())

    def rows(self, schema: str, table: str, kinds: Mapping[str, str]) -> Iterator[Row]:
        for row in self._catalog.load_table((schema, table)).scan().to_arrow().to_pylist():
            yield Row({name: _text(row[name], kind) for name, kind in kinds.items()}, row["_commit_ts"])

    def close(self) -> None:
        self._catalog.close()


def _as_text(name: str, mysql_type: str) -> sql.Composable:
    """The SQL that prints the column as the sample does."""
    column = sql.Identifier(name)
    base, digits = _base_and_digits(mysql_type)
    if base in BINARY:
        # encode() breaks lines after 76 characters.
        return sql.SQL("replace(encode({}, 'base64'), E'\\n', '')").format(column)
    if base in ("datetime", "timestamp"):
        fraction = f".FF{digits}" if digits else ""
        moment = sql.SQL("{} AT TIME ZONE 'UTC'").format(column) if base == "timestamp" else column
        return sql.SQL("to_char({}, {})").format(moment, sql.Literal(f"YYYY-MM-DD HH24:MI:SS{fraction}"))
    return sql.SQL("{}::text").format(column)


def _text(value: Any, mysql_type: str) -> str | None:
    """*value*, as Arrow gives it, printed as the sample does."""
    match value:
        case None:
            return None
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            moment = value if value.tzinfo is None else value.astimezone(UTC)
            _, digits = _base_and_digits(mysql_type)
            fraction = f".{moment.microsecond:06d}"[: int(digits) + 1] if digits else ""
            return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"
        case Decimal():
            return format(value, "f")
        case float():
            return repr(value).removesuffix(".0")
        case _:
            return str(value)


def _base_and_digits(mysql_type: str) -> tuple[str, str]:
    """``datetime(3)`` → ``datetime`` and ``3``."""
    return mysql_type.split("(")[0].split(" ")[0], mysql_type.partition("(")[2].partition(")")[0]
