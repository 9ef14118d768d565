"""The driver of the maintenance of lake tables."""

import logging

from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError
from ticdc_replay.drivers.runner import TaskRunner
from ticdc_replay.jobspec import MaintainJob
from ticdc_replay.storage import open_store
from ticdc_replay.targets.lake.maintain import maintain
from ticdc_replay.targets.lake.upkeep import MaintenanceReport

log = logging.getLogger(__name__)


def run_maintain(runner: TaskRunner, job: MaintainJob, connections: Connections) -> MaintenanceReport:
    """Maintain the tables of *job* and keep the report.

    Raises PermanentError or TransientError, once all tables were tried, if some failed; and what ``maintain`` raises.
    """
    if runner.sql is None:
        raise ConfigError(f"maintenance of target {job.target['name']} needs Spark: set runner to spark")
    report = maintain(job, connections, runner.run, runner.sql)
    open_store(job.artifacts, connections.get(job.artifacts_connection)).put(job.report, canonical.encode(report))
    for table in report.tables:
        log.info(
            "%s: %s, %s -> %s, removed %s", table.destination, table.outcome, table.before, table.after, table.removed
        )
    failed = [table for table in report.tables if table.outcome == "failed"]
    if failed:
        text = "\n".join(f"{table.destination}: {table.error}" for table in failed)
        raise (PermanentError if any(table.is_permanent for table in failed) else TransientError)(text)
    return report
