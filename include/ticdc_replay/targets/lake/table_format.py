"""What a table format brings: its statements that differ, and what its commits say."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ticdc_replay.targets.base import Load
from ticdc_replay.targets.lake.dialect import quoted
from ticdc_replay.targets.lake.section import LakeSection, TableLayout
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.sql import Sql

LOAD = "ticdc-replay.load"
"""Names a load in a commit: ``load_name`` of its run, window and table's incarnation."""
WINDOW = "ticdc-replay.window"
"""Beside ``LOAD``: the window of the load, as JSON."""
RUN = "ticdc-replay.run"
"""Beside ``LOAD``: the run of the load."""
ATTEMPT = "ticdc-replay.attempt"
"""Beside ``LOAD``: the attempt of the load."""
INCARNATION = "ticdc-replay.incarnation"
"""Table property: which of the tables of this name it is, as the ledger has it."""
LEDGER = "ticdc-replay.ledger"
"""Table property: URI of the ledger that a table belongs to."""
KEY = "ticdc-replay.key"
"""Table property: a JSON list of the columns that identify a row."""


class Counts(msgspec.Struct, frozen=True):
    """What a MERGE did to the rows of its table."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class Commit(msgspec.Struct, frozen=True):
    """A commit of a table: its snapshot id or version, and what it did."""

    id: str
    counts: Counts


class Transaction(NamedTuple):
    """What a commit carries so that a table does nothing at a later one with the same name and this or a smaller number."""

    name: str
    number: int


class TableFormat(ABC):
    """One format, over the catalog of one target."""

    changes_types: frozenset[tuple[str, str]]
    """Beside decimals: the changes of a column's type, from and to, that the format makes without writing rows again."""
    changes_scales: bool
    """Whether a decimal may get more digits after the point."""
    has_transactions: bool = False
    """Whether commits carry a ``Transaction``. Then each is in the table's history, also one that changes no rows."""

    def __init__(self, config: Any) -> None:
        self.config: LakeSection = config

    @abstractmethod
    def catalog_settings(self, secret: Mapping[str, str]) -> dict[str, str]:
        """The session's settings of the catalog, with those that are *secret* (``secret_settings`` of the target)."""

    @abstractmethod
    def name_of(self, target: Relation) -> str:
        """The SQL name of a table."""

    @abstractmethod
    def create_schema(self, schema: str) -> list[str]:
        """The statements that make *schema* where it does not exist."""

    @abstractmethod
    def drop_schema(self, schema: str) -> list[str]:
        """The statements that drop *schema*, which is empty, where it exists."""

    @abstractmethod
    def create_table(
        self, target: Relation, columns: str, layout: TableLayout, properties: Mapping[str, str], *, replaces: bool
    ) -> list[str]:
        """The statements that make a table of *columns*, an SQL list of definitions; the first makes it with all properties.

        *replaces*: in place of what ``drop_table`` has left.
        """

    @abstractmethod
    def pinned(self, sql: Sql, target: Relation) -> tuple[str, str]:
        """The snapshot id or version that the table has now, and an SQL name by which queries read that one, whatever is
        committed later. Empty, and the name of the table itself, if a query can't read it with the columns that the table has."""

    def open_branch(self, sql: Sql, target: Relation, branch: str) -> str:
        """The SQL name by which statements change the table, unseen by readers until ``publish``. *branch* begins with the
        time in s, and is used once; maintenance removes what is left. Of a format without branches the table itself, for one
        statement with a ``Transaction``."""
        return self.name_of(target)

    def publish(self, sql: Sql, target: Relation, branch: str) -> None:
        """Make *branch* the table. Fails (``is_conflict``) if there was a commit to the table since ``open_branch``."""
        return

    @abstractmethod
    def replace_rows(self, sql: Sql, name: str, condition: str, rows: str) -> list[str]:
        """The statements that put *rows*, a query with all columns of the table, in place of those that match *condition*.

        *name* is from ``open_branch``. Where it is the table, another commit to these rows meanwhile is a conflict.
        """

    @abstractmethod
    def fence(self, target: Relation) -> str:
        """The statement that commits to the table and changes no row. After it, a branch from before it can't be published, nor
        can a commit with its ``Transaction``, or an older one, change anything."""

    @abstractmethod
    def drop_table(self, target: Relation) -> list[str]:
        """The statements that drop a table with its files."""

    def change_type(self, target: Relation, column: str, type_name: str) -> list[str]:
        """The statements that give *column* the wider type *type_name*."""
        return [f"ALTER TABLE {self.name_of(target)} ALTER COLUMN {quoted(column)} TYPE {type_name}"]

    def rename_table(self, old: Relation, new: Relation) -> str:
        """The statement that gives the table *old* the name *new*."""
        return f"ALTER TABLE {self.name_of(old)} RENAME TO {quoted(new.schema, new.table)}"

    def why_name_stays(self, old: Relation, new: Relation) -> str | None:
        """Why the catalog can't give the table *old* the name *new*; None if it can."""
        return None

    def is_dropped(self, properties: Mapping[str, str]) -> bool:
        """Whether a table with *properties* is what ``drop_table`` has left."""
        return False

    @abstractmethod
    def commit_settings(
        self, load: str, entry: Mapping[str, str], transaction: Transaction | None = None
    ) -> dict[str, str]:
        """The session's settings with which a statement commits the mark of *load*, *entry* beside it, and *transaction*,
        where the format has such."""

    @abstractmethod
    def find_commit(self, sql: Sql, target: Relation, load: str, *, published_by: str = "") -> Commit | None:
        """The newest commit of *load* to the table, None where the table's history has none. Of the attempt *published_by*,
        the newest one with its mark is in the table, if there is one."""

    @abstractmethod
    def is_conflict(self, text: str) -> bool:
        """Whether an error says that another commit came first, and this one did nothing."""

    def why_undroppable(self, sql: Sql, target: Relation, column: str) -> str | None:
        """Why *column* must not be dropped, though its statement may not fail, and what to do; else None."""
        return None

    def may_compute_columns(self, sql: Sql, target: Relation) -> bool:
        """Whether the table may have columns that are computed from others, which then can't change, and nothing shows these."""
        return False

    @abstractmethod
    def why_column_stays(self, text: str) -> str | None:
        """Why the table forbids to drop or rename a column, and what to do, if an error says that; else None."""

    @abstractmethod
    def is_unknown(self, text: str) -> bool:
        """Whether an error leaves open if a commit was done."""


def properties_sql(properties: Mapping[str, str], literal: Any) -> str:
    """*properties* as an SQL list; *literal* quotes."""
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())


def load_name(run_hash: str, window: object, incarnation: str, attempt: str = "") -> str:
    """The mark of a load in commits of one table. A reload has its *attempt* in it: each is a load of its own."""
    return "/".join(filter(None, (incarnation, str(window), run_hash, attempt)))


def entry_of(load: Load, events: int) -> dict[str, str]:
    """What a commit says of *load*, which brings so many *events* to the table, beside its mark."""
    return {
        "ticdc-replay.pipeline": load.index.pipeline,
        WINDOW: json.dumps(msgspec.to_builtins(load.index.window)),
        RUN: load.index.run_hash,
        "ticdc-replay.generation": str(load.generation),
        ATTEMPT: load.attempt,
        "ticdc-replay.events": str(events),
    }
