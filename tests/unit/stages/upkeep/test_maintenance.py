"""The job that maintains lake tables, from the pipeline file to its spec."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ticdc_replay import jobspec
from ticdc_replay.airflow.operators.maintain_step import MaintainTarget
from ticdc_replay.cli.main import app
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import MaintainJob, connections_of, title_of
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.upkeep.maintenance import write_maintain_job
from ticdc_replay.submit.submitter import Submission

PIPELINE: dict[str, Any] = {
    "name": "shop",
    "changefeed": {"sink_uri": "kafka://b:9092/t?protocol=open-protocol", "timezone": "UTC"},
    "connections": {"kafka": "k"},
    "tables": ["shop.*"],
    "schedule": {"start": "2026-03-01T00:00:00Z"},
}
ICE = {"name": "ice", "type": "iceberg", "catalog": "lake", "ledger": "file:///dev/null/ice", "connection": "secrets"}
DELTA = {"name": "delta", "type": "delta", "path": "file:///dev/null/delta", "ledger": "file:///dev/null/d"}
FILES = {"name": "files", "type": "parquet", "uri": "file:///dev/null/files"}
CONNECTIONS = Connections({"secrets": Connection("secrets", "generic")})

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*targets: dict[str, Any]) -> Path:
        file = tmp_path / "shop.yaml"
        content = PIPELINE | {"artifacts": (tmp_path / "artifacts").as_uri(), "targets": list(targets)}
        file.write_text(yaml.safe_dump(content))
        return file

    return write


def test_a_job_names_its_target_and_tables_and_gets_what_the_target_needs(write: Write) -> None:
    pipeline = load_pipeline(write(FILES, ICE))
    with ReplayContext(pipeline, CONNECTIONS) as context:
        written = write_maintain_job(context, "ice", ("shop.o*",), dry_run=True)
        job = jobspec.read(context.artifacts, written.uri)
        submission = Submission(written.uri, CONNECTIONS, context.pipeline)
    assert isinstance(job, MaintainJob)
    assert (job.tables, job.dry_run, job.target["name"]) == (("shop.o*",), True, "ice")
    assert job.target["maintenance"] == {
        "keep_days": 7,
        "orphan_days": 3,
        "target_file_bytes": 128 * 2**20,
        "schedule": None,
    }
    assert job.report == f"maintenance/ice/{written.run_hash}.json"
    assert (title_of(job), connections_of(job)) == ("maintain shop ice", ["secrets"])
    assert Path(submission.script).name == "maintain.py"
    assert "IcebergSparkSessionExtensions" in submission.properties["spark.sql.extensions"]
    assert submission.properties["spark.speculation"] == "false"


def test_attempts_of_a_task_are_at_one_job_and_another_run_has_another(write: Write) -> None:
    began = datetime(2026, 3, 2, tzinfo=UTC)
    answers = {"tables": ["*.*"], "dry_run": False}
    with ReplayContext(load_pipeline(write(FILES, ICE)), CONNECTIONS) as context:
        first, again, later = (
            MaintainTarget("ice").find(context, {"params": answers, "dag_run": SimpleNamespace(start_date=each)})
            for each in (began, began, began + timedelta(hours=1))
        )
    assert first == again
    assert later.run_hash != first.run_hash


def test_a_target_without_lake_tables_is_refused(write: Write) -> None:
    pipeline = load_pipeline(write(FILES, ICE))
    with (
        ReplayContext(pipeline, CONNECTIONS) as context,
        pytest.raises(ConfigError, match="those of pipeline shop: ice"),
    ):
        write_maintain_job(context, "files")


def test_the_command_refuses_a_pipeline_without_lake_tables(write: Write) -> None:
    done = CliRunner().invoke(app, ["maintain", str(write(FILES))], env={"AIRFLOW_CONN_K": '{"conn_type": "kafka"}'})
    assert done.exit_code == 2
    assert "pipeline shop has no target with lake tables" in done.output


@pytest.mark.parametrize(
    ("maintenance", "message"),
    [
        ({"orphan_days": 0}, "orphan_days: too small; at least 1"),
        ({"keep_days": 0}, "keep_days: too small; at least 1"),
        ({"target_file_bytes": 1}, "target_file_bytes: too small; at least 1048576"),
        ({"schedule": "never"}, "must be a cron expression of five fields"),
    ],
)
def test_what_could_remove_files_of_a_running_load_is_refused(
    write: Write, maintenance: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"(?i){message}"):
        load_pipeline(write(ICE | {"maintenance": maintenance}))


def test_lake_targets_of_a_pipeline_have_one_schedule(write: Write) -> None:
    daily = {"maintenance": {"schedule": "@daily"}}
    load_pipeline(write(ICE | daily, FILES, DELTA | daily))
    with pytest.raises(ConfigError, match=r"maintenance.schedule: must be that of target ice \(@daily\)"):
        load_pipeline(write(ICE | daily, DELTA))
