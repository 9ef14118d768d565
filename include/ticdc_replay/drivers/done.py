"""Jobs that are done already: they are repeated in the process that would submit them, without tasks."""

import logging
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.decode.plan.changelog_store import ChangelogStore
from ticdc_replay.domain.connections import Connections
from ticdc_replay.drivers.main import Counts, run_job
from ticdc_replay.drivers.progress import Progress
from ticdc_replay.drivers.runner import NumberedTask, TaskRunner, Work
from ticdc_replay.jobspec import DecodeJob, LoadJob, OneJob, ScanJob, SeedJob, Series, VerifyJob
from ticdc_replay.storage import open_store
from ticdc_replay.submit.outcome import JobFile
from ticdc_replay.targets.base import LoadReport

log = logging.getLogger(__name__)


def done_before(uri: str, connections: Connections) -> Counts | None:
    """What the job whose spec is at *uri* did, if it is done; else None, and it must be submitted.

    It is repeated here: its driver itself sees in changelogs and ledgers that nothing is left to do, and leaves what a repeat
    leaves. Raises what the job raises.
    """
    job = JobFile(uri, connections).read()
    if not all(_may_be_done(each, connections) for each in (job.jobs if isinstance(job, Series) else [job])):
        return None
    try:
        counts = run_job(_NoRunner(), job, connections)
    except _NeedsRunnerError:
        return None
    log.info("%s: done before, and nothing is left for a driver to do", uri)
    return counts


def _may_be_done(job: OneJob, connections: Connections) -> bool:
    """Whether an attempt at *job* has ended well, as far as its artefacts say. A load's ledger may know better."""
    store = open_store(job.artifacts, connections.get(job.artifacts_connection))
    match job:
        case DecodeJob() | SeedJob():
            changelog = ChangelogStore(store, job)
            index = changelog.index()
            return index is not None and not changelog.lost(index)
        case LoadJob() if read_section(job.target).spark_properties:
            return False  # Spark alone can look at its tables
        case LoadJob():
            folder = f"loads/{job.run_hash}/{job.target['name']}/"
            reports = [found.name for found in store.list(folder) if found.name.endswith(".json")]
            return not job.reload and any(_selection(store.get(name)) == job.tables for name in reports)
        case ScanJob():
            return store.info(job.report) is not None
        case VerifyJob():
            return store.info(job.result) is not None
        case _:
            return False


def _selection(report: bytes) -> tuple[str, ...]:
    return msgspec.json.decode(report, type=LoadReport).selection


class _NeedsRunnerError(Exception):
    """The job is not done: it has tasks."""


class _NoRunner(TaskRunner):
    """Runs nothing."""

    @property
    def parallelism(self) -> int:
        return 1

    @property
    def sql(self) -> None:
        return None

    @property
    def address(self) -> tuple[str, str]:
        return "", ""

    def outcomes(self, work: Work, tasks: Sequence[NumberedTask], progress: Progress) -> NoReturn:
        raise _NeedsRunnerError
