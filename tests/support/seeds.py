"""Reads dumps with the library's own stages and driver; tasks run here."""

from pathlib import Path
from typing import Any

from tests.support.in_process import InProcess
from ticdc_replay import jobspec
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.drivers.runner import TaskRunner
from ticdc_replay.drivers.seed import run_seed
from ticdc_replay.dumps.dialect import Dialect
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.seed.jobs import check_base, write_seed_job
from ticdc_replay.stages.seed.pin import SeedRequest, dump_uri, pin_dump


def request_of(dump: Path | str, dialect: Dialect = Dialect(), **more: Any) -> SeedRequest:  # noqa: B008
    """The request for *dump*, which was taken with ``--consistency snapshot`` in UTC."""
    return SeedRequest(
        **{"uri": dump_uri(str(dump)), "consistency": "snapshot", "dialect": dialect, "zone": "+00:00", **more}
    )


def seed_job(
    context: ReplayContext, request: SeedRequest, tables: tuple[str, ...] | None = None
) -> tuple[jobspec.SeedJob, str]:
    """The job that reads the dump of *request*, and the name of its manifest."""
    pinned = pin_dump(context, request, tables)
    written = write_seed_job(context, pinned, request, tables)
    job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(f"{context.artifacts_uri}/")))
    assert isinstance(job, jobspec.SeedJob)
    return job, pinned.name


def read_dump(
    context: ReplayContext,
    request: SeedRequest,
    tables: tuple[str, ...] | None = None,
    runner: TaskRunner | None = None,
) -> ChangelogIndex:
    """The changelog of the dump of *request*, recorded as the command does it."""
    job, _ = seed_job(context, request, tables)
    index = run_seed(runner or InProcess(), job, context.connections)
    check_base(context, index.run_hash, tables)
    return index
