"""Every kind of DDL with a statement of it, and what it does to the upstream's rows: an oracle that shares nothing with the
library. Each row of the table in docs/targets.md has its statements here.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.ddl_kinds import ChangeKind

Cells = Mapping[str, object]
Rows = dict[int, dict[str, object]]
"""By the key ``id``."""

INT = ColumnType("int", declared=True)
BIGINT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
MOMENT = ColumnType("datetime", scale=0, declared=True)
COLUMNS: Mapping[str, ColumnType] = {"id": INT, "v": TEXT, "u": INT}
CREATE = (
    "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20), `u` INT NOT NULL, `g` INT AS (`u` + 1) VIRTUAL, "
    "UNIQUE KEY `uu` (`u`), KEY `k` (`v`))"
)


class Statement(NamedTuple):
    """A DDL of the table ``t``, in a database that is called ``{db}`` in texts."""

    kind: ChangeKind
    """What it does to ``t``, the gravest where it does several things."""
    row: str
    """The row of the table in docs/targets.md."""
    query: str
    then: Callable[[Rows], Rows] = dict
    """What it does to the upstream's rows."""
    columns: Mapping[str, ColumnType] = COLUMNS
    """The columns after it."""
    key: str = "id"
    """The handle key after it."""
    by_hand: str = ""
    """What a person does to the mirror ``{t}`` where a load stops; "" where it is filled anew."""


def event_table(statement: Statement, database: str) -> str:
    """The table that TiCDC's event names: of a RENAME the new one, of a view itself, none of a database."""
    words = statement.query.split()
    if words[1] == "DATABASE":
        return database
    renamed = words[0] == "RENAME" or "RENAME TO" in statement.query
    named = words[-1] if renamed else words[2] if words[0] in ("CREATE", "DROP") and words[1] == "VIEW" else "`t`"
    return f"{database}.{named.rpartition('.')[2].strip('`')}"


def _filled(**cells: object) -> Callable[[Rows], Rows]:
    return lambda rows: {key: {**row, **cells} for key, row in rows.items()}


def _without(*names: str) -> Callable[[Rows], Rows]:
    return lambda rows: {
        key: {name: cell for name, cell in row.items() if name not in names} for key, row in rows.items()
    }


def _renamed(old: str, new: str) -> Callable[[Rows], Rows]:
    return lambda rows: {
        key: {new if name == old else name: cell for name, cell in row.items()} for key, row in rows.items()
    }


def _nothing_left(_: Rows) -> Rows:
    return {}


def _without_row_1(rows: Rows) -> Rows:
    return {key: row for key, row in rows.items() if key != 1}


def _with_row_77(rows: Rows) -> Rows:
    return {**_without_row_1(rows), 77: {"id": 77, "v": "moved", "u": 77}}


_WITHOUT_V = {"id": INT, "u": INT}
_WITH_N = {**COLUMNS, "n": INT}
_WITH_AT = {**COLUMNS, "at": MOMENT}
_WITH_W = {"id": INT, "w": TEXT, "u": INT}

_DATABASE = "CREATE, ALTER DATABASE; CREATE, DROP VIEW"
_NEW = "CREATE TABLE, also LIKE, with CHECK or partitions"
_DROP = "DROP TABLE, DROP DATABASE"
_RECOVER = "RECOVER TABLE, FLASHBACK TABLE"
_RENAME = "RENAME TABLE, one or several: of the old name"
_RENAMED = "RENAME TABLE, one or several: of the new name"
_ADD = "ADD COLUMN with a constant default or none, NOT NULL or not, anywhere, one or several"
_COMPUTED = (
    "ADD COLUMN with a default that the server computes, TIMESTAMP constants among them; stored generated columns"
)
_VIRTUAL = "ADD, DROP COLUMN of a virtual column"
_IF = "ADD COLUMN IF NOT EXISTS among others, of a column that is known and has a default"
_WIDER = "MODIFY, CHANGE COLUMN to a type that has all values of the old one; to NULL"
_SAME = "MODIFY, CHANGE COLUMN of the same type: place, comment, default, NOT NULL"
_NARROWER = "MODIFY, CHANGE COLUMN to some of the values: a smaller integer, a shorter text, fewer digits or names"
_CHANGED = "MODIFY, CHANGE COLUMN to any other type; CONVERT TO CHARACTER SET binary"
_RENAME_COLUMN = "RENAME COLUMN, CHANGE COLUMN to another name"
_DEFAULT = "ALTER COLUMN SET, DROP DEFAULT"
_INDEX = "ADD, DROP, RENAME, ALTER INDEX, unique ones too, that leaves the handle key; foreign keys, CHECK"
_KEY = "PRIMARY KEY or index by which rows are identified: added, dropped, changed"
_OPTION = (
    "table options: charset, comment, AUTO_INCREMENT, TTL, cache, TiFlash and the like; CONVERT TO another charset"
)
_PARTITION = "ADD, REORGANIZE, COALESCE PARTITION; PARTITION BY, REMOVE PARTITIONING"
_GONE = "DROP, TRUNCATE PARTITION, FIRST PARTITION"
_EXCHANGE = "EXCHANGE PARTITION: of either table"
_SEVERAL = "several changes in one statement, all of which can be followed"
_ONE_STOPS = "several changes in one statement, one of which can't be followed: the kind of that one"
_UNKNOWN = "any text that is not understood"

STATEMENTS: tuple[Statement, ...] = (
    Statement("no_row_change", _DATABASE, "CREATE VIEW `t2` AS SELECT 1"),
    Statement("no_row_change", _DATABASE, "DROP VIEW `t2`"),
    Statement("no_row_change", _DATABASE, "ALTER DATABASE `{db}` CHARACTER SET utf8mb4"),
    Statement("no_row_change", _DATABASE, "CREATE DATABASE `{db}`"),
    Statement("table_created", _NEW, CREATE),
    Statement(
        "table_created",
        _NEW,
        "CREATE TABLE `t` (`id` INT, `v` VARCHAR(20), `u` INT, PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */, "
        "CONSTRAINT `c` CHECK ((`u` > 0))) PARTITION BY RANGE (`id`) (PARTITION `p` VALUES LESS THAN (9))",
    ),
    Statement("table_created", _NEW, "CREATE TABLE `t` LIKE `other`"),
    Statement("truncated", "TRUNCATE TABLE", "TRUNCATE TABLE `t`", _nothing_left, by_hand="TRUNCATE {t}"),
    Statement("dropped", _DROP, "DROP TABLE `t`", _nothing_left, by_hand="DROP TABLE {t}"),
    Statement("dropped", _DROP, "DROP DATABASE `{db}`", _nothing_left, by_hand="DROP TABLE {t}"),
    Statement("recovered", _RECOVER, "RECOVER TABLE `t`", _with_row_77),
    Statement("recovered", _RECOVER, "FLASHBACK TABLE `t2` TO `t`", _with_row_77),
    Statement("renamed_away", _RENAME, "RENAME TABLE `t` TO `t2`", by_hand="ALTER TABLE {t} RENAME TO t2"),
    Statement("renamed_away", _RENAME, "ALTER TABLE `t` RENAME TO `t2`", by_hand="ALTER TABLE {t} RENAME TO t2"),
    Statement("renamed_here", _RENAMED, "RENAME TABLE `{db}`.`t2` TO `{db}`.`t`", _with_row_77),
    Statement(
        "column_added",
        _ADD,
        "ALTER TABLE `t` ADD COLUMN `n` INT NOT NULL DEFAULT 5",
        _filled(n=5),
        _WITH_N,
        by_hand="ALTER TABLE {t} ADD COLUMN n integer DEFAULT 5",
    ),
    Statement("column_added", _ADD, "ALTER TABLE `t` ADD COLUMN `n` INT NOT NULL FIRST", _filled(n=0), _WITH_N),
    Statement("column_added", _ADD, "ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `n` INT", _filled(n=None), _WITH_N),
    Statement(
        "column_added",
        _ADD,
        "ALTER TABLE `t` ADD COLUMN (`n` INT DEFAULT 5, `m` VARCHAR(20) DEFAULT 'x')",
        _filled(n=5, m="x"),
        {**_WITH_N, "m": TEXT},
    ),
    Statement(
        "column_added",
        _ADD,
        "ALTER TABLE `t` ADD COLUMN `n` INT DEFAULT 5 AFTER `id`, ADD COLUMN `m` VARCHAR(20) AFTER `n`",
        _filled(n=5, m=None),
        {**_WITH_N, "m": TEXT},
    ),
    Statement(
        "column_computed",
        _COMPUTED,
        "ALTER TABLE `t` ADD COLUMN `at` DATETIME DEFAULT CURRENT_TIMESTAMP",
        _filled(at="2020-01-01 00:00:00"),
        _WITH_AT,
        by_hand="ALTER TABLE {t} ADD COLUMN at timestamp(0); UPDATE {t} SET at = '2020-01-01'",
    ),
    Statement("column_computed", _COMPUTED, "ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP DEFAULT '2020-01-01 00:00:00'"),
    Statement("column_computed", _COMPUTED, "ALTER TABLE `t` ADD COLUMN `n` INT AS (`u` * 2) STORED"),
    Statement("column_computed", _COMPUTED, "ALTER TABLE `t` ADD COLUMN `n` VARCHAR(36) DEFAULT (UUID())"),
    Statement("no_row_change", _VIRTUAL, "ALTER TABLE `t` ADD COLUMN `h` INT AS (`u`) VIRTUAL"),
    Statement("no_row_change", _VIRTUAL, "ALTER TABLE `t` DROP COLUMN `g`"),
    Statement(
        "not_understood",
        _IF,
        "ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `v` VARCHAR(20) DEFAULT 'x', ADD INDEX `i` (`v`)",
        by_hand="SELECT 1",
    ),
    Statement(
        "column_dropped",
        "DROP COLUMN",
        "ALTER TABLE `t` DROP COLUMN `v`",
        _without("v"),
        _WITHOUT_V,
        by_hand="ALTER TABLE {t} DROP COLUMN v",
    ),
    Statement(
        "column_renamed",
        _RENAME_COLUMN,
        "ALTER TABLE `t` RENAME COLUMN `v` TO `w`",
        _renamed("v", "w"),
        _WITH_W,
        by_hand="ALTER TABLE {t} RENAME COLUMN v TO w",
    ),
    Statement("column_renamed", _RENAME_COLUMN, "ALTER TABLE `t` CHANGE COLUMN `v` `w` VARCHAR(40)"),
    Statement(
        "column_widened",
        _WIDER,
        "ALTER TABLE `t` MODIFY COLUMN `u` BIGINT NOT NULL",
        columns={**COLUMNS, "u": BIGINT},
        by_hand="ALTER TABLE {t} ALTER COLUMN u TYPE bigint",
    ),
    Statement("column_widened", _WIDER, "ALTER TABLE `t` MODIFY COLUMN `id` BIGINT", columns={**COLUMNS, "id": BIGINT}),
    Statement("column_widened", _WIDER, "ALTER TABLE `t` CHANGE COLUMN `v` `v` TEXT"),
    Statement("no_row_change", _SAME, "ALTER TABLE `t` MODIFY COLUMN `v` VARCHAR(20) DEFAULT 'x' COMMENT 'y' FIRST"),
    Statement("no_row_change", _SAME, "ALTER TABLE `t` MODIFY COLUMN `v` VARCHAR(20) NOT NULL"),
    Statement(
        "column_changed",
        _CHANGED,
        "ALTER TABLE `t` MODIFY COLUMN `u` VARCHAR(20) NOT NULL",
        lambda rows: {key: {**row, "u": str(row["u"])} for key, row in rows.items()},
        {**COLUMNS, "u": TEXT},
        by_hand='ALTER TABLE {t} ALTER COLUMN u TYPE text COLLATE "C"',
    ),
    Statement("column_narrowed", _NARROWER, "ALTER TABLE `t` MODIFY COLUMN `u` SMALLINT NOT NULL"),
    Statement("column_narrowed", _NARROWER, "ALTER TABLE `t` MODIFY COLUMN `v` VARCHAR(5)"),
    Statement("column_changed", _CHANGED, "ALTER TABLE `t` CONVERT TO CHARACTER SET binary"),
    Statement("no_row_change", _DEFAULT, "ALTER TABLE `t` ALTER COLUMN `v` SET DEFAULT 'x'"),
    Statement("no_row_change", _DEFAULT, "ALTER TABLE `t` ALTER COLUMN `u` DROP DEFAULT"),
    Statement("no_row_change", _INDEX, "ALTER TABLE `t` DROP INDEX `uu`"),
    Statement("no_row_change", _INDEX, "CREATE UNIQUE INDEX `i` ON `t` (`v`)"),
    Statement("no_row_change", _INDEX, "ALTER TABLE `t` RENAME INDEX `k` TO `k2`"),
    Statement("no_row_change", _INDEX, "ALTER TABLE `t` ALTER INDEX `k` INVISIBLE"),
    Statement("no_row_change", _INDEX, "CREATE FULLTEXT INDEX `f` ON `t` (`v`)"),
    Statement("no_row_change", _INDEX, "ALTER TABLE `t` ADD CONSTRAINT `f` FOREIGN KEY (`u`) REFERENCES `o` (`id`)"),
    Statement("no_row_change", _INDEX, "ALTER TABLE `t` DROP FOREIGN KEY `f`"),
    Statement("no_row_change", _INDEX, "ALTER TABLE `t` ADD CONSTRAINT `c` CHECK (`u` > 0)"),
    Statement(
        "key_changed",
        _KEY,
        "ALTER TABLE `t` DROP PRIMARY KEY",
        key="u",
        by_hand="ALTER TABLE {t} DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (u), ALTER COLUMN id DROP NOT NULL",
    ),
    Statement("key_changed", _KEY, "ALTER TABLE `t` DROP PRIMARY KEY, ADD PRIMARY KEY (`id`, `u`)"),
    *(
        Statement("no_row_change", _OPTION, f"ALTER TABLE `t` {option}")
        for option in (
            "COMMENT = 'x'",
            "AUTO_INCREMENT = 500",
            "/*T![auto_id_cache] AUTO_ID_CACHE = 1 */",
            "/*T![ttl] TTL = `at` + INTERVAL 1 DAY TTL_ENABLE = 'OFF' */",
            "/*T![ttl] REMOVE TTL */",
            "CACHE",
            "DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin",
            "CONVERT TO CHARACTER SET utf8mb4",
            "SET TIFLASH REPLICA 1",
        )
    ),
    *(
        Statement("no_row_change", _PARTITION, f"ALTER TABLE `t` {change}")
        for change in (
            "REORGANIZE PARTITION `p` INTO (PARTITION `p1` VALUES LESS THAN (5), PARTITION `p2` VALUES LESS THAN (9))",
            "ADD PARTITION (PARTITION `q` VALUES LESS THAN (50))",
            "COALESCE PARTITION 2",
            "PARTITION BY HASH (`id`) PARTITIONS 4",
            "REMOVE PARTITIONING",
            "LAST PARTITION LESS THAN (90)",
            "MERGE FIRST PARTITION LESS THAN (90)",
            "SPLIT MAXVALUE PARTITION LESS THAN (90)",
        )
    ),
    *(
        Statement("partition_emptied", _GONE, f"ALTER TABLE `t` {change}", _without_row_1)
        for change in ("DROP PARTITION `p`", "TRUNCATE PARTITION `p`, `q`", "FIRST PARTITION LESS THAN (5)")
    ),
    Statement("exchanged", _EXCHANGE, "ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `t2`", _with_row_77),
    Statement(
        "exchanged", _EXCHANGE, "ALTER TABLE `{db}`.`t2` EXCHANGE PARTITION `p` WITH TABLE `{db}`.`t`", _with_row_77
    ),
    Statement(
        "column_added",
        _SEVERAL,
        "ALTER TABLE `t` ADD COLUMN `n` INT DEFAULT 5, MODIFY COLUMN `u` BIGINT NOT NULL, ADD INDEX `i` (`n`)",
        _filled(n=5),
        {**_WITH_N, "u": BIGINT},
        by_hand="ALTER TABLE {t} ADD COLUMN n integer DEFAULT 5, ALTER COLUMN u TYPE bigint",
    ),
    Statement(
        "column_changed",
        _ONE_STOPS,
        "ALTER TABLE `t` MODIFY COLUMN `u` VARCHAR(20) NOT NULL, DROP COLUMN `v`",
        lambda rows: _without("v")({key: {**row, "u": str(row["u"])} for key, row in rows.items()}),
        {"id": INT, "u": TEXT},
        by_hand='ALTER TABLE {t} DROP COLUMN v, ALTER COLUMN u TYPE text COLLATE "C"',
    ),
    Statement("not_understood", _UNKNOWN, "ALTER TABLE `t` CONVERT PARTITION `p` TO TABLE `t2`", _without_row_1),
    Statement("not_understood", _UNKNOWN, "ALTER TABLE `t` DISCARD PARTITION `p` TABLESPACE", _without_row_1),
    Statement("not_understood", _UNKNOWN, "FLASHBACK DATABASE `{db}`", _with_row_77),
)
