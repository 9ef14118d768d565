"""Mirrors of every kind behind one interface, so that one suite runs over all of them."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import psycopg
import pymysql
from pyspark.sql import SparkSession

from demo.embedded_stack.spark import SparkConnect
from tests.support.changelogs import Changelog
from tests.support.connect import CATALOG_SECRETS
from tests.support.in_process import in_process
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.mysql_protocol import arguments, identifier, is_system_schema
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.targets.base import FloorRaised, LoadReport, RebuildableTarget, TableReport
from ticdc_replay.targets.base import Mirror as TargetMirror
from ticdc_replay.targets.lake.mirror import LakeMirror, format_of
from ticdc_replay.targets.lake.section import LakeSection
from ticdc_replay.targets.load import load, open_target
from ticdc_replay.targets.sql import Sql

AnyMirror = TargetMirror[Any]


class MirrorRig(ABC):
    """One target, empty at first, of the pipeline ``pipeline``."""

    section: dict[str, object]
    connections: Connections
    sql: Sql | None = None

    def load(
        self, changelog: Changelog, target: dict[str, object] | None = None, parallelism: int = 1, **changes: Any
    ) -> LoadReport:
        """Load *changelog*; *target* adds to the target's section, *changes* to the job."""
        job = changelog.job({**self.section, **(target or {})}, **changes)
        return load(job, self.connections, in_process, parallelism, self.sql)

    def load_table(self, changelog: Changelog, **changes: Any) -> TableReport:
        """Load *changelog*, which has one table; what became of it."""
        (report,) = self.load(changelog, **changes).tables
        return report

    def load_all(self, changelogs: Iterable[Changelog], **changes: Any) -> None:
        """Load *changelogs* in their order. Those that ask for the windows between come again after the others."""
        waiting = list(changelogs)
        while waiting:
            later = []
            for changelog in waiting:
                try:
                    self.load(changelog, **changes)
                except PolicyStopError as stop:
                    if "Load the windows between them first" not in str(stop):
                        raise
                    later.append(changelog)
            assert len(later) < len(waiting), "windows wait for each other"
            waiting = later

    def raise_floor(
        self, table: str, floor_ts: int, target: dict[str, object] | None = None, pipeline: str = "pipeline"
    ) -> FloorRaised:
        """Raise the floor of the mirror of *table*."""
        schema, _, name = table.partition(".")
        return self.target(target).raise_floor(pipeline, TableName(schema, name), floor_ts)

    def forget(self, table: str, pipeline: str = "pipeline") -> str:
        """Forget what was loaded of *table*."""
        schema, _, name = table.partition(".")
        target = open_target(read_section(self.section), self.connections)
        assert isinstance(target, RebuildableTarget)
        return target.forget(pipeline, TableName(schema, name))

    def target(self, section: dict[str, object] | None) -> AnyMirror:
        """The target, for what people do to it."""
        target = open_target(read_section({**self.section, **(section or {})}), self.connections)
        assert isinstance(target, TargetMirror)
        return target

    def changeable(self, section: dict[str, object] | None = None) -> AnyMirror:
        """The target, as a job has it that changes tables outside of loads."""
        target = self.target(section)
        if isinstance(target, LakeMirror):
            target.sql = self.sql
        return target

    @abstractmethod
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of *query*, in which ``schema.table`` names a table of the target."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Run *statement*, in which ``schema.table`` names a table of the target."""

    @abstractmethod
    def has_table(self, table: str) -> bool:
        """Whether the target has *table*."""


class PostgresRig(MirrorRig):
    """One database."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.section = {"type": "postgres", "name": "mirror", "connection": "target"}
        parts = urlsplit(dsn)
        self.connections = Connections(
            {
                "target": Connection(
                    "target",
                    "postgres",
                    parts.hostname,
                    parts.port,
                    parts.username,
                    parts.password,
                    parts.path.lstrip("/"),
                )
            }
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, options="-c TimeZone=UTC") as connection:
            return connection.execute(query).fetchall()

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute(statement)

    def has_table(self, table: str) -> bool:
        return self.rows(f"SELECT to_regclass('{table}') IS NOT NULL")[0][0]


class MysqlRig(MirrorRig):
    """A server of its own for as long as the test runs: every database that is there is dropped first."""

    def __init__(self, server: Connection) -> None:
        self.server = server
        self.section = {"type": "mysql", "name": "mirror", "connection": "target"}
        self.connections = Connections({"target": msgspec.structs.replace(server, conn_id="target")})
        for (name,) in self.rows("SELECT schema_name FROM information_schema.schemata"):
            if not is_system_schema(name):
                self.execute(f"DROP DATABASE {identifier(name)}")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return list(self._run(query))

    def execute(self, statement: str) -> None:
        self._run(statement)

    def has_table(self, table: str) -> bool:
        schema, _, name = table.partition(".")
        return bool(
            self.rows(
                f"SELECT 1 FROM information_schema.tables WHERE (table_schema, table_name) = ('{schema}', '{name}')"
            )
        )

    def _run(self, statement: str) -> Sequence[tuple[Any, ...]]:
        session = pymysql.connect(**arguments(self.server, 3306), autocommit=True)
        with session, session.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00', sql_mode = 'ANSI_QUOTES'")
            cursor.execute(statement)
            return cursor.fetchall()


class LakeRig(MirrorRig):
    """Tables of one format and ledger below a folder of their own."""

    schema: str | None = None
    """That of all tables in Spark's own catalog, if they are there."""
    _has_views = False
    _TABLE = re.compile(r"(?<![\w.'-])([a-z]\w*)\.([a-z]\w*)\b")

    def __init__(self, kind: str, spark: SparkSession, folder: Path, **section: object) -> None:
        self.kind = kind
        self.spark = spark
        self.sql = SparkSql(spark)
        self.connections = Connections()
        self.folder = folder / uuid4().hex
        self.ledger = self.folder / "ledger"
        self.section = {"type": kind, "name": "mirror", "ledger": self.ledger.as_uri()}
        if kind == "iceberg":
            self.catalog = f"lake_{uuid4().hex[:12]}"
            self.section |= {
                "catalog": self.catalog,
                "settings": {"type": "hadoop", "warehouse": (self.folder / "tables").as_uri()},
            }
        else:
            self.section |= {"path": (self.folder / "tables").as_uri()}
        self.section |= section

    def use_catalog_with_views(self) -> None:
        """Have the tables in a catalog that holds views, Delta's in a schema of their own there."""
        self._has_views = True
        if self.kind == "iceberg":
            settings = {"type": "jdbc", "uri": f"jdbc:sqlite:{self.folder}/catalog.db", "jdbc.schema-version": "V1"}
            self.folder.mkdir(parents=True)
            self.section["settings"] = {**settings, "warehouse": str(self.folder / "tables")}
        else:
            del self.section["path"]
            self.schema = self.section["schema"] = f"views_{uuid4().hex[:12]}"

    def use_catalog_of(self, server: SparkConnect) -> None:
        """Have the tables in the Iceberg catalog ``lakehouse`` that *server* has in its own settings, with its secrets."""
        warehouse = {"type": "hadoop", "warehouse": (server.folder / "lake").as_uri()}
        self.connections = Connections({"catalog": Connection("catalog", "generic", extra=warehouse | CATALOG_SECRETS)})
        self.catalog = self.section["catalog"] = "lakehouse"
        self.section["connection"] = "catalog"
        del self.section["settings"]

    def know_catalog(self) -> None:
        """Give the session the settings of the catalog, as a load in it does."""
        section = read_section(self.section)
        assert isinstance(section, LakeSection)
        secrets = section.secret_settings(self.connections.get(section.connection))
        self.sql.set(format_of(section).catalog_settings(secrets), secrets)

    def named(self, query: str) -> str:
        """*query* with the names that Spark has for the tables."""
        if self.schema is not None:
            return self._TABLE.sub(rf"spark_catalog.{self.schema}.\2", query)
        if self.kind == "iceberg":
            return self._TABLE.sub(
                lambda found: found[0] if found[1] == self.catalog else f"{self.catalog}.{found[0]}", query
            )
        return self._TABLE.sub(rf"delta.`{(self.folder / 'tables').as_uri()}/\1/\2`", query)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(self.named(query)).collect()]

    def execute(self, statement: str) -> None:
        self.spark.sql(self.named(statement))

    def has_table(self, table: str) -> bool:
        schema, _, name = table.partition(".")
        metadata = {"iceberg": "metadata", "delta": "_delta_log"}[self.kind]
        if self._has_views and self.kind == "iceberg":  # its folders have names of their own
            found = self.spark.sql(f"SHOW TABLES IN {self.catalog}.{schema}").collect()
            if name not in {row["tableName"] for row in found}:
                return False
        elif not (self.folder / "tables" / schema / name / metadata).exists():
            return False
        return "ticdc-replay.dropped" not in dict(self.rows(f"SHOW TBLPROPERTIES {table}"))

    def version(self, table: str) -> int:
        """The snapshot or version that *table* has now."""
        if self.kind == "iceberg":
            query = f"SELECT snapshot_id FROM {self.catalog}.{table}.refs WHERE name = 'main'"
            return int(self.spark.sql(query).collect()[0][0])
        return int(self.rows(f"DESCRIBE HISTORY {table}")[0][0])

    def roll_back(self, table: str, version: int) -> None:
        """Give *table* the rows that it had in *version*, as a person would."""
        if self.kind == "iceberg":
            self.spark.sql(f"CALL {self.catalog}.system.set_current_snapshot('{table}', {version})")
        else:
            self.execute(f"RESTORE TABLE {table} TO VERSION AS OF {version}")
