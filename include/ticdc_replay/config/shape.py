"""How a target's tables differ from the upstream's: which columns they have, their names and types, and what is masked."""

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from ticdc_replay.config.types import ConnectionId, TablePattern
from ticdc_replay.domain.column_types import BaseType, ColumnType

ColumnPattern = Annotated[str, Field(min_length=1, max_length=64)]
ColumnName = Annotated[str, Field(min_length=1, max_length=63)]
Constant = Literal["loaded_at", "window", "run", "pipeline"]
"""``loaded_at``: when the attempt began (UTC); ``window``: ``<from_ts>-<to_ts>`` (TSO); ``run``: the run's hash."""

_CASTS: Mapping[str, ColumnType] = {
    "bigint": ColumnType("bigint", declared=True),
    "double": ColumnType("double", declared=True),
    "text": ColumnType("longtext", declared=True),
    "date": ColumnType("date", declared=True),
    "datetime": ColumnType("datetime", scale=6, declared=True),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_WIDEST = 38
CastType = Annotated[str, StringConstraints(pattern=r"^(bigint|double|text|date|datetime|decimal\(\d{1,2},\d{1,2}\))$")]


class Fixed(BaseModel):
    """A text that replaces each value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fixed: Annotated[str, Field(max_length=1_000)]


Mask = Literal["hash", "null"] | Fixed


class ShapeSection(BaseModel):
    """How the tables that match are shaped. Names of columns are the upstream's, in any letter case."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: tuple[TablePattern, ...] = Field(("*.*",), min_length=1, description="schema.table patterns with * and ?")
    include: tuple[ColumnPattern, ...] = Field(
        ("*",),
        min_length=1,
        description="Patterns of the columns that the target has; key columns are always among them",
    )
    exclude: tuple[ColumnPattern, ...] = Field((), description="Patterns of columns that the target does not have")
    rename: dict[ColumnName, ColumnName] = Field({}, description="The target's name of a column, by the upstream's")
    cast: OrderedDict[ColumnPattern, CastType] = Field(
        OrderedDict(), description="Type by column pattern: bigint, double, text, date, datetime or decimal(p,s)"
    )
    mask: OrderedDict[ColumnPattern, Mask] = Field(
        OrderedDict(),
        description="Mask by column pattern: hash (HMAC-SHA-256 in hex, with the salt of `salt_connection`), null, or "
        "fixed: <text>. NULL stays NULL",
    )
    salt_connection: ConnectionId | None = Field(
        None, description="Airflow connection id whose password is the salt of `hash`: 16 bytes or more"
    )
    constants: dict[ColumnName, Constant] = Field(
        {}, description="Columns that loads fill: loaded_at, window, run or pipeline, by the column's name"
    )

    @field_validator("cast", "mask", mode="before")
    @classmethod
    def _from_pairs(cls, given: Any) -> Any:
        """*given* of a job spec, as ``_as_pairs`` writes it."""
        match given:
            case list() if all(map(_is_pair, given)):
                return OrderedDict(given)
            case Mapping():
                return given
        raise PydanticKnownError("dict_type")

    @field_serializer("cast", "mask", mode="wrap", when_used="json")
    def _as_pairs(self, given: OrderedDict[str, Any], serialize: SerializerFunctionWrapHandler) -> list[list[Any]]:
        """Pairs, since the first pattern that matches counts, and JSON of job specs has its members sorted."""
        return [[*pair] for pair in serialize(given).items()]

    @property
    def hides(self) -> bool:
        """Whether the target is not to have some values of the tables."""
        return bool(self.mask or self.exclude or self.include != ("*",))

    @property
    def is_plain(self) -> bool:
        """Whether the tables stay as the upstream's."""
        return not (self.hides or self.rename or self.cast or self.constants)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        hashes = [name for name, mask in self.mask.items() if mask == "hash"]
        if hashes and self.salt_connection is None:
            raise ValueError(
                f"`mask`: {hashes[0]}: hash needs a salt; name the connection that has it, `salt_connection`"
            )
        if self.salt_connection is not None and not hashes:
            raise ValueError("`salt_connection`: no column of `mask` is hashed; take it out")
        for name, text in self.cast.items():
            found = _DECIMAL.fullmatch(text)
            if found and not (int(found[2]) <= int(found[1]) and 1 <= int(found[1]) <= _WIDEST):
                raise ValueError(
                    f"`cast`: {name}: {text} has no such digits; give 1 to {_WIDEST}, with the scale among them"
                )
        named = [name.lower() for name in (*self.rename.values(), *self.constants)]
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise ValueError(
                f"`rename`, `constants`: two columns would be called {twice[0]}; give each a name of its own"
            )
        sources = [name.lower() for name in self.rename]
        if len(set(sources)) < len(sources):
            raise ValueError("`rename`: a column is named twice, in other letter case; keep one of them")
        return self


def _is_pair(given: Any) -> bool:
    match given:
        case [str(), _]:
            return True
    return False


def cast_type(text: str) -> ColumnType:
    """The type that *text*, a ``CastType``, names."""
    if text in _CASTS:
        return _CASTS[text]
    base: BaseType = "decimal"
    digits, scale = (int(part) for part in text.removeprefix("decimal(").removesuffix(")").split(","))
    return ColumnType(base, length=digits, scale=scale, declared=True)
