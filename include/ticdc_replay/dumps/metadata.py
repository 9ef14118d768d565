"""The file ``metadata`` of a dump: at which TSO it was taken, and whether it ended.

Source: dumpling/export/metadata.go. Of TiDB, ``Log`` is ``tidb-binlog`` and ``Pos`` is the snapshot that Dumpling read at
(``tidb_snapshot``), if its consistency was snapshot. The file does not say which consistency that was.
"""

import re

import msgspec

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tso import MAX_TSO

_TIDB_LOG = "tidb-binlog"
_STATUS = re.compile(
    r"SHOW (?:MASTER|BINARY LOG) STATUS:\n\tLog: (?P<log>[^\n]*)\n\tPos: (?P<pos>[^\n]*)\n\tGTID:[^\n]*\n"
)
_FINISHED = re.compile(r"^Finished dump at: (.+)$", re.MULTILINE)


class DumpMetadata(msgspec.Struct, frozen=True):
    """What the file says: the TSO of the snapshot, and when the dump ended, by the clock and zone of Dumpling's machine."""

    snapshot_ts: int
    finished: str


def read_metadata(content: bytes, uri: str) -> DumpMetadata:
    """The metadata in *content*. Raises ConfigError where the dump has not ended, or is not of a snapshot of TiDB."""
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    finished = _FINISHED.search(text)
    if finished is None:
        raise ConfigError(
            f"{uri}: there is no line 'Finished dump at': the dump has not ended, or it failed. Wait for its end, or dump again"
        )
    status = _STATUS.search(text)
    if status is None:
        raise ConfigError(
            f"{uri}: there is no 'SHOW MASTER STATUS' with Log and Pos, so nothing shows at which TSO the dump was taken: "
            "dump again with --consistency snapshot, by an account that may run SHOW MASTER STATUS"
        )
    if status["log"] != _TIDB_LOG:
        raise ConfigError(
            f"{uri}: Log is {status['log']!r}, and {_TIDB_LOG!r} in a dump of TiDB: the position is one of MySQL's binlog, not a "
            "TSO. Dump TiDB, with --consistency snapshot"
        )
    pos = status["pos"]
    if not pos.isascii() or not pos.isdecimal() or not 0 < int(pos) < MAX_TSO:
        raise ConfigError(
            f"{uri}: Pos is {pos!r}, which is not a TSO. Where the dump was taken with --snapshot and a time, dump again with a "
            "TSO, or without --snapshot"
        )
    return DumpMetadata(int(pos), finished[1])
