"""Which server answers, and what of it a mirror depends on."""

from typing import TYPE_CHECKING, Any, NamedTuple

import pymysql

from ticdc_replay.domain.errors import TargetMismatchError

TIDB_ROWS_PER_COMMIT = 100_000
"""TiDB keeps a transaction in memory: 100 MB by default, and each key and row takes more there than in staging."""
_CANDIDATES = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""Collations of MariaDB, and of MySQL and TiDB, that tell any two texts apart, trailing spaces too. MariaDB 11.4 has the
second name for one that does not."""

if TYPE_CHECKING:
    MysqlConnection = pymysql.connections.Connection[Any]
else:  # generic in its type stubs alone
    MysqlConnection = pymysql.connections.Connection
"""A connection of the driver, unlike ``domain.connections.Connection``."""

_SETTINGS = "SELECT version(), @@lower_case_table_names, @@local_infile, @@max_allowed_packet"
_COLLATIONS = "SELECT collation_name FROM information_schema.collations WHERE collation_name IN (%s, %s)"


class Server(NamedTuple):
    """A server as it was found."""

    version: str
    is_tidb: bool
    exact: tuple[str, ...]
    """The collations that tell any two texts apart; the first is that of all texts in mirrors and ledger."""
    folds_names: bool
    """Whether it takes table names that differ in letter case as equal."""
    reads_local: bool
    """Whether it takes LOAD DATA LOCAL."""
    max_packet: int
    """Bytes that a statement may have."""


def look(connection: MysqlConnection) -> Server:
    """The server of *connection*. Raises TargetMismatchError if it has no collation that tells texts apart by their bytes."""
    with connection.cursor() as cursor:
        cursor.execute(_SETTINGS)
        row = cursor.fetchone()
        assert row is not None
        version, letter_case, local, packet = row
        cursor.execute(_COLLATIONS, _CANDIDATES)
        known = {name for (name,) in cursor.fetchall()}
        exact = tuple(name for name in _CANDIDATES if name in known and _is_exact(cursor, name))
    if not exact:
        raise TargetMismatchError(
            f"the server, {version}, has no collation {' or '.join(_CANDIDATES)} that tells texts with trailing spaces apart, so "
            "different keys would be one; a mirror needs MySQL 8.0.17, TiDB 7.4 or MariaDB 10.5, or later"
        )
    return Server(version, "TiDB" in version, exact, int(letter_case) != 0, str(local) in ("1", "ON"), int(packet))


def _is_exact(cursor: Any, collation: str) -> bool:
    cursor.execute(f"SELECT _utf8mb4'a' COLLATE {collation} IN (_utf8mb4'a ', _utf8mb4'A')")
    (found,) = cursor.fetchone()
    return not found
