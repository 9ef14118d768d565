"""Jobs that the command runs without Spark, and those that are done already."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from demo.embedded_stack.postgres import Postgres
from tests.support.changelogs import Changelog, put, table
from ticdc_replay.cli import submit as cli
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError, TicdcReplayError
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.submit.driver_process import DriverProcess
from ticdc_replay.submit.outcome import JobFile

ORDERS = table("shop.orders", {"id": ColumnType("bigint", declared=True), "v": ColumnType("int", declared=True)})


class Loaded:
    """A load of two rows into a target, as the command submits it; ``started`` are the drivers that it started."""

    def __init__(self, folder: Path, target: dict[str, Any], connections: Connections, **declared: Any) -> None:
        self._connections = connections
        self.file = folder / "shop.yaml"
        document = {
            "name": "pipeline",
            "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
            "connections": {"kafka": "kafka"},
            "artifacts": folder.as_uri(),
            "schedule": {"start": "2026-03-01T00:00:00Z"},
            "runner": "local",
            "targets": [target],
            **declared,
        }
        self.file.write_text(yaml.safe_dump(document), encoding="utf-8")
        changelog = Changelog(folder / "pipeline", 0, 100).rows(
            ORDERS, [put(10, id=1, v=1), put(20, id=2, v=2)], files=2
        )
        self.job = folder / "job.json"
        self.job.write_bytes(canonical.encode(changelog.job(target)))
        self.reload = folder / "reload.json"
        self.reload.write_bytes(canonical.encode(changelog.job(target, reload=True)))

    def submit(self, job: Path | None = None) -> None:
        with ReplayContext(load_pipeline(self.file), self._connections) as context:
            cli.submit((job or self.job).as_uri(), context, None)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of the drivers that were started."""
    commands: list[list[str]] = []
    start = DriverProcess.start

    def noted(driver: DriverProcess) -> None:
        commands.append([*map(str, driver._command)])
        start(driver)

    monkeypatch.setattr(DriverProcess, "start", noted)
    return commands


@pytest.fixture
def lake(tmp_path: Path) -> Loaded:
    return Loaded(tmp_path, {"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}, Connections())


@pytest.fixture
def rows_of(tmp_path: Path) -> Callable[[], list[Path]]:
    return lambda: sorted((tmp_path / "lake").glob("pipeline/fold/**/*.parquet"))


def test_a_job_runs_without_spark(
    lake: Loaded, started: list[list[str]], rows_of: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    lake.submit()
    (command,) = started
    assert command[:3] == [sys.executable, "-m", "ticdc_replay.drivers"]
    assert rows_of()


def test_what_is_done_starts_no_driver_and_leaves_what_a_repeat_leaves(
    lake: Loaded, started: list[list[str]], tmp_path: Path
) -> None:
    lake.submit()
    lake.submit()
    assert len(started) == 1
    reports = list((tmp_path / "pipeline" / "loads").glob("*/lake/*.json"))
    assert len(reports) == 2, "each attempt has one"


def test_a_reload_is_never_done(lake: Loaded, started: list[list[str]]) -> None:
    lake.submit()
    lake.submit(lake.reload)
    assert len(started) == 2


def test_what_is_gone_from_the_target_is_loaded_again(
    lake: Loaded, started: list[list[str]], rows_of: Callable[[], list[Path]], tmp_path: Path
) -> None:
    lake.submit()
    shutil.rmtree(tmp_path / "lake")
    lake.submit()
    assert len(started) == 2
    assert rows_of()


def test_a_mirror_that_is_gone_is_loaded_again(tmp_path: Path, postgres: Postgres, started: list[list[str]]) -> None:
    dsn = postgres.create_database("done")
    target = {"name": "mirror", "type": "postgres", "connection": "mirror"}
    fields = {"login": postgres.user, "password": postgres.password, "host": postgres.host, "port": postgres.port}
    mirror = Loaded(
        tmp_path, target, Connections({"mirror": Connection("mirror", "postgres", schema="done", **fields)})
    )
    mirror.submit()
    mirror.submit()
    assert len(started) == 1
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA _ticdc_replay CASCADE")
        connection.execute("DROP TABLE shop.orders")
        mirror.submit()
        assert len(started) == 2
        assert connection.execute("SELECT id, v FROM shop.orders ORDER BY id").fetchall() == [(1, 1), (2, 2)]
        left = connection.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE '%stage%'").fetchone()
        assert left == (0,), "the look at what is done left nothing"
    postgres.drop_database("done")


def test_the_runner_of_the_pipeline_counts_before_its_spark_connection(
    tmp_path: Path, started: list[list[str]]
) -> None:
    server = Connection("spark_default", "spark_connect", "sc://spark.example")
    target = {"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}
    Loaded(tmp_path, target, Connections({"spark_default": server})).submit()
    assert started[0][1:3] == ["-m", "ticdc_replay.drivers"]


def test_a_load_of_other_tables_says_nothing_of_this_one(
    lake: Loaded, started: list[list[str]], tmp_path: Path
) -> None:
    lake.submit()
    for report in (tmp_path / "pipeline" / "loads").glob("*/lake/*.json"):
        report.write_text(report.read_text().replace('"selection":["*.*"]', '"selection":["shop.items"]'))
    lake.submit()
    assert len(started) == 2


def test_an_error_of_the_driver_is_the_command_s(lake: Loaded, tmp_path: Path) -> None:
    for file in (tmp_path / "pipeline" / "runs").glob("**/*.parquet"):
        file.unlink()
    with pytest.raises(TicdcReplayError, match=r"load: .*parquet"):
        lake.submit()


def test_an_outcome_is_left_beside_the_job(lake: Loaded, tmp_path: Path) -> None:
    lake.submit()
    (left,) = tmp_path.glob("job.*.json")
    attempt = left.name.split(".")[1]
    assert JobFile(lake.job.as_uri(), Connections()).outcome(attempt).counts["upserted"] == 2


def test_tables_that_spark_writes_are_refused(tmp_path: Path) -> None:
    target = {"name": "lake", "type": "delta", "path": (tmp_path / "t").as_uri(), "ledger": (tmp_path / "l").as_uri()}
    loaded = Loaded(tmp_path, {"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}, Connections())
    document = yaml.safe_load(loaded.file.read_text())
    loaded.file.write_text(yaml.safe_dump({**document, "targets": [target]}))
    with pytest.raises(ConfigError, match=r"targets\[0\].*delta: set runner to spark"):
        load_pipeline(loaded.file)
