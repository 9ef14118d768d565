"""A mirror in a lake as a side of a comparison. A statement reads the whole table, or the files that statistics leave, so each is
about many ranges of keys or many rows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from ticdc_replay.targets.base import StoreAddress
from ticdc_replay.targets.lake.compared_cells import SETTINGS, LakeColumn, forms_of_type
from ticdc_replay.targets.lake.dialect import quoted
from ticdc_replay.targets.lake.errors import translated
from ticdc_replay.targets.lake.ledger import LakeLedger
from ticdc_replay.targets.lake.stage import DELETED_AT, ReadTask, read_staged
from ticdc_replay.targets.lake.table_format import TableFormat
from ticdc_replay.targets.mirror.comparison import Comparisons, MirrorTable
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.sql import Sql
from ticdc_replay.verify import forms
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.side import ComparedColumn, Digest, FoundRow, Key, Range, ScannedSide

_PLACE, _KEY, _BITS, _BOUNDS = (f"_ticdc_replay_{name}" for name in ("place", "key", "bits", "bounds"))
_FEW = 60
"""So many ranges or keys are written as conditions, by which files are skipped."""


class LakeComparisons(Comparisons):
    """Statements of one Spark session, in the catalog of one target."""

    def __init__(self, sql: Sql, table_format: TableFormat, address: StoreAddress, dialect: Dialect) -> None:
        self.sql = sql
        self._format = table_format
        self._address, self._dialect = address, dialect
        self._versions: dict[Relation, str] = {}

    def forms(self, type_name: str) -> frozenset[Form]:
        return forms_of_type(type_name)

    def side(self, table: MirrorTable, columns: Sequence[ComparedColumn], key: Sequence[int]) -> ScannedSide:
        assert table.found is not None, table.relation
        with translated(self._format, f"look at the versions of {table.relation}"):
            version, place = self._format.pinned(self.sql, table.relation)
        self._versions[table.relation] = version
        return LakeSide(self, table, place, columns, key)

    def version_of(self, table: MirrorTable) -> str:
        return self._versions.get(table.relation, "")

    def read_tombstones(self, target: Relation, columns: tuple[tuple[str, str], ...]) -> list[ReadTask]:
        """What reads *columns*, with their types, of the deletes of *target* that the ledger remembers now."""
        files = LakeLedger(self._address.open()).tombstones_of(target)
        return [ReadTask(self._address, file.name, columns, self._dialect) for file in files]

    def query(self, doing: str, statement: str) -> list[dict[str, Any]]:
        """The rows of *statement*; *doing* says in errors what it is for."""
        with translated(self._format, doing):
            return self.sql.run(statement, SETTINGS)


class LakeSide(ScannedSide):
    """Compares *columns* of *table*, whose rows the SQL name *place* has; *key* are the places of its columns among them."""

    def __init__(
        self,
        session: LakeComparisons,
        table: MirrorTable,
        place: str,
        columns: Sequence[ComparedColumn],
        key: Sequence[int],
    ) -> None:
        assert table.found is not None, table.relation
        types = {column.name: column.type for column in table.found.columns}
        self._session = session
        self._doing = f"compare {table.relation}"
        self._columns = [LakeColumn(at, column, types[column.mirror]) for at, column in enumerate(columns)]
        self._keys = [self._columns[at] for at in key]
        self._forms = [column.form for column in self._keys]
        self._version = quoted(table.version_column)
        self._marker = None if table.state.deleted_column is None else quoted(table.state.deleted_column)
        self._target = table.relation
        self._place = place
        alone = len(self._keys) == 1
        fields = ", ".join(f"'k{at}', {column.key}" for at, column in enumerate(self._keys))
        self._key = self._keys[0].key if alone else f"named_struct({fields})"
        texts = ", ".join(arguments for column in self._columns for arguments in column.in_row())
        self._md5 = f"md5(concat_ws(',', {texts}))"
        self._key_texts = ", ".join(f"{column.key_text()} AS k{at}" for at, column in enumerate(self._keys))

    def digests(self, parts: Sequence[Range]) -> list[Digest]:
        bits = f"CAST(conv(left({self._md5}, 16), 16, -10) AS bigint)"
        rows = self._placed(f"{self._key} AS {_KEY}, {bits} AS {_BITS}", parts)
        grouped = f"SELECT {_PLACE} AS place, count(*) AS rows, bit_xor({_BITS}) AS bits FROM {rows} GROUP BY {_PLACE}"
        found = {row["place"]: Digest(row["rows"], row["bits"] % (1 << 64)) for row in self._query(grouped)}
        return [found.get(place, Digest(0, 0)) for place in self._places(parts)]

    def cuts(self, parts: Sequence[Range], ratios: Sequence[int]) -> list[list[Key]]:
        fields = ", ".join(f"'t{at}', {column.key_text()}" for at, column in enumerate(self._keys))
        taken = [1] * (len(self._bounds(parts)) + 1)
        for place, one_of in zip(self._places(parts), ratios, strict=True):
            taken[place] = one_of
        ratio = f"get(array({', '.join(map(str, taken))}), {_PLACE})"
        rows = self._placed(f"{self._key} AS {_KEY}, named_struct({fields}) AS {_BITS}", parts)
        pairs = f"collect_list(named_struct('key', {_KEY}, 'texts', {_BITS}))"
        whole = "".join(f" AND {_BITS}.t{at} IS NOT NULL" for at in range(len(self._keys)))
        sample = f"{pairs} FILTER (WHERE pmod(xxhash64({_KEY}), {ratio}) = 0{whole})"
        grouped = f"SELECT {_PLACE} AS place, sort_array({sample}).texts AS texts FROM {rows} GROUP BY {_PLACE}"
        found = {row["place"]: [self._key_of(tuple(each)) for each in row["texts"]] for row in self._query(grouped)}
        return [found.get(place, []) for place in self._places(parts)]

    def rows(self, parts: Sequence[Range]) -> list[list[FoundRow]]:
        found: list[list[FoundRow]] = [[] for _ in parts]
        for first in range(0, len(parts), _FEW):
            some = parts[first : first + _FEW]
            conditions = [self._in(part) for part in some]
            cases = " ".join(f"WHEN {condition} THEN {at}" for at, condition in enumerate(conditions, first))
            selected = f"CASE {cases} END AS part, {self._md5} AS md5, {self._version} AS version, {self._key_texts}"
            for row in self._query(f"SELECT {selected} FROM {self._table(_any(conditions))}"):
                found[row["part"]].append(FoundRow(self._key_in(row), row["md5"], row["version"]))
        return found

    def cells(self, keys: Sequence[Key]) -> dict[Key, list[str | None]]:
        cells = [f"{column.short_cell()} AS c{column.number}" for column in self._columns]
        return {
            self._key_in(row): [row[f"c{column.number}"] for column in self._columns]
            for row in self._of_keys(keys, ", ".join(cells))
        }

    def values(self, keys: Sequence[Key], column: int) -> dict[Key, str | None]:
        return {
            self._key_in(row): row["value"] for row in self._of_keys(keys, f"{self._columns[column].text()} AS value")
        }

    def deleted(self, keys: Sequence[Key]) -> dict[Key, int]:
        possible = [key for key in keys if self._is_possible(key)]
        if self._marker is not None:
            rows = self._of_keys(possible, f"{self._version} AS version", self._marker)
            return {self._key_in(row): row["version"] for row in rows}
        columns = (*((column.column.mirror, column.type) for column in self._keys), (DELETED_AT, "bigint"))
        tasks = self._session.read_tombstones(self._target, columns)
        if not tasks or not possible:
            return {}
        layout = ", ".join(f"{quoted(name)} {type_name}" for name, type_name in columns)
        view, found = f"ticdc_replay_{uuid4().hex}", dict[Key, int]()
        with self._session.sql.view(view, read_staged, tasks, layout):
            for some in _some(possible):
                selected = f"{quoted(DELETED_AT)} AS version, {self._key_texts}"
                for row in self._query(f"SELECT {selected} FROM {view} WHERE {self._has_key(some)}"):
                    key = self._key_in(row)
                    found[key] = max(found.get(key, 0), row["version"])
        return found

    def _of_keys(self, keys: Sequence[Key], selected: str, condition: str | None = None) -> Iterator[dict[str, Any]]:
        for some in _some([key for key in keys if self._is_possible(key)]):
            table = self._table(self._has_key(some), condition)
            yield from self._query(f"SELECT {selected}, {self._key_texts} FROM {table}")

    def _query(self, statement: str) -> list[dict[str, Any]]:
        return self._session.query(self._doing, statement)

    def _table(self, condition: str, of_rows: str | None = None) -> str:
        """The rows that meet *condition*, by default those that are not deleted, with what texts of floats need."""
        if of_rows is None:
            of_rows = "true" if self._marker is None else f"NOT {self._marker}"
        scaled = [expression for column in self._columns for expression in column.scaled()]
        return f"(SELECT {', '.join(['*', *scaled])} FROM {self._place} WHERE {of_rows} AND ({condition})) rows"

    def _placed(self, selected: str, parts: Sequence[Range]) -> str:
        """*selected* of the rows from the first to the last of *parts*, with ``_PLACE``: how many of the bounds of *parts* are
        not above the key, found by halves. Each half is a query of its own, whose number is then computed once for a row."""
        bounds = self._bounds(parts)
        first, last = parts[0].lower, parts[-1].upper
        literals = ", ".join(self._literal(bound) for bound in bounds)
        array = f"array({literals})" if bounds else "NULL"
        rows = (
            f"(SELECT {selected}, {array} AS {_BOUNDS}, 0 AS {_PLACE} FROM {self._table(self._in(Range(first, last)))})"
        )
        if not bounds:
            return rows
        kept = f"{_KEY}, {_BITS}, {_BOUNDS}"
        half = 1 << (len(bounds).bit_length() - 1)
        while half:
            is_above = f"{_KEY} >= get({_BOUNDS}, {_PLACE} + {half - 1})"
            place = f"CASE WHEN {is_above} THEN {_PLACE} + {half} ELSE {_PLACE} END"
            rows = f"(SELECT {kept}, {place} AS {_PLACE} FROM {rows})"
            half //= 2
        return rows

    @staticmethod
    def _bounds(parts: Sequence[Range]) -> list[Key]:
        """The distinct bounds of *parts*, in their order."""
        return list(dict.fromkeys(bound for part in parts for bound in part if bound is not None))

    def _places(self, parts: Sequence[Range]) -> list[int]:
        """``_PLACE`` of the rows of each of *parts*."""
        numbers = {bound: at for at, bound in enumerate(self._bounds(parts), 1)}
        return [0 if part.lower is None else numbers[part.lower] for part in parts]

    def _in(self, part: Range) -> str:
        """Whether a row is in *part*; also by the key's first column alone, by which files are skipped. A NULL there comes before
        all bounds."""
        conditions = []
        column = self._keys[0]
        for bound, operator in ((part.lower, ">="), (part.upper, "<")):
            if bound is None:
                continue
            conditions.append(f"{self._key} {operator} {self._literal(bound)}")
            if len(self._keys) > 1:
                text = bound[0] if _may_be(column, bound[0]) else column.next_possible(bound[0])
                conditions.append(f"{column.key} {operator[0]}= {column.literal(text)}")
        if not conditions:
            return "true"
        within = " AND ".join(conditions)
        return f"({within} OR {column.key} IS NULL)" if part.lower is None else f"({within})"

    def _literal(self, bound: Key) -> str:
        """What exactly the keys from *bound* on come after, or are. If *bound* has a day that no calendar has, it is the next day
        and NULL, which comes before all values."""
        literals = []
        for column, text in zip(self._keys, bound, strict=True):
            if not _may_be(column, text):
                literals.append(column.literal(column.next_possible(text)))
                break
            literals.append(column.literal(text))
        if len(self._keys) == 1:
            return literals[0]
        rest = [f"CAST(NULL AS {column.key_type})" for column in self._keys[len(literals) :]]
        fields = [f"'k{at}', {each}" for at, each in enumerate([*literals, *rest])]
        return f"named_struct({', '.join(fields)})"

    def _has_key(self, keys: Sequence[Key]) -> str:
        return _any(
            [
                " AND ".join(
                    f"{column.key} = {column.literal(text)}" for column, text in zip(self._keys, key, strict=True)
                )
                for key in keys
            ]
        )

    def _is_possible(self, key: Key) -> bool:
        return all(map(_may_be, self._keys, key))

    def _key_in(self, row: Mapping[str, Any]) -> Key:
        return self._key_of([row[f"k{at}"] for at in range(len(self._keys))])

    def _key_of(self, texts: Sequence[str | None]) -> Key:
        return forms.canonical_key(texts, self._forms)


def _may_be(column: LakeColumn, text: str) -> bool:
    """Whether the mirror can have *text* in a column of its key."""
    return forms.is_calendar_day(column.form, text)


def _any(conditions: Sequence[str]) -> str:
    return " OR ".join(f"({condition})" for condition in conditions)


def _some(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    for first in range(0, len(keys), _FEW):
        yield keys[first : first + _FEW]
