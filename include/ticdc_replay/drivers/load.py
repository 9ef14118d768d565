"""The driver of a load: from a changelog to one target."""

import logging
import time

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.drivers.runner import TaskRunner
from ticdc_replay.jobspec import LoadJob
from ticdc_replay.storage import open_store
from ticdc_replay.targets.base import LoadReport
from ticdc_replay.targets.load import load

log = logging.getLogger(__name__)


def run_load(runner: TaskRunner, job: LoadJob, connections: Connections) -> LoadReport:
    """Load the changelog of *job* and keep the report. Raises what ``targets.load.load`` raises."""
    began = time.monotonic()
    report = load(job, connections, runner.run, runner.parallelism, runner.sql)
    report = msgspec.structs.replace(report, took_ms=round(1000 * (time.monotonic() - began)))
    store = open_store(job.artifacts, connections.get(job.artifacts_connection))
    store.put_once(report.name, canonical.encode(report))
    for table in report.tables:
        log.info(
            "%s: %s, %d events, %d upserted, %d deletes (%d of rows that were there), %d superseded, %d quarantined",
            table.destination,
            table.outcome,
            table.events,
            table.upserted,
            table.tombstones,
            table.deleted,
            table.superseded,
            table.quarantined,
        )
    return report
