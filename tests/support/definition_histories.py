"""Histories of tables whose enum columns change, with what each cell means at its commitTs: the truth, apart from the library."""

import random
from typing import Any, NamedTuple

from tests.support.laggard import Laggard

Cells = dict[str, Any]


class Row(NamedTuple):
    """A row as it was written at *commit* (seconds), and its cells by name as the upstream shows them."""

    commit: float
    table: str
    key: int
    cells: Cells


class History:
    """Tables that are made, changed, renamed and dropped at random, sent to *feed* as it happens."""

    TABLES = ("a", "b", "c")

    def __init__(self, feed: Laggard, seed: int, unreadable: float = 0) -> None:
        """*unreadable* is the share of the DDL that nobody can read; of half of it the table can be."""
        self._unreadable = unreadable
        self._feed, self._random = feed, random.Random(seed)
        self._tables: dict[str, dict[str, list[str] | None]] = {}
        self._second, self._key = 4 * 3600.0, 0  # later than the changefeed began
        self._last = ""
        self.rows: list[Row] = []
        self.moments: list[float] = []
        """When something committed: where windows may be cut just before or just after."""
        self.shadows: list[tuple[str, float, float]] = []
        """The table of each DDL, when it committed, and when it was recorded."""

    def go_on(self, steps: int, lags: list[float]) -> None:
        """Do so many things; the lag changes among *lags* as time goes on."""
        for _ in range(steps):
            if self._random.random() < 0.15:
                self._feed.lag = self._random.choice(lags)
            if self._random.random() < 0.05:
                self._feed.resend(self._second - self._random.choice([5, 60, 600]))
            self._second += self._random.choice([0.001, 0.5, 3, 10, 10, 30, 60, 600])
            self.moments.append(self._second)
            self._one()

    @property
    def second(self) -> float:
        return self._second

    def _one(self) -> None:
        choose = self._random
        missing = [name for name in self.TABLES if name not in self._tables]
        if missing and (not self._tables or choose.random() < 0.15):
            self._create(choose.choice(missing))
            return
        if self._last not in self._tables or choose.random() < 0.4:
            self._last = choose.choice(sorted(self._tables))
        table = self._last
        doing = choose.choices(["row", "modify", "add", "drop column", "rename", "drop"], [10, 6, 3, 1.5, 1, 0.3])[0]
        if doing == "row":
            self._row(table)
        elif doing == "modify":
            enums = [name for name, names in self._tables[table].items() if names]
            if enums:
                self._modify(table, choose.choice(enums))
        elif doing == "add":
            self._add(table)
        elif doing == "drop column" and len(self._tables[table]) > 1:
            column = choose.choice(sorted(self._tables[table]))
            del self._tables[table][column]
            self._ddl(table, f"ALTER TABLE `{table}` DROP COLUMN `{column}`")
        elif doing == "rename" and missing:
            new = choose.choice(missing)
            self._tables[new] = self._tables.pop(table)
            self._ddl(table, f"RENAME TABLE `shop`.`{table}` TO `shop`.`{new}`", new)
        elif doing == "drop":
            del self._tables[table]
            self._ddl(table, f"DROP TABLE `{table}`")

    def _names(self) -> list[str]:
        return self._random.sample(["x", "y", "z", "w"], 3)

    def _create(self, table: str) -> None:
        names = self._names()
        self._tables[table] = {"e": names}
        self._ddl(table, f"CREATE TABLE `{table}` (`id` BIGINT PRIMARY KEY,`e` {_enum(names)})")

    def _modify(self, table: str, column: str) -> None:
        names = self._names()
        self._tables[table][column] = names
        self._ddl(table, f"ALTER TABLE `{table}` MODIFY COLUMN `{column}` {_enum(names)}")

    def _add(self, table: str) -> None:
        number = len(self.moments)
        if self._random.random() < 0.7:
            names = self._names()
            self._tables[table][f"e{number}"] = names
            self._ddl(table, f"ALTER TABLE `{table}` ADD COLUMN `e{number}` {_enum(names)}")
        else:
            self._tables[table][f"n{number}"] = None
            self._ddl(table, f"ALTER TABLE `{table}` ADD COLUMN `n{number}` INT")

    def _ddl(self, table: str, query: str, new: str | None = None) -> None:
        self.shadows.append((new or table, self._second, self._second + self._feed.lag))
        readable = not self._unreadable or self._random.random() > self._unreadable
        named = readable or self._random.random() < 0.5
        self._feed.ddl(self._second, table, query, new=new, readable=readable, named=named)

    def _row(self, table: str) -> None:
        self._key += 1
        sent = {column: self._random.randint(1, 3) for column in self._tables[table]}
        self._feed.row(self._second, table, self._key, **sent)
        meant = {
            column: sent[column] if names is None else names[sent[column] - 1]
            for column, names in self._tables[table].items()
        }
        self.rows.append(Row(self._second, table, self._key, meant))


def _enum(names: list[str]) -> str:
    return f"ENUM({','.join(repr(name) for name in names)})"
