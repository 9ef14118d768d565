"""What the process of every driver does: it reads the job spec, runs the job, and says how it ended."""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError, PermanentError, TicdcReplayError, TransientError
from ticdc_replay.domain.visible import visible_lines
from ticdc_replay.drivers.connections import open_job
from ticdc_replay.drivers.runner import TaskRunner
from ticdc_replay.drivers.submitter import end_with_submitter
from ticdc_replay.jobspec import (
    EXIT_PERMANENT,
    EXIT_TRANSIENT,
    DecodeJob,
    JobSpec,
    LoadJob,
    MaintainJob,
    MirrorJob,
    ReconcileJob,
    ScanJob,
    SeedJob,
    Series,
    VerifyJob,
    title_of,
)
from ticdc_replay.submit.outcome import JobFile, JobOutcome

log = logging.getLogger("ticdc_replay.driver")

_EXIT_CODES = {"permanent": EXIT_PERMANENT, "transient": EXIT_TRANSIENT}

Counts = dict[str, int]
"""What a job did."""


def main(run: Callable[[JobSpec, Connections], Counts], arguments: Sequence[str]) -> None:
    """*run* the job whose spec's URI is the first of *arguments*, and leave its outcome beside the spec.

    The second one names the attempt; without it, as where a person started the driver, no outcome is left. Exits with 0,
    ``EXIT_PERMANENT`` or ``EXIT_TRANSIENT``; any other error leaves its traceback and exit code 1. Ends with the process that
    submitted it on this machine, even where that was killed.
    """
    begin_log()
    if len(arguments) not in (1, 2):
        sys.exit("usage: <driver> <URI of the job spec> [<name of the attempt>]")
    file: JobFile | None = None
    try:
        file, find_connections = open_job(arguments)
        end_with_submitter()
        connections = find_connections()
        outcome = JobOutcome("succeeded", counts=run(file.read(), connections))
    except (PermanentError, TransientError) as error:
        kind = type(error).__name__
        log.error("%s: %s", kind, error)
        permanent = isinstance(error, PermanentError)
        outcome = JobOutcome("permanent" if permanent else "transient", kind, visible_lines(str(error)))
    except Exception as error:
        _leave(file, arguments, JobOutcome("failed", type(error).__name__))
        raise
    _leave(file, arguments, outcome)
    sys.exit(_EXIT_CODES.get(outcome.result, 0))


def run_job(runner: TaskRunner, job: JobSpec, connections: Connections) -> Counts:
    """What *job* did, its tasks run by *runner*. Raises what the driver of its kind raises, and ConfigError for a join of
    a reconciliation, which needs Spark."""
    match job:  # each driver imports much that the others do not need
        case DecodeJob():
            from ticdc_replay.drivers.decode import run_decode

            return msgspec.structs.asdict(run_decode(runner, job, connections).report.events)
        case LoadJob():
            from ticdc_replay.drivers.load import run_load

            tables = run_load(runner, job, connections).tables
            return _added(tables, "events", "upserted", "deleted", "superseded", "quarantined")
        case ScanJob():
            from ticdc_replay.drivers.scan import run_scan

            feeds = run_scan(runner, job, connections).feeds
            return _added([feed.counts for feed in feeds], "messages", "decoded", "references")
        case MaintainJob():
            from ticdc_replay.drivers.maintain import run_maintain

            return run_maintain(runner, job, connections).counts
        case MirrorJob():
            from ticdc_replay.drivers.mirror import run_mirror

            run_mirror(runner, job, connections)
            return {}
        case SeedJob():
            from ticdc_replay.drivers.seed import run_seed

            return {"rows": run_seed(runner, job, connections).report.events.written}
        case VerifyJob():
            from ticdc_replay.drivers.verify import run_verify

            found = [table.findings for table in run_verify(runner, job, connections).tables]
            return _added(found, "source_rows", "missing", "extra", "changed", "newer")
        case Series():
            total: Counter[str] = Counter()
            for number, each in enumerate(job.jobs, 1):
                log.info("%s: %d of %d", title_of(each), number, len(job.jobs))
                total.update(run_job(runner, each, connections))
            return dict(total)
        case ReconcileJob():
            raise ConfigError(f"the join of store {job.store} needs Spark: its rows are sent from task to task")


def begin_log() -> None:
    """From now on this process logs to stderr."""
    logging.basicConfig(level=logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_VisibleFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))


class _VisibleFormatter(logging.Formatter):
    """Shows characters that a terminal would obey: messages and tracebacks hold names of tables and objects."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


def _leave(file: JobFile | None, arguments: Sequence[str], outcome: JobOutcome) -> None:
    if file is None or len(arguments) < 2:
        return
    try:
        file.put_outcome(arguments[1], outcome)
    except TicdcReplayError as error:
        log.warning("how this job ended can't be kept, and its exit code alone says so: %s", error)


def _added(parts: Iterable[object], *names: str) -> Counts:
    parts = list(parts)
    return {name: sum(getattr(part, name) for part in parts) for name in names}
