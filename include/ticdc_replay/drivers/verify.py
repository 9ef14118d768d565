"""The driver of a comparison: of the mirrors of one target with the upstream."""

import logging
import time
from collections.abc import Callable

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.drivers.runner import TaskRunner
from ticdc_replay.jobspec import VerifyJob
from ticdc_replay.storage import ObjectStore, open_store
from ticdc_replay.targets.mirror.verify import Compared, compare
from ticdc_replay.targets.sql import Sql
from ticdc_replay.verify.compare import Pace

log = logging.getLogger(__name__)


def run_verify(runner: TaskRunner, job: VerifyJob, connections: Connections) -> Compared:
    """Do the comparison of *job* and keep its result. Raises what ``targets.mirror.verify.compare`` raises."""
    return run_here(job, connections, runner.sql, lambda line: log.info("%s", line))


def run_here(
    job: VerifyJob,
    connections: Connections,
    sql: Sql | None,
    tell: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Compared:
    """``run_verify`` in a process that has *sql*, or none. *tell* gets lines of progress, *sleep* waits so many seconds."""
    store = open_store(job.artifacts, connections.get(job.artifacts_connection))
    if store.info(job.result) is not None:
        return result_of(store, job)
    found = compare(job, connections, store, sql, Pace(job.share, job.range_rows, sleep), tell)
    store.put(job.result, canonical.encode(found))
    return found


def result_of(store: ObjectStore, job: VerifyJob) -> Compared:
    """What *job*, whose artefacts *store* has, has found. Raises ArtifactNotFoundError if it is not done."""
    return msgspec.json.decode(store.get(job.result), type=Compared)
