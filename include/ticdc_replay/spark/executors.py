"""What a job asks of a cluster's executors before any work: the library, and the folders that it shares with them.

Where the driver and its tasks run in one place (a ``local`` master) there is nothing to ask.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ticdc_replay import __version__
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.jobspec import DecodeJob, JobSpec, OneJob, ReconcileJob, SeedJob, TargetJob, first_of
from ticdc_replay.spark.session import is_remote
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.storage.file import TEMPORARY_PREFIX
from ticdc_replay.submit.modules import module_of_tasks

log = logging.getLogger(__name__)

_REMEDY = "See docs/operations.md, 'Run on a cluster'"
_NO_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH[^\n]*|Cannot run program [^\n]*")
_NO_ARROW = "No module named 'pyarrow'"


def require_executors(runner: SparkRunner, spark: SparkSession, job: JobSpec) -> None:
    """Check that the present executors can run *job*.

    Raises PermanentError if they lack the driver's version of the library, one of its packages, the driver's Python, or a folder
    that the job works on.
    """
    master = spark.conf.get("spark.master", None) or ""
    in_one_process = master == "local" or master.startswith("local[")
    if in_one_process and not is_remote(spark):
        return
    _warn_of_plain_rpc(spark)
    with ExitStack() as markers:
        first = first_of(job)
        written = [markers.enter_context(_marked(folder)) for folder in _folders(_written(first))]
        wanted = {str(path): uri for uri, path in [*written, *_folders(_read(first))]}
        paths, module = list(wanted), module_of_tasks(first)

        # Runs where the library may be missing, so it uses nothing but Python.
        def look(_: int) -> tuple[str, str, list[str]]:
            import importlib
            import os
            import socket

            try:
                importlib.import_module(module)
                found = importlib.import_module("ticdc_replay").__version__
            except ImportError as error:
                found = f"none ({error})"
            return socket.gethostname(), found, [path for path in paths if not os.path.exists(path)]

        try:
            seen = runner.look(look, 1 if in_one_process else runner.parallelism)
        except (PySparkException, Py4JError) as error:
            if _NO_ARROW in str(error):
                why = (
                    "there is no pyarrow, which every task needs, nor the library: ship the archive of "
                    "scripts/package-executors"
                )
            elif found := _NO_PYTHON.search(str(error)):
                why = found[0].strip()
            else:
                raise
            raise PermanentError(f"executors can't run this job: {why}. {_REMEDY}") from error
    if problems := list(dict.fromkeys(_problems(seen, wanted))):
        raise PermanentError(f"executors can't run this job: {'; '.join(problems)}. {_REMEDY}")


def _problems(seen: Iterable[tuple[str, str, list[str]]], wanted: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with hosts, by the version and the paths that each does not see; *wanted* has the URIs of the paths."""
    for host, version, unseen in seen:
        if version != __version__:
            yield (
                f"on {host} there is ticdc-replay {version}, and the driver is {__version__}: ship the archive of "
                "scripts/package-executors"
            )
        for path in unseen:
            yield (
                f"{wanted[path]} is a folder of the driver's machine that {host} does not see: use s3://, or mount one folder "
                "on all machines at this path"
            )


def _warn_of_plain_rpc(spark: SparkSession) -> None:
    encrypted = [spark.conf.get(name, None) for name in ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")]
    if spark.conf.get("spark.authenticate", None) != "true" or "true" not in encrypted:
        log.warning(
            "connections travel to executors over Spark's RPC, and it is not authenticated and encrypted: set spark.authenticate "
            "and spark.network.crypto.enabled on this cluster. %s",
            _REMEDY,
        )


def _written(job: OneJob) -> Sequence[object]:
    if isinstance(job, TargetJob):
        return (job.artifacts, *(job.target.get(key) for key in ("uri", "ledger", "path")))
    return (job.artifacts,)


def _read(job: OneJob) -> Sequence[object]:
    """What the job reads only, and where it leaves no mark."""
    if isinstance(job, DecodeJob):
        return (job.changefeed.claim_check_uri,)
    if isinstance(job, SeedJob):
        return (job.dump,)
    if isinstance(job, ReconcileJob):
        return [files.artifacts for files in job.decoded]
    return ()


def _folders(uris: Sequence[object]) -> Iterator[tuple[str, Path]]:
    """Those of *uris* that are folders, with their paths."""
    for uri in uris:
        if isinstance(uri, str) and (parts := urlsplit(uri)).scheme == "file":
            yield uri, Path(unquote(parts.path))


@contextmanager
def _marked(folder: tuple[str, Path]) -> Iterator[tuple[str, Path]]:
    """*folder* with the path of a file in it that nobody else can have made, gone afterwards."""
    uri, path = folder
    marker = path / f"{TEMPORARY_PREFIX}shared-{uuid4().hex}"
    path.mkdir(parents=True, exist_ok=True)
    marker.touch()
    try:
        yield uri, marker
    finally:
        marker.unlink(missing_ok=True)
