"""SQLite's file: on one machine only, without a write-ahead log, and never below a network file system.

SQLite relies on locks and on memory that the processes of one machine share; on a network file system either may silently not
work, and the file is damaged or two writers both believe that they are alone. Leases, too, go by the machine's own clock here.
"""

import logging
import platform
import time
from pathlib import Path

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import OperationalError
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random

from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.state import tables
from ticdc_replay.storage.mounts import mount_of

log = logging.getLogger(__name__)

_ELSEWHERE = (
    "SQLite is for one machine: set connections.state to a connection of type postgres. A state store that exists can be kept "
    "on a local disk of the one machine that uses it"
)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CONVERSION_S = 30


def require_local(file: Path) -> None:
    """Raise ConfigError where *file* is on a network file system; warn where the system does not say what it is on."""
    mount = mount_of(file)
    if mount is None:
        log.warning("whether %s is on a local disk can't be known on this system. %s", file, _ELSEWHERE)
    elif mount.is_network:
        raise ConfigError(
            f"the state store {file} is on a network file system ({mount.type} at {mount.folder}). {_ELSEWHERE}"
        )


def require_one_machine(connection: Connection, file: str) -> None:
    """Note that this machine uses the database; in a transaction that writes.

    A machine is known by its boot, which all its containers share and no other machine has. A boot that comes back after another
    one shows that two machines use the file: PermanentError. One that is new is a restart, or a file that was moved.
    """
    table = tables.machine
    boot, host = this_boot()
    seen = connection.execute(select(table.c.boot, table.c.host).order_by(table.c.number)).all()
    if seen and seen[-1].boot == boot:
        return
    if boot in {row.boot for row in seen}:
        raise PermanentError(
            f"the state store {file} is used by two machines: {seen[-1].host} has opened it since {host} did. {_ELSEWHERE}. If "
            "no other machine uses it (this one was set back to a snapshot), restart this machine"
        )
    if seen:
        log.warning("%s was used by %s before, and is used by %s now. %s", file, seen[-1].host, host, _ELSEWHERE)
    connection.execute(
        table.insert().values(number=len(seen), boot=boot, host=host, first_seen_ms=int(time.time() * 1000))
    )


def this_boot() -> tuple[str, str]:
    """What this start of this machine is known by, and the machine's name for people."""
    host = platform.node() or "a machine without name"
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip(), host
    except OSError:
        return host, host  # not Linux: a restart looks the same, another machine does not


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, OperationalError) and "locked" in str(error)


@retry(
    retry=retry_if_exception(_is_locked),
    stop=stop_after_delay(_CONVERSION_S),
    wait=wait_random(0.01, 0.1),
    reraise=True,
)
def use_rollback_journal(engine: Engine) -> None:
    """Convert a file that an earlier version kept with a write-ahead log. Kept in the file; waits until no other uses it."""
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            cursor.execute("PRAGMA journal_mode=DELETE")
    except Exception as error:
        raise OperationalError("PRAGMA journal_mode=DELETE", None, error) from error
    finally:
        connection.close()
