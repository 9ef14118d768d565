"""Ends a driver whose submitter is gone.

Signals end a job in order, but after kill -9 of the submitter, or when a machine is out of memory, there is none. Between
submitter and driver is a JVM, which passes no open file on. So the submitter locks a file, and the system unlocks it when that
process ends.
"""

import fcntl
import logging
import os
import signal
import threading
import time
from pathlib import Path

from ticdc_replay.jobspec import CONNECTIONS_FILE_VARIABLE, EXIT_TRANSIENT, SUBMITTER_FILE

log = logging.getLogger(__name__)

_ORDER_S = 10.0


def end_with_submitter() -> None:
    """From now on this process ends, whatever it is doing, when its submitter has ended: at once with ``EXIT_TRANSIENT``, or as
    by SIGTERM where it handles that.

    It takes the private file with the connections along, which the submitter could not remove. The JVM ends when its Python does,
    and executors when their driver does. Without a ``SUBMITTER_FILE`` nothing is watched: a person started the driver, or its
    submitter is on another machine.
    """
    private = os.environ.get(CONNECTIONS_FILE_VARIABLE)
    if not private:
        return
    connections = Path(private)
    folder = connections.parent
    try:
        lock = os.open(folder / SUBMITTER_FILE, os.O_RDONLY)
    except FileNotFoundError:
        return
    threading.Thread(
        target=_end_when_free, args=(lock, folder, connections.name), name="submitter", daemon=True
    ).start()


def _end_when_free(lock: int, folder: Path, connections: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
    except OSError as error:
        log.warning("this driver will not notice when its submitter is killed: %s can't be locked: %s", folder, error)
        return
    log.error("the process that submitted this job has ended; the job ends, too")
    try:
        for name in (connections, SUBMITTER_FILE):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
    except OSError as error:
        log.warning("%s is not removed: %s", folder, error)
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # it ends in order, if it can
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_ORDER_S)
    os._exit(EXIT_TRANSIENT)
