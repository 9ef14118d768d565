"""What the entry scripts in ``spark_jobs/`` share: read the job spec, run it, turn errors into exit codes."""

import logging
import sys
from collections.abc import Callable

from ticdc_replay import jobspec
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import PermanentError, TransientError
from ticdc_replay.jobspec import EXIT_PERMANENT, EXIT_TRANSIENT, JobSpec
from ticdc_replay.spark.session import read_connections
from ticdc_replay.storage import open_store

log = logging.getLogger("ticdc_replay.spark")


def run(driver: Callable[[JobSpec, Connections], None]) -> None:
    """Run *driver* on the job spec whose URI is the only argument of the script.

    Exits with 0, ``EXIT_PERMANENT`` or ``EXIT_TRANSIENT``; any other error leaves its traceback and exit code 1.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if len(sys.argv) != 2:
        sys.exit("usage: spark-submit <script> <URI of the job spec>")
    try:
        connections = read_connections()
        driver(_read(sys.argv[1], connections), connections)
    except PermanentError as error:
        log.error("%s: %s", type(error).__name__, error)
        sys.exit(EXIT_PERMANENT)
    except TransientError as error:
        log.error("%s: %s", type(error).__name__, error)
        sys.exit(EXIT_TRANSIENT)


def _read(uri: str, connections: Connections) -> JobSpec:
    folder, _, name = uri.rpartition("/")
    connection = connections.get(connections.artifacts)
    return jobspec.decode(open_store(folder, connection).get(name))
