"""The main function of the entry scripts in ``spark/jobs``: reads the job spec, runs it, and says how it ended."""

import logging
import sys
from collections.abc import Iterable

import msgspec

from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError, PermanentError, TicdcReplayError, TransientError
from ticdc_replay.domain.visible import visible_lines
from ticdc_replay.jobspec import (
    EXIT_PERMANENT,
    EXIT_TRANSIENT,
    DecodeJob,
    JobSpec,
    LoadJob,
    MaintainJob,
    ReconcileJob,
    ScanJob,
    kind_of,
    title_of,
)
from ticdc_replay.reconcile.judge.classified import ClassifiedFile
from ticdc_replay.spark.decode import run_decode
from ticdc_replay.spark.executors import require_executors
from ticdc_replay.spark.load import run_load
from ticdc_replay.spark.maintain import run_maintain
from ticdc_replay.spark.reconcile_job import run_reconcile
from ticdc_replay.spark.scan import run_scan
from ticdc_replay.spark.session import open_session, read_connections
from ticdc_replay.spark.submitter import end_with_submitter
from ticdc_replay.submit.outcome import JobFile, JobOutcome

log = logging.getLogger("ticdc_replay.spark")

_EXIT_CODES = {"permanent": EXIT_PERMANENT, "transient": EXIT_TRANSIENT}


class _VisibleFormatter(logging.Formatter):
    """Shows characters that a terminal would obey: messages and tracebacks hold names of tables and objects."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


def main(kind: str) -> None:
    """Run the job of *kind* whose spec's URI is the script's first argument, and leave its outcome beside the spec.

    The second argument names the attempt; without one, as where a person started the driver, no outcome is left. Exits with 0,
    ``EXIT_PERMANENT`` or ``EXIT_TRANSIENT``; any other error leaves its traceback and exit code 1. Ends with the process that
    submitted it, even where that was killed.
    """
    logging.basicConfig(level=logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_VisibleFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: spark-submit <script> <URI of the job spec> [<name of the attempt>]")
    file: JobFile | None = None
    try:
        connections = read_connections()
        end_with_submitter()
        file = JobFile(sys.argv[1], connections)
        outcome = JobOutcome("succeeded", counts=_run(kind, file.read(), connections))
    except (PermanentError, TransientError) as error:
        kind = type(error).__name__
        log.error("%s: %s", kind, error)
        permanent = isinstance(error, PermanentError)
        outcome = JobOutcome("permanent" if permanent else "transient", kind, visible_lines(str(error)))
    except Exception as error:
        _leave(file, JobOutcome("failed", type(error).__name__))
        raise
    _leave(file, outcome)
    sys.exit(_EXIT_CODES.get(outcome.result, 0))


def _leave(file: JobFile | None, outcome: JobOutcome) -> None:
    if file is None or len(sys.argv) < 3:
        return
    try:
        file.put_outcome(sys.argv[2], outcome)
    except TicdcReplayError as error:
        log.warning("how this job ended can't be kept, and its exit code alone says so: %s", error)


def _run(kind: str, job: JobSpec, connections: Connections) -> dict[str, int]:
    """What *job* did."""
    if kind_of(job) != kind:
        raise ConfigError(f"{sys.argv[1]} is the spec of a {kind_of(job)} job; this script runs {kind} jobs")
    spark = open_session(f"ticdc-replay {title_of(job)}", _secrets(job, connections))
    try:
        require_executors(spark, job)
        match job:
            case DecodeJob():
                return msgspec.structs.asdict(run_decode(spark, job, connections).report.events)
            case LoadJob():
                tables = run_load(spark, job, connections).tables
                return _added(tables, "events", "upserted", "deleted", "superseded", "quarantined")
            case ScanJob():
                feeds = run_scan(spark, job, connections).feeds
                return _added([feed.counts for feed in feeds], "messages", "decoded", "references")
            case ReconcileJob():
                found = run_reconcile(spark, job, connections)
                return {"objects": _rows(found.objects), "references": _rows(found.references)}
            case MaintainJob():
                return run_maintain(spark, job, connections).counts
    finally:
        spark.stop()


def _secrets(job: JobSpec, connections: Connections) -> Iterable[str]:
    """The settings of the job's session whose values are secret."""
    if not isinstance(job, LoadJob | MaintainJob):
        return ()
    target = read_section(job.target)
    return target.secret_settings(connections.get(target.connection_id))


def _added(parts: Iterable[object], *names: str) -> dict[str, int]:
    parts = list(parts)
    return {name: sum(getattr(part, name) for part in parts) for name in names}


def _rows(files: Iterable[ClassifiedFile]) -> int:
    return sum(file.rows for file in files)
