"""How a load changes the rows of a lake table: in one commit, which no attempt makes that has lost the table's lease.

See docs/decisions.md, Commits of loads to a lake.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.lake.errors import translate
from ticdc_replay.targets.lake.lease import HeldLease
from ticdc_replay.targets.lake.table_format import Commit, TableFormat, Transaction, entry_of
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.sql import Sql, SqlError

MERGES = "merges"
"""What commits of loads to a mirror change; see ``commit``."""

CONFLICTS = 5
"""How often a commit is repeated because another one, such as a compaction, came first."""

Statements = Callable[[str, bool], Sequence[str]]
"""The statements of a commit, from the SQL name that they change, and whether this is the first try."""


def commit(
    sql: Sql,
    table_format: TableFormat,
    target: Relation,
    lease: HeldLease,
    load: Load,
    name: str,
    events: int,
    statements: Statements,
    *,
    what: str,
) -> Commit | None:
    """As ``commit_as``, for *load*, which brings so many *events*."""
    entry = entry_of(load, events)
    return commit_as(sql, table_format, target, lease, load.attempt, name, entry, statements, what=what)


def commit_as(
    sql: Sql,
    table_format: TableFormat,
    target: Relation,
    lease: HeldLease,
    attempt: str,
    name: str,
    entry: Mapping[str, str],
    statements: Statements,
    *,
    what: str,
) -> Commit | None:
    """Change the rows of *target* by *statements*, in one commit with the mark *name* and *entry*, which names the *attempt*
    (``ATTEMPT``); None where there was nothing to change, and the format has no transactions.

    *what* the commit changes is done once in a term of the lease: under this name of the table, as another one has another lease.

    Raises LeaseLostError, and changes nothing, once another attempt has committed since *lease* was taken.
    """
    settings = table_format.commit_settings(name, entry, _transaction(what, target, lease.term))
    for number in range(CONFLICTS):
        branch = f"{time.time():.0f}_{attempt}_{what}_{number}"
        try:
            changed = table_format.open_branch(sql, target, branch)
            lease.verify()
            for statement in statements(changed, number == 0):
                sql.run(statement, settings)
            lease.verify()
            table_format.publish(sql, target, branch)
            break
        except SqlError as error:
            lease.verify()
            text = str(error)
            again = table_format.is_unknown(text) or table_format.is_conflict(text)
            if again and (done := table_format.find_commit(sql, target, name)) is not None:
                return done
            if number == CONFLICTS - 1 or not again:
                raise translate(error, table_format, f"load {target}") from error
    done = table_format.find_commit(sql, target, name, published_by=attempt)
    if done is None:
        lease.verify()
        if table_format.has_transactions:
            raise TransientError(
                f"{target} has a commit of a later term of its lease, and changed nothing at this one. If the ledger was lost or "
                "restored, that ends when the clock here is past the one of that commit. Try again"
            )
    return done


def fence_settings(table_format: TableFormat, target: Relation, lease: HeldLease, what: str) -> dict[str, str]:
    """The settings of ``TableFormat.fence``: it keeps attempts out that change *what*, and have lost the lease of *target*, and
    lets those in that hold *lease*."""
    return table_format.commit_settings("fence", {}, _transaction(what, target, lease.term - 1))


def _transaction(what: str, target: Relation, term: int) -> Transaction:
    return Transaction(f"{what}/{target}", term)
