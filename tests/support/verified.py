"""A table in an upstream and in a mirror, for ``ticdc-replay verify``: the same rows are written to both."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymysql
import pytest
import yaml

from tests.support import mariadb
from tests.support.changelogs import Changelog, Row, put
from tests.support.target_rigs import LakeRig, MirrorRig
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.verify import run_here
from ticdc_replay.large_messages import source_statements
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.upkeep.verification import Verification
from ticdc_replay.stages.upkeep.verify import verify
from ticdc_replay.state.coverage import Coverage, CoveredTable, Quality
from ticdc_replay.verify.compare import Pace
from ticdc_replay.verify.findings import TableVerification

FAST = Pace(1.0)
FIRST = Window(1, 100)
SAFE_POINT = (
    "REPLACE INTO mysql.tidb (VARIABLE_NAME, VARIABLE_VALUE) VALUES ('tikv_gc_safe_point', '19700101-00:00:00 +0000')"
)


@contextmanager
def upstream(folder: Path, programs: mariadb.Programs) -> Iterator[Connection]:
    """A MariaDB server, which plays the changefeed's upstream. Its GC safe point is before all that tests read."""
    with mariadb.running(folder, programs) as connection:
        table = "CREATE TABLE mysql.tidb (VARIABLE_NAME varchar(64) PRIMARY KEY, VARIABLE_VALUE varchar(1024))"
        mariadb.execute(connection, table, SAFE_POINT)
        yield connection


def show_the_present(patched: pytest.MonkeyPatch) -> None:
    """MariaDB has no ``tidb_snapshot``: a user variable takes its place. It shows the present at every TSO."""
    patched.setattr(source_statements, "at_snapshot", lambda tso: Statement("SET @tidb_snapshot = %s", (str(tso),)))
    patched.setattr(source_statements, "GENTLE", ())


class Verified:
    """The pipeline ``pipeline`` of one upstream database and one mirror."""

    def __init__(self, source: Connection, rig: MirrorRig, folder: Path) -> None:
        self.source, self.folder = source, folder
        self.database = f"d{uuid4().hex[:8]}"
        mariadb.execute(source, f"CREATE DATABASE {self.database} CHARSET utf8mb4")
        self.rig = rig
        self.connections = Connections({**self.rig.connections.by_id, "source": source})
        declared = {
            "name": "pipeline",
            "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
            "connections": {"kafka": "kafka", "source": "source"},
            "artifacts": (folder / "artifacts").as_uri(),
            "tables": [f"{self.database}.*"],
            "schedule": {"start": "2025-10-01T00:00:00Z"},
            "targets": [self.rig.section],
        }
        self.file = folder / "pipeline.yaml"
        self.file.write_text(yaml.safe_dump(declared))
        self.context = ReplayContext(load_pipeline(self.file), self.connections)

    def __enter__(self) -> "Verified":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.__exit__()
        mariadb.execute(self.source, f"DROP DATABASE {self.database}")

    def create(self, columns: str, name: str = "t") -> TableSchema:
        """A table of the upstream, and its schema as TiCDC's rows would have it."""
        created = f"CREATE TABLE {self.database}.`{name}` ({columns}) CHARSET utf8mb4 COLLATE utf8mb4_bin"
        mariadb.execute(self.source, created)
        return definition_from_sql(TableName(self.database, name), created).schema()

    @property
    def table(self) -> TableName:
        """The upstream's table ``t``."""
        return TableName(self.database, "t")

    def clear(self) -> None:
        """Forget the table of an earlier example."""
        self.upstream("DROP TABLE IF EXISTS t")
        if self.rig.has_table(f"{self.database}.t"):
            self.mirror("DROP TABLE {t}.t")
            self.rig.forget(f"{self.database}.t")

    def insert(self, schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert *rows* into the upstream's table."""
        names = [column.name for column in schema.columns]
        quoted = ", ".join("`" + name.replace("`", "``").replace("%", "%%") + "`" for name in names)
        places = ", ".join(["%s"] * len(names))
        place = f"`{schema.name.schema}`.`{schema.name.table}`"
        place = place.replace("%", "%%")
        self._run(
            f"INSERT INTO {place} ({quoted}) VALUES ({places})",
            [[_parameter(row.get(column.name), column.type) for column in schema.columns] for row in rows],
        )

    def load(
        self, schema: TableSchema, rows: Sequence[Mapping[str, Any]], window: Window = FIRST, ts: int = 50
    ) -> None:
        """Load *rows*, each with the commitTs *ts*, by a window into the mirror."""
        self.load_rows(schema, [put(ts, **row) for row in rows], window)

    def load_rows(self, schema: TableSchema, rows: Sequence[Row], window: Window = FIRST) -> None:
        """Load row versions by a window into the mirror, and record its coverage."""
        changelog = Changelog(self.folder / "artifacts", window.from_ts, window.to_ts, uuid4().hex)
        self.rig.load(changelog.rows(schema, rows))
        self.cover(schema, window, changelog.run_hash)

    def cover(self, schema: TableSchema, window: Window, run_hash: str, quality: Quality = "complete") -> None:
        """Record that *window* was loaded."""
        place = self.context.place_of("mirror")
        record = Coverage(
            pipeline="pipeline",
            target="mirror",
            place=place,
            window=window,
            run_hash=run_hash,
            selection=(f"{self.database}.*",),
            grade="proven",
            quality=quality,
            tables=(CoveredTable(schema.name, quality),),
            loaded_at_ms=0,
        )
        self.context.state.coverage.record([record])

    def both(self, schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> None:
        """The same *rows* in the upstream and in the mirror."""
        self.insert(schema, rows)
        self.load(schema, rows)

    def upstream(self, *statements: str) -> None:
        """Run statements in the upstream's database."""
        mariadb.execute(self.source, f"USE {self.database}", *statements)

    def mirror(self, statement: str) -> None:
        """Run *statement*, with names in double quotes, in the mirror's database; ``{t}`` is the schema."""
        if isinstance(self.rig, LakeRig):
            if self.rig.kind == "iceberg":
                statement = statement.replace("{t}", f"{self.rig.catalog}.{{t}}")
            statement = statement.replace("`", "``").replace('""', "\0").replace('"', "`").replace("\0", '"')
        self.rig.execute(statement.replace("{t}", self.database))

    def verify(self, pace: Pace = FAST, **options: Any) -> TableVerification:
        """The comparison of the only table."""
        (found,) = self.report(pace, **options).tables
        return found

    def report(self, pace: Pace = FAST, **options: Any) -> Verification:
        """The comparison of all tables."""
        return verify(self.context, "mirror", pace=pace, submit=lambda uri: self.run_job(uri, pace), **options)

    def run_job(self, uri: str, pace: Pace = FAST) -> None:
        """Run the job of a comparison, whose spec is at *uri*, in this process."""
        job = jobspec.read(self.context.artifacts, uri)
        assert isinstance(job, jobspec.VerifyJob)
        run_here(job, self.connections, self.rig.sql, lambda line: None, pace.sleep)

    def differing(self, **options: Any) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """Kind, key and columns of the rows that differ."""
        found = self.verify(**options)
        assert not found.problems, found.problems
        return [(each.kind, each.key, each.columns) for each in found.findings.differences]

    def _run(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with closing(
            pymysql.connect(
                host=self.source.host,
                port=self.source.port,
                user=self.source.login,
                password=self.source.password,
                charset="utf8mb4",
                autocommit=True,
            )
        ) as session:
            cursor = session.cursor()
            cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
            cursor.executemany(statement, rows)


def _parameter(cell: Any, column_type: ColumnType) -> Any:
    """A changelog's *cell* as MySQL takes it."""
    if cell is None:
        return None
    if column_type.base == "time":
        sign, micros = ("-" if cell < 0 else ""), abs(cell)
        seconds, micros = divmod(micros, 1_000_000)
        return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    if isinstance(cell, datetime.datetime):
        return cell.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if cell.tzinfo else str(cell)
    if isinstance(cell, Decimal | datetime.date):
        return str(cell)
    return cell
