"""The driver of a change of a mirror that only Spark can change."""

import logging

import msgspec

from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.drivers.runner import TaskRunner
from ticdc_replay.jobspec import AbandonTask, CountDeletedTask, FollowTask, MirrorJob, ReplaceTask, WithdrawTask
from ticdc_replay.schemas.changes import TableChanges
from ticdc_replay.storage import open_store
from ticdc_replay.targets.base import Followed, Replaced, StoppingDdl
from ticdc_replay.targets.lake.mirror import LakeMirror
from ticdc_replay.targets.load import open_target

log = logging.getLogger(__name__)


def run_mirror(runner: TaskRunner, job: MirrorJob, connections: Connections) -> Followed | Replaced | int | bool | None:
    """Do the task of *job*, and keep what it gave. Raises what the method of the mirror raises, and ConfigError without Spark, or
    if the target is no mirror in a lake."""
    mirror = open_target(read_section(job.target), connections)
    if runner.sql is None:
        raise ConfigError(f"target {job.target['name']}: its tables need Spark: set runner to spark")
    if not isinstance(mirror, LakeMirror):
        raise ConfigError(f"target {job.target['name']}: {mirror.config.description} is no mirror in a lake")
    mirror.sql = runner.sql
    done = _done(mirror, job)
    log.info("%s: %s", job.table, done)
    store = open_store(job.artifacts, connections.get(job.artifacts_connection))
    store.put(job.report, canonical.encode(done))
    return done


def _done(mirror: LakeMirror, job: MirrorJob) -> Followed | Replaced | int | bool | None:
    match job.task:
        case FollowTask(commit_ts=commit_ts, changes=changes, selection=selection, dry_run=dry_run):
            decoded = msgspec.json.decode(changes, type=tuple[TableChanges, ...])
            ddl = StoppingDdl(job.table, commit_ts, decoded, selection)
            return (mirror.how_to_follow if dry_run else mirror.follow)(job.pipeline, ddl)
        case ReplaceTask(superseded=superseded, needed=needed):
            return mirror.replace(job.pipeline, job.table, superseded, needed)
        case CountDeletedTask(before_ts=before_ts):
            return mirror.deleted_before(job.table, before_ts)
        case WithdrawTask():
            mirror.withdraw_swap(job.table)
            return None
        case AbandonTask():
            return mirror.abandon(job.table)
