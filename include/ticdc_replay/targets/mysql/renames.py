"""Renames of tables by one statement, which a note in the ledger makes safe to break: it is as if it had never begun, until the
ledger counts the new names.

RENAME TABLE is atomic, and ends transactions. Two tables that have swapped their names look as before, so an empty table of the
ledger's database gets another name in the same statement.
"""

import msgspec

from ticdc_replay.mysql_protocol import identifier
from ticdc_replay.targets.mirror.planning.renames import in_order
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.mysql.server import MysqlConnection
from ticdc_replay.targets.mysql.tables import exists, sql_of


class Renaming(msgspec.Struct, frozen=True):
    """Tables that get other names in one statement, which may be done or not."""

    names: tuple[tuple[Relation, Relation], ...]
    id: str
    """Names it among all others."""
    place: str = ""
    """``marks.place_of`` the mirrors."""
    counts: bool = False
    """Whether it is done, and the ledger has all that follows from the new names."""

    @property
    def places(self) -> list[Relation]:
        """The old and the new names."""
        return sorted({place for pair in self.names for place in pair}, key=str)

    @property
    def before(self) -> Relation:
        """The table that is there before it is done."""
        return Relation(LEDGER_SCHEMA, f"renaming_{self.id}")

    @property
    def after(self) -> Relation:
        """The table that is there once it is done."""
        return Relation(LEDGER_SCHEMA, f"renamed_{self.id}")


def rename(connection: MysqlConnection, renaming: Renaming) -> None:
    """Do *renaming*, which the ledger notes."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {sql_of(renaming.before)} ({identifier('id')} int PRIMARY KEY)")
        cursor.execute(_statement(dict(renaming.names), renaming.before, renaming.after))


def take_back(connection: MysqlConnection, renaming: Renaming) -> None:
    """Give the tables their old names back if *renaming* is done."""
    if exists(connection, renaming.after):
        names = {new: old for old, new in renaming.names}
        with connection.cursor() as cursor:
            cursor.execute(_statement(names, renaming.after, renaming.before))


def clear(connection: MysqlConnection, renaming: Renaming) -> None:
    """Drop what *renaming*, which counts or was taken back, has left."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {sql_of(renaming.before)}, {sql_of(renaming.after)}")


def _statement(names: dict[Relation, Relation], shows: Relation, done: Relation) -> str:
    """Gives the tables of *names* their names, and at last *shows* the name *done*."""
    pairs = [*in_order(names), (shows, done)]
    return "RENAME TABLE " + ", ".join(f"{sql_of(old)} TO {sql_of(new)}" for old, new in pairs)
