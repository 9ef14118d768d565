"""A PostgreSQL database of its own for each test, and the connections that lead there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support.changelogs import Changelog
from tests.support.in_process import in_process
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import FloorRaised, LoadReport, TableReport
from ticdc_replay.targets.base import Mirror as TargetMirror
from ticdc_replay.targets.load import load, open_target

AnyMirror = TargetMirror[Any]

TARGET: dict[str, object] = {"type": "postgres", "name": "mirror", "connection": "target"}


class Mirror:
    """One target database."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
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

    def load(
        self, changelog: Changelog, target: dict[str, object] | None = None, parallelism: int = 1, **changes: Any
    ) -> LoadReport:
        """Load *changelog*; *target* adds to the target's section, *changes* to the job."""
        return load(changelog.job({**TARGET, **(target or {})}, **changes), self.connections, in_process, parallelism)

    def load_table(self, changelog: Changelog, **changes: Any) -> TableReport:
        """Load *changelog*, which has one table; what became of it."""
        (report,) = self.load(changelog, **changes).tables
        return report

    def raise_floor(
        self, table: str, floor_ts: int, target: dict[str, object] | None = None, pipeline: str = "pipeline"
    ) -> FloorRaised:
        """Raise the floor of the mirror of *table*."""
        schema, _, name = table.partition(".")
        return self._target(target).raise_floor(pipeline, TableName(schema, name), floor_ts)

    def forget(self, table: str, pipeline: str = "pipeline") -> str:
        """Forget the mirror of *table*."""
        schema, _, name = table.partition(".")
        return self._target(None).forget(pipeline, TableName(schema, name))

    def _target(self, section: dict[str, object] | None) -> AnyMirror:
        target = open_target(read_section({**TARGET, **(section or {})}), self.connections)
        assert isinstance(target, TargetMirror)
        return target

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of *query*."""
        with psycopg.connect(self.dsn, options="-c TimeZone=UTC") as connection:
            return connection.execute(query).fetchall()

    def execute(self, statement: str) -> None:
        """Run *statement*."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute(statement)


@pytest.fixture
def mirror(make_database: Callable[[], str]) -> Mirror:
    return Mirror(make_database())


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"
