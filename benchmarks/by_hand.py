"""What a person would do by hand to bring the last version of each row into PostgreSQL: the peer of our load."""

from pathlib import Path

import psycopg
from psycopg import sql


def export(dsn: str, mirror: sql.Identifier, path: Path) -> int:
    """Write the rows that our load left in *mirror* as the CSV the peer starts from; not part of its time."""
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor, path.open("wb") as target:
        with cursor.copy(sql.SQL("COPY {} TO STDOUT (FORMAT csv)").format(mirror)) as copy:
            for chunk in copy:
                target.write(chunk)
        return cursor.rowcount


def create_target(dsn: str, mirror: sql.Identifier) -> None:
    """An empty table like *mirror*, with its primary key and indexes."""
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP TABLE IF EXISTS by_hand")
        connection.execute(sql.SQL("CREATE TABLE by_hand (LIKE {} INCLUDING ALL)").format(mirror))


def copy_and_replace(dsn: str, path: Path) -> int:
    """COPY the CSV into a temporary table, then delete the touched keys and insert the rows, in one transaction."""
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE incoming (LIKE by_hand) ON COMMIT DROP")
        with cursor.copy("COPY incoming FROM STDIN (FORMAT csv)") as copy, path.open("rb") as source:
            while chunk := source.read(1 << 20):
                copy.write(chunk)
        cursor.execute("DELETE FROM by_hand USING incoming WHERE by_hand.o_id = incoming.o_id")
        cursor.execute("INSERT INTO by_hand SELECT * FROM incoming")
        return cursor.rowcount
