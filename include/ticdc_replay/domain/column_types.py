"""MySQL column types as every protocol, the changelog and the targets understand them."""

from typing import Literal

import msgspec

BaseType = Literal[
    "tinyint", "smallint", "mediumint", "int", "bigint",
    "float", "double", "decimal",
    "bit", "year",
    "date", "time", "datetime", "timestamp",
    "char", "varchar", "tinytext", "text", "mediumtext", "longtext",
    "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob",
    "enum", "set", "json", "vector",
]  # fmt: skip

INTEGER_TYPES = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
CHARACTER_TYPES = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
BINARY_TYPES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})


class ColumnType(msgspec.Struct, frozen=True, omit_defaults=True):
    """The type of one column.

    ``declared``: a table definition gave it (DDL, bootstrap, registry, YAML). Types known only from the wire lack what
    the protocol does not carry: precision and scale, fraction digits, the width of a bit, names of an enum or set.
    """

    base: BaseType
    unsigned: bool = False
    length: int | None = None
    """Precision of a decimal, width of a bit (bits), characters or bytes of a string or binary type."""
    scale: int | None = None
    """Digits after the point of a decimal, fraction digits of a temporal type."""
    elements: tuple[str, ...] | None = None
    """Names of an enum or set, in order."""
    declared: bool = False

    def __str__(self) -> str:
        """The type as MySQL would print it."""
        text: str = self.base
        if self.elements is not None:
            text += "(" + ",".join("'" + name.replace("'", "''") + "'" for name in self.elements) + ")"
        elif self.base == "decimal" and self.length is not None:
            text += f"({self.length},{self.scale or 0})"
        elif self.base in ("time", "datetime", "timestamp"):
            text += f"({self.scale})" if self.scale else ""
        elif self.length is not None:
            text += f"({self.length})"
        return text + (" unsigned" if self.unsigned else "")


_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


def integer_range(column_type: ColumnType) -> tuple[int, int]:
    """The smallest and the largest number of *column_type*, one of ``INTEGER_TYPES``."""
    bits = _INTEGER_BITS[column_type.base]
    return (0, (1 << bits) - 1) if column_type.unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
