"""What a target has instead of the upstream's columns: a pure value that turns schemas, DDL and rows into the target's."""

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from re import DOTALL, IGNORECASE, escape, fullmatch
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ticdc_replay.changelog.cells.types import CELLS_TYPE, EXACT_TYPE, arrow_field, arrow_type, table_arrow_schema
from ticdc_replay.changelog.cells.written import MOMENT_TYPES, WrittenCell, shortest
from ticdc_replay.config.shape import CastType, Constant, Fixed, Mask, ShapeSection, cast_type
from ticdc_replay.domain.column_types import CHARACTER_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.domain.errors import ConfigError, PolicyStopError
from ticdc_replay.domain.tables import Column, TableName, TableSchema, folded
from ticdc_replay.schemas.changes import (
    BreakingChange,
    Change,
    ColumnAdded,
    ColumnDropped,
    ColumnRenamed,
    ColumnWidened,
    NoRowChange,
    TableChanges,
    TableCreated,
)

DDL_NOT_SHOWN = "(not shown: the target masks or leaves out columns; the changelog has the text)"
_encode = msgspec.msgpack.Encoder().encode
_ALL_DIGITS = 200
"""More than any DECIMAL, or double in digits without exponent that a cast takes, has."""
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)?")
_HASHED = ColumnType("char", length=64, declared=True)
_FIXED = ColumnType("varchar", length=1_000, declared=True)
_CONSTANTS: Mapping[Constant, ColumnType] = {
    "loaded_at": ColumnType("timestamp", scale=6, declared=True),
    "window": ColumnType("varchar", length=64, declared=True),
    "run": ColumnType("varchar", length=64, declared=True),
    "pipeline": ColumnType("varchar", length=255, declared=True),
}
_CAST_FROM: Mapping[str, frozenset[str]] = {
    "bigint": INTEGER_TYPES | CHARACTER_TYPES | {"decimal", "year", "bit"},
    "decimal": INTEGER_TYPES | CHARACTER_TYPES | {"decimal", "year", "bit"},
    "double": INTEGER_TYPES | {"float", "double", "year"},
    "longtext": INTEGER_TYPES | CHARACTER_TYPES | {"decimal", "year", "date", "datetime", "enum", "set", "json"},
    "date": CHARACTER_TYPES | {"date", "datetime"},
    "datetime": CHARACTER_TYPES | {"date", "datetime"},
}
"""Types that a cast takes, by its result; a cell that would lose something has no value in the result."""
_PLAIN_FILLS = INTEGER_TYPES | {"char", "varchar"}
"""Types whose fills are written as their cells are."""


class Treatment(msgspec.Struct, frozen=True):
    """What becomes of the values of one column."""

    mask: Mask | None = None
    cast: CastType | None = None

    @property
    def is_plain(self) -> bool:
        """Whether values stay as they are."""
        return self.mask is None and self.cast is None


class Attempt(msgspec.Struct, frozen=True):
    """What constants are computed from."""

    loaded_at: datetime
    window: str
    run: str
    pipeline: str


class Shape(msgspec.Struct, frozen=True):
    """The shape of one table in one target. ``salt`` is in no artefact; its repr is hidden."""

    table: TableName
    section: ShapeSection
    salt: bytes = b""
    key_columns: frozenset[str] = frozenset()
    """Columns that are always included, as ``folded`` has them: those known to be, or to have been, of the handle key."""

    def __repr__(self) -> str:
        return f"Shape({self.table})"

    @staticmethod
    def fingerprint_of(salt: bytes) -> str:
        """A text that differs where *salt* does, and from which it can't be computed."""
        return hmac.digest(salt, b"ticdc-replay: which salt", "sha256").hex()

    def record(self, columns: Iterable[str]) -> dict[str, Any]:
        """What becomes of *columns*, as JSON: equal for shapes that treat them alike, whatever their patterns. It has no salt."""
        made: dict[str, Any] = {}
        for name in columns:
            treatment = self.treatment_of(name)
            mask = treatment.mask.fixed if isinstance(treatment.mask, Fixed) else treatment.mask
            kind = "fixed" if isinstance(treatment.mask, Fixed) else "mask"
            made[folded(name)] = [self.name_of(name), kind, mask, treatment.cast] if self.has(name) else None
        return made

    def unlike(self, column: str, other: str) -> PolicyStopError:
        """What stops a load of *column*, which has the name *other* now and is not treated like that."""
        return PolicyStopError(
            f"{self.table}: the column {column} was renamed to {other}, which `shape` treats in another way: let a pattern of "
            "`shape` match both names"
        )

    @property
    def hides(self) -> bool:
        """Whether the target is not to have some of the table's values."""
        return self.section.hides

    def has(self, column: str, key: Sequence[str] = ()) -> bool:
        """Whether the target has *column* of the upstream; *key* are the columns of the handle key."""
        if _matches(column, self.section.exclude):
            return False
        return column in key or folded(column) in self.key_columns or _matches(column, self.section.include)

    def treats_alike(self, column: str, other: str) -> bool:
        """Whether the target has of both columns the same, but for their names."""
        return (self.has(column), self.treatment_of(column)) == (self.has(other), self.treatment_of(other))

    def name_of(self, column: str) -> str:
        """The target's name of *column*."""
        return next((to for name, to in self.section.rename.items() if folded(name) == folded(column)), column)

    def treatment_of(self, column: str) -> Treatment:
        """What becomes of the values of *column*."""
        return Treatment(_first(column, self.section.mask), _first(column, self.section.cast))

    def schema(self, schema: TableSchema) -> TableSchema:
        """*schema* as the target has it.

        Raises ConfigError if the shape does not fit: a key column that is left out or loses values, a cast that is not
        possible, two columns of one name, or an exact name in it that the table does not have.
        """
        self._require_fit(schema)
        kept = [column for column in schema.columns if self.has(column.name, schema.handle_key)]
        columns = [*map(self.column, kept)]
        columns += [Column(name, _CONSTANTS[value]) for name, value in self.section.constants.items()]
        names = [folded(column.name) for column in columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise self._error(
                f"two columns would be called {twice[0]}", "choose another name in `rename` or `constants`"
            )
        whole = {column.name for column in kept if self.treatment_of(column.name).is_plain}
        unique = [key for key in schema.unique_keys if whole.issuperset(key)]
        return msgspec.structs.replace(
            schema,
            columns=tuple(columns),
            handle_key=tuple(sorted(map(self.name_of, schema.handle_key))),
            unique_keys=tuple(tuple(sorted(map(self.name_of, key))) for key in unique),
        )

    def column(self, column: Column) -> Column:
        """*column*, which the target has, as it has it. Raises ConfigError for a cast that is not possible."""
        name, treatment = self.name_of(column.name), self.treatment_of(column.name)
        since = self._since(column.name, column.since)
        if treatment.mask is None and treatment.cast is None:
            return msgspec.structs.replace(column, name=name, since=since)
        return msgspec.structs.replace(column, name=name, type=self._type(column, treatment), default=None, since=since)

    def changes(self, entry: TableChanges) -> TableChanges:
        """What the DDL of *entry* does to the target's table. Raises PolicyStopError for a RENAME COLUMN that would unmask
        values, or mask them from then on."""
        made = tuple(self._change(change) for change in entry.changes)
        return msgspec.structs.replace(entry, changes=made)

    def rows(self, batch: pa.RecordBatch, schema: TableSchema, attempt: Attempt) -> pa.RecordBatch:
        """*batch*, rows of the changelog with *schema*, as rows of ``self.schema(schema)``."""
        shaped = self.schema(schema)
        exact = [dict(entries or ()) for entries in batch["_exact"].to_pylist()]
        kept_exact: list[dict[str, bytes]] = [{} for _ in exact]
        images: dict[str, pa.Array] = {}
        for side in ("before", "after"):
            images[side] = self._image(batch[side], side, schema, shaped, attempt, exact, kept_exact)
        target = table_arrow_schema(shaped)
        cells = {
            "_absent": self._named_cells(batch["_absent"], schema),
            "_lossy": self._named_cells(batch["_lossy"], schema),
            "_exact": pa.array([[*entries.items()] or None for entries in kept_exact], EXACT_TYPE),
            **images,
        }
        if not all(self.treatment_of(name).is_plain for name in schema.handle_key):
            # As it is, it is a hash without salt of the plain key: whoever has it can try out keys. And it is of the text on the
            # wire: where DDL widened the column, rows with one key in the target have several.
            cells["_key"] = pa.array(_key_hashes(shaped, images, kept_exact), target.field("_key").type)
        arrays = [cells[name] if name in cells else batch[name] for name in target.names]
        return pa.RecordBatch.from_arrays(arrays, schema=target)

    def key(self, key: Mapping[str, WrittenCell]) -> dict[str, WrittenCell]:
        """The cells of a row's key as the target has them; *key* is by the upstream's column."""
        found = {}
        for name, cell in key.items():
            column = Column(name, cell.type)
            target, treatment = self.column(column), self.treatment_of(name)
            if not treatment.is_plain:
                text = None if cell.exact is None else cell.exact.encode()
                made, (left,) = self._treated(cell.array, [text], column, target, treatment)
                cell = WrittenCell(target.type, made, None if left is None else left.decode(errors="replace"))
            found[target.name] = cell
        return found

    def _image(
        self,
        image: pa.StructArray,
        side: str,
        schema: TableSchema,
        shaped: TableSchema,
        attempt: Attempt,
        exact: Sequence[Mapping[str, bytes]],
        kept_exact: Sequence[dict[str, bytes]],
    ) -> pa.StructArray:
        arrays, fields = [], []
        at = iter(shaped.columns)
        members = dict(zip((field.name for field in image.type), image.flatten(), strict=True))
        for column in schema.columns:
            if not self.has(column.name, schema.handle_key):
                continue
            cells, treatment = members[column.name], self.treatment_of(column.name)
            target = next(at)
            source, named = f"{side}.{column.name}", f"{side}.{target.name}"
            texts = [entries.get(source) for entries in exact]
            if treatment.is_plain:
                made = cells
                failed = texts
            else:
                made, failed = self._treated(cells, texts, column, target, treatment)
            for entries, text in zip(kept_exact, failed, strict=True):
                if text is not None:
                    entries[named] = text
            arrays.append(made)
            fields.append(arrow_field(target))
        there = pc.is_valid(image)
        for _name, value in self.section.constants.items():
            target = next(at)
            cell = pa.scalar(getattr(attempt, value), arrow_type(target.type))
            arrays.append(pc.if_else(there, cell, pa.scalar(None, cell.type)))
            fields.append(arrow_field(target))
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=pc.invert(there))

    def _treated(
        self, cells: pa.Array, texts: Sequence[bytes | None], column: Column, target: Column, treatment: Treatment
    ) -> tuple[pa.Array, list[bytes | None]]:
        """The cells, and the exact text of those that the cast leaves without a value."""
        made: list[Any] = []
        failed: list[bytes | None] = []
        for cell, text in zip(cells.to_pylist(), texts, strict=True):
            value, left = None, None
            if treatment.mask is not None:
                given = cell if text is None else text
                value = self._masked(given, column, treatment.mask)
            elif text is not None:
                left = text
            elif cell is not None:
                try:
                    value = _cast(cell, column.type, target.type)
                except (ValueError, ArithmeticError):
                    left = canonical_text(cell, column.type)
            made.append(value)
            failed.append(left)
        return pa.array(made, arrow_type(target.type)), failed

    def _masked(self, value: Any, column: Column, mask: Mask) -> str | None:
        if value is None or mask == "null":
            return None
        if isinstance(mask, Fixed):
            return mask.fixed
        return self._hmac(stable_text(value, column.type)).hex()

    def _hmac(self, content: bytes) -> bytes:
        return hmac.digest(self.salt, content, "sha256")

    def _type(self, column: Column, treatment: Treatment) -> ColumnType:
        is_number = column.type.base in ("enum", "set") and column.type.elements is None
        if is_number and treatment.mask in ("hash", None):
            raise self._error(
                f"the names of {column.name}, of type {column.type}, are unknown, and its rows have numbers in their place",
                "give the table's definition in the pipeline (definitions) and pin the window again (repin), or mask the column "
                "by a fixed text or null",
            )
        if treatment.mask == "hash":
            return _HASHED
        if isinstance(treatment.mask, Fixed):
            return _FIXED
        if treatment.mask is not None or treatment.cast is None:
            return column.type
        wanted = cast_type(treatment.cast)
        if column.type.base not in _CAST_FROM[wanted.base]:
            raise self._error(
                f"`cast`: {column.name}, of type {column.type}, can't become {treatment.cast} without loss",
                "choose another type, or leave the column as it is",
            )
        return wanted

    def _change(self, change: Change) -> Change:
        match change:
            case TableCreated(schema) if schema is not None:
                return TableCreated(self.schema(schema))
            case ColumnAdded():
                return self._added(change)
            case ColumnWidened(before, after):
                if not self.has(before.name):
                    return NoRowChange(f"change column {before.name}, which the target does not have")
                old, new = self.column(before), self.column(after)
                same = (old.type, old.nullable) == (new.type, new.nullable)
                return NoRowChange(f"change column {before.name}") if same else ColumnWidened(old, new)
            case ColumnDropped(name):
                if not self.has(name):
                    return NoRowChange(f"drop column {name}, which the target does not have")
                return msgspec.structs.replace(change, name=self.name_of(name), since=self._since(name, change.since))
            case ColumnRenamed():
                return self._renamed(change)
            case BreakingChange(kind="column_narrowed", column=column) if column is not None:
                return self._narrowed(change, column)
            case BreakingChange(kind="column_changed", column=column) if column is not None:
                return self._retyped(change, column)
            case BreakingChange(kind="key_changed", key=key):
                return msgspec.structs.replace(change, key=tuple(map(self.name_of, key)))
            case BreakingChange(kind="not_understood") if self.hides:
                return without_text(change)
        return change

    def _added(self, change: ColumnAdded) -> Change:
        column = change.column
        if not self.has(column.name):
            return NoRowChange(f"add column {column.name}, which the target does not have")
        treatment, made = self.treatment_of(column.name), self.column(column)
        if treatment.mask == "null":
            return ColumnAdded(made, None, True)
        if treatment.is_plain or change.fill is None:
            return msgspec.structs.replace(change, column=made)
        if treatment.mask is not None and (treatment.mask != "hash" or column.type.base in _PLAIN_FILLS):
            return ColumnAdded(made, self._masked(change.fill.encode(), column, treatment.mask), change.fill_known)
        if treatment.mask is None and treatment.cast == "text" and column.type.base in _PLAIN_FILLS:
            fill = change.fill if column.type.base in CHARACTER_TYPES else str(int(change.fill))
            return ColumnAdded(made, fill, change.fill_known)
        return ColumnAdded(made, None, False)

    def _renamed(self, change: ColumnRenamed) -> Change:
        name, to = change.name, change.to
        if not self.treats_alike(name, to):
            raise self.unlike(name, to)
        if not self.has(name) or self.name_of(name) == self.name_of(to):
            return NoRowChange(f"rename column {name}")
        return msgspec.structs.replace(
            change, name=self.name_of(name), to=self.name_of(to), since=self._since(name, change.since)
        )

    def _since(self, column: str, since: int) -> int:
        """Since when the target has the name of *column*, which the upstream has *since*; 0 for unknown. If `rename` gives that
        name to another column, the RENAME of that one changed nothing in the target."""
        is_given = folded(column) in map(folded, self.section.rename.values())
        return 0 if is_given and folded(self.name_of(column)) == folded(column) else since

    def _narrowed(self, change: BreakingChange, column: Column) -> Change:
        treatment = self.treatment_of(column.name)
        if not self.has(column.name):
            return NoRowChange(f"change column {column.name}, which the target does not have")
        if treatment.is_plain:
            return msgspec.structs.replace(change, column=self.column(column))
        if treatment.mask is not None and treatment.mask != "hash":
            return NoRowChange(f"change column {column.name}")
        # The target's values do not show whether the upstream's fit the new type.
        return msgspec.structs.replace(change, what=_type_changed(column), kind="column_changed", column=None)

    def _retyped(self, change: BreakingChange, column: Column) -> Change:
        """A changed type of a column concerns a target that has values of it, not one that has a fixed text in their place."""
        if not self.has(column.name):
            return NoRowChange(f"change column {column.name}, which the target does not have")
        treatment = self.treatment_of(column.name)
        if isinstance(treatment.mask, Fixed):
            return NoRowChange(f"change column {column.name}")
        if treatment.is_plain:
            return msgspec.structs.replace(change, column=self.column(column))
        return msgspec.structs.replace(change, what=_type_changed(column), column=None)

    def _named_cells(self, cells: pa.Array, schema: TableSchema) -> pa.Array:
        if cells.null_count == len(cells):
            return cells
        names = {
            f"{side}.{column.name}": f"{side}.{self.name_of(column.name)}"
            for side in ("before", "after")
            for column in schema.columns
            if self.has(column.name, schema.handle_key)
        }
        made = [None if row is None else [names[cell] for cell in row if cell in names] for row in cells.to_pylist()]
        return pa.array(made, CELLS_TYPE)

    def _require_fit(self, schema: TableSchema) -> None:
        for name in schema.handle_key:
            treatment = self.treatment_of(name)
            if not self.has(name, schema.handle_key) or treatment.mask not in (None, "hash"):
                raise self._error(
                    f"{name} is part of the key, which identifies rows",
                    "a key column may be renamed, cast or hashed only",
                )
            if treatment.mask is None and treatment.cast not in (None, "text", "bigint") and not treatment.is_plain:
                raise self._error(
                    f"{name} is part of the key, and a cast to {treatment.cast} may make two keys equal",
                    "cast it to text or bigint, or leave it",
                )
            column = schema.column(name)
            if column is not None and treatment.cast == "text" and column.type.base in ("decimal", "float", "double"):
                raise self._error(
                    f"{name} is part of the key, and one number of type {column.type} may have several texts",
                    "hash it, or leave it",
                )
            if column is not None and treatment.cast == "bigint" and column.type.base not in INTEGER_TYPES:
                raise self._error(
                    f"{name} is part of the key, and texts such as 1 and 01 are one bigint",
                    "cast it to text, or leave it",
                )
        lacking = self.lacking(schema)
        if lacking is not None and all(column.type.declared for column in schema.columns):
            raise lacking

    def lacking(self, schema: TableSchema) -> ConfigError | None:
        """What is wrong if *schema*, with all columns of the table, lacks an exact name of the shape. It has all columns by a
        definition, or if whole rows came; of deletes it may have the key alone."""
        known = {folded(column.name) for column in schema.columns}
        section = self.section
        for option, names in {
            "include": section.include,
            "exclude": section.exclude,
            "mask": (*section.mask,),
            "cast": (*section.cast,),
        }.items():
            for name in names:
                if not set(name) & set(_WILDCARDS) and folded(name) not in known:
                    at = f" at {schema.valid_from} (TSO)" if schema.valid_from else ""
                    return self._error(
                        f"`{option}`: the table has no column {name}{at}",
                        "correct the name; if the column was renamed, added or dropped, or if a column selector leaves it out, "
                        f"write a pattern such as {name}*",
                    )
        return None

    def _error(self, what: str, remedy: str) -> ConfigError:
        return ConfigError(f"shape of {self.table}: {what}; {remedy}")


def without_text(change: BreakingChange) -> BreakingChange:
    """*change*, of a DDL that is not understood, without the DDL's text."""
    return msgspec.structs.replace(change, what=f"a DDL that is not understood {DDL_NOT_SHOWN}")


def _key_hashes(
    schema: TableSchema, images: Mapping[str, pa.StructArray], exact: Sequence[Mapping[str, bytes]]
) -> list[bytes]:
    """The identity of each row of *schema* by the cells of its key, as the target has them, or their *exact* texts."""
    there = images["after"].is_valid().to_pylist()
    cells = {
        side: zip(*(pc.struct_field(image, [name]).to_pylist() for name in schema.handle_key), strict=True)
        for side, image in images.items()
    }
    hashes = []
    for put, before, after, texts in zip(there, cells["before"], cells["after"], exact, strict=True):
        side, key = ("after", after) if put else ("before", before)
        parts = [(cell, texts.get(f"{side}.{name}")) for cell, name in zip(key, schema.handle_key, strict=True)]
        hashes.append(xxhash.xxh3_128_digest(_encode(parts)))
    return hashes


def _type_changed(column: Column) -> str:
    """Without the types: the elements of an ENUM are values."""
    return f"the type of the column {column.name} changed"


def canonical_text(value: Any, column_type: ColumnType) -> bytes:
    """The text of a cell that is not NULL, as ``hash`` and casts take it: numbers in decimal digits, decimals with all digits of
    their scale, times as ISO 8601 with a space and without zeros that end a fraction, binary values as their bytes."""
    match value:
        case bytes():
            return value
        case bool():
            return str(int(value)).encode()
        case datetime():
            return _without_zeros(value.replace(tzinfo=None).isoformat(" ", "microseconds")).encode()
        case date() | time():
            return value.isoformat().encode()
        case int() if column_type.base == "time":
            sign, micros = ("-" if value < 0 else ""), abs(value)
            seconds, fraction = divmod(micros, 1_000_000)
            text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
            return _without_zeros(text).encode()
        case Decimal():
            return f"{value:f}".encode()
        case float():
            return _float_text(value, column_type).encode()
    return str(value).encode()


def stable_text(value: Any, column_type: ColumnType) -> bytes:
    """``canonical_text``, but that one number, or moment, has one text, however many digits its type has: a column may be
    widened. Of a value that its type does not hold, *value* is the exact text."""
    base = column_type.base
    if base in ("float", "double") and not isinstance(value, bytes):
        return repr(float(value) + 0.0).encode()
    if base == "decimal" or base in INTEGER_TYPES:
        try:
            number = Decimal(value.decode() if isinstance(value, bytes) else str(value))
        except (InvalidOperation, UnicodeDecodeError):
            number = Decimal("NaN")
        if number.is_finite():
            with localcontext(prec=_ALL_DIGITS):
                return f"{number.normalize() + 0:f}".encode()
    if base in MOMENT_TYPES and isinstance(value, bytes):
        return shortest(value.decode(errors="surrogateescape")).encode(errors="surrogateescape")
    return value if isinstance(value, bytes) else canonical_text(value, column_type)


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".")


def _float_text(value: float, column_type: ColumnType) -> str:
    if value == 0:
        return "0"  # MySQL takes -0 and 0 for one value
    text: str = pc.cast(pa.scalar(value, arrow_type(column_type)), pa.string()).as_py()
    return text


def _cast(value: Any, before: ColumnType, after: ColumnType) -> Any:
    """*value* as one of *after*. Raises ValueError or ArithmeticError if it would lose something."""
    match after.base:
        case "longtext":
            return canonical_text(value, before).decode()
        case "bigint":
            return _whole(_number(value), -(2**63), 2**63 - 1)
        case "decimal":
            return _decimal(_number(value), after)
        case "double":
            if isinstance(value, int) and int(float(value)) != value:
                raise ValueError(f"{value} has more digits than a double")
            return float(value)
    return _moment(value, after)


def _number(value: Any) -> Decimal:
    """*value*, of a text only if the number has no other one: no spaces, exponents, or zeros before it."""
    if isinstance(value, str) and (_NUMBER.fullmatch(value) is None or (value.startswith("-") and not Decimal(value))):
        raise ValueError(f"{value!r} is no number in plain digits")
    number = Decimal(str(value))
    if not number.is_finite():
        raise InvalidOperation
    return number


def _whole(number: Decimal, least: int, most: int) -> int:
    if number != number.to_integral_value() or not least <= number <= most:
        raise ValueError(f"{number} is no bigint")
    return int(number)


def _decimal(number: Decimal, after: ColumnType) -> Decimal:
    digits, scale = after.length or 0, after.scale or 0
    with localcontext(prec=_ALL_DIGITS):
        fitted = number.quantize(Decimal(1).scaleb(-scale))
        if fitted != number:
            raise ValueError(f"{number} has more than {scale} digits after the point")
    if number and number.adjusted() >= digits - scale:
        raise ValueError(f"{number} has more than {digits - scale} digits before the point")
    return fitted


def _moment(value: Any, after: ColumnType) -> Any:
    if isinstance(value, str) and _MOMENT.fullmatch(value) is None:
        raise ValueError(f"{value!r} is no date, and no time without a zone and with up to 6 digits of a second")
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if after.base == "datetime":
        return moment
    if moment - datetime(moment.year, moment.month, moment.day) != timedelta():
        raise ValueError("a time of day is no part of a date")
    return moment.date()


def _matches(column: str, patterns: Sequence[str]) -> bool:
    return any(fullmatch(_translated(folded(pattern)), folded(column), IGNORECASE | DOTALL) for pattern in patterns)


_WILDCARDS = {"*": ".*", "?": "."}
"""Those of patterns of columns, as regular expressions. Brackets are none: a column may have them in its name."""


def _translated(pattern: str) -> str:
    return "".join(_WILDCARDS.get(letter) or escape(letter) for letter in pattern)


def _first(column: str, by_pattern: Mapping[str, Any]) -> Any:
    return next((found for pattern, found in by_pattern.items() if _matches(column, (pattern,))), None)
