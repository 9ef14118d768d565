"""Which type a column has in MySQL, TiDB and MariaDB, which type can replace which, and how cells are staged.

Types are spelled as ``tables.find_table`` reads them, the same for the three servers. See docs/types.md.
"""

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.targets.mirror.planning.dialect import Check

MAX_CHARACTERS = 768
"""Of a varchar that an index of 3,072 bytes has room for, at four bytes each. A longer column is a longtext."""
MAX_BYTES = 3072
_KEY_LENGTH = 255
"""Of a text or binary column of unknown or greater length that identifies rows: an index needs one."""
_ALL_FRACTION_DIGITS = 6
_UNKNOWN_DECIMAL = "decimal(65,30)"
"""For a precision that only the table's definition would tell."""
_WIDTHS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MOMENT = re.compile(r"(date|time)?(time|stamp)\((\d)\)")
_SIZED = re.compile(r"(varchar|varbinary|bit)\((\d+)\)")
_LONG = {"varchar": "longtext", "varbinary": "longblob"}


def mysql_type(column_type: ColumnType, *, in_key: bool = False) -> str:
    """The type of the column in a mirror: the upstream's, but for texts (varchar or longtext, whose collation compares
    bytes), enum and set (their names, or numbers where no definition tells names) and JSON (its text)."""
    base = column_type.base
    if base in INTEGER_TYPES:
        return base + (" unsigned" if column_type.unsigned else "")
    if base == "decimal":
        known = column_type.length is not None
        return f"decimal({column_type.length},{column_type.scale or 0})" if known else _UNKNOWN_DECIMAL
    if base == "bit":
        return "bigint unsigned" if column_type.length is None else f"bit({column_type.length})"
    if base in ("datetime", "timestamp", "time"):
        return f"{base}({_ALL_FRACTION_DIGITS if column_type.scale is None else column_type.scale})"
    if base in ("enum", "set") and column_type.elements is None:
        return "smallint unsigned" if base == "enum" else "bigint unsigned"
    if base in ("float", "double", "date", "year"):
        return base
    if base in BINARY_TYPES:
        short = column_type.length if base in ("binary", "varbinary") else None
        return _sized("varbinary", short, MAX_BYTES, in_key=in_key)
    return _sized("varchar", _characters(column_type), MAX_CHARACTERS, in_key=in_key)


def _characters(column_type: ColumnType) -> int | None:
    """How many characters a value has at most; None where nothing tells, or it is no short text."""
    names = column_type.elements
    if column_type.base == "enum" and names is not None:
        return max(map(len, names), default=1)
    if column_type.base == "set" and names is not None:
        return sum(map(len, names)) + len(names)
    return column_type.length if column_type.base in ("char", "varchar") else None


def _sized(kind: str, length: int | None, most: int, *, in_key: bool) -> str:
    if length is not None and length <= most:
        return f"{kind}({max(length, 1)})"
    return f"{kind}({_KEY_LENGTH})" if in_key else _LONG[kind]


def spelled(column_type: str) -> str:
    """A type out of ``information_schema.columns`` in the form that ``mysql_type`` gives: servers print widths of integers,
    or don't, and leave out zero fraction digits."""
    text = re.sub(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)", r"\1", column_type.lower())
    return f"{text}(0)" if text in ("datetime", "timestamp", "time") else text


def holds(wide: str, narrow: str) -> bool:
    """Whether a column of type *wide* holds every value of *narrow* unaltered, and reads as the upstream does."""
    if wide == narrow:
        return True
    if (wide, narrow) == ("double", "float"):
        return True
    wide_decimal, narrow_decimal = _DECIMAL.fullmatch(wide), _DECIMAL.fullmatch(narrow)
    if wide_decimal is not None:
        return _decimal_holds(int(wide_decimal[1]), int(wide_decimal[2]), narrow, narrow_decimal)
    wide_base, _, wide_sign = wide.partition(" ")
    narrow_base, _, narrow_sign = narrow.partition(" ")
    if wide_base in _WIDTHS and narrow_base in _WIDTHS:
        wider = _WIDTHS.index(wide_base) - _WIDTHS.index(narrow_base)
        return wider > 0 and (wide_sign == narrow_sign or not wide_sign)
    if wide == "bigint unsigned" and narrow.startswith("bit("):
        return True
    wide_moment, narrow_moment = _MOMENT.fullmatch(wide), _MOMENT.fullmatch(narrow)
    if wide_moment is not None and narrow_moment is not None:
        return wide_moment.group(1, 2) == narrow_moment.group(1, 2) and int(wide_moment[3]) >= int(narrow_moment[3])
    wide_sized, narrow_sized = _SIZED.fullmatch(wide), _SIZED.fullmatch(narrow)
    if narrow_sized is not None:
        if wide == _LONG.get(narrow_sized[1]):
            return True
        return (
            wide_sized is not None and wide_sized[1] == narrow_sized[1] and int(wide_sized[2]) >= int(narrow_sized[2])
        )
    return False


def _decimal_holds(precision: int, scale: int, narrow: str, decimal: re.Match[str] | None) -> bool:
    base = narrow.partition(" ")[0]
    if base in _DIGITS:
        return precision - scale >= _DIGITS[base]
    if decimal is None:
        return False
    narrow_precision, narrow_scale = int(decimal[1]), int(decimal[2])
    return scale >= narrow_scale and precision - scale >= narrow_precision - narrow_scale


def stage_type(type_name: str) -> str:
    """The type of the column in staging: a bit is staged as its number, which a text file can hold."""
    return "bigint unsigned" if type_name.startswith("bit(") else type_name


def staged_arrow_type(type_name: str) -> pa.DataType:
    """Text as MySQL reads it in a file; bytes for binary columns."""
    return pa.large_binary() if type_name.startswith(("varbinary", "longblob")) else pa.large_string()


def staged_cells(cells: pa.Array, type_name: str) -> pa.Array:
    """*cells* of the changelog as ``staged_arrow_type(type_name)``. They passed the column's ``check``."""
    base = type_name.partition("(")[0]
    if base == "time":
        return _spans(cells)
    if base in ("datetime", "timestamp"):
        return cells.cast(pa.timestamp("us")).cast(pa.large_string())  # without a zone: the session's is UTC
    if base == "year":
        return pc.utf8_lpad(cells.cast(pa.string()), width=4, padding="0").cast(pa.large_string())
    if base == "date":
        return cells.cast(pa.large_string())
    if base in ("float", "double"):
        cells = cells.cast(pa.float64())  # the text of 32 bits, read as 64, would be another number
    return cells.cast(staged_arrow_type(type_name))


def _spans(cells: pa.Array) -> pa.Array:
    """Microseconds → ``-838:59:59.000000``."""
    numbers = pc.fill_null(cells, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    size = np.abs(numbers)
    seconds, micros = np.divmod(size, 1_000_000)
    minutes, second = np.divmod(seconds, 60)
    hours, minute = np.divmod(minutes, 60)

    def digits(values: npt.NDArray[np.int64], width: int) -> pa.Array:
        return pc.utf8_lpad(pa.array(values).cast(pa.string()), width=width, padding="0")

    clock = pc.binary_join_element_wise(digits(hours, 2), digits(minute, 2), digits(second, 2), ":")
    sign = pa.array(np.where(numbers < 0, "-", ""))
    text = pc.binary_join_element_wise(pc.binary_join_element_wise(sign, clock, ""), digits(micros, 6), ".")
    return pc.if_else(pc.is_valid(cells), text, None).cast(pa.large_string())


_EXACT_DATE = re.compile(rb"\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])")
_EXACT_CLOCK = rb" ([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_ZERO_TIMESTAMP = re.compile(rb"0000-00-00 00:00:00(\.0{1,6})?")


def takes_exact(type_name: str, text: bytes) -> bool:
    """Whether a column takes *text*, which no typed cell stands for: a date with zero parts, or one that no calendar has."""
    base, _, rest = type_name.partition("(")
    if base == "date":
        return _EXACT_DATE.fullmatch(text) is not None
    if base == "timestamp":
        return _ZERO_TIMESTAMP.fullmatch(text) is not None
    if base != "datetime":
        return False
    digits = int(rest.rstrip(")"))
    fraction = rb"(\.\d{1,%d})?" % digits if digits else rb""
    return re.fullmatch(_EXACT_DATE.pattern + _EXACT_CLOCK + fraction, text) is not None


def checks_of(type_name: str, cells: pa.DataType) -> list[tuple[Check, str]]:
    """Checks of changelog cells of Arrow type *cells* before they are staged as *type_name*, each with its reason; none
    if every cell fits."""
    sized = _SIZED.fullmatch(type_name)
    if sized is not None and sized[1] != "bit":
        most, unit = int(sized[2]), "bytes" if sized[1] == "varbinary" else "characters"
        length = pc.binary_length if sized[1] == "varbinary" else pc.utf8_length
        return [(lambda array: pc.greater(length(array), most), f"more than the {most} {unit} of {type_name}")]
    decimal = _DECIMAL.fullmatch(type_name)
    if decimal is not None and pa.types.is_string(cells):
        whole, scale = int(decimal[1]) - int(decimal[2]), int(decimal[2])
        fraction = rf"(\.\d{{1,{scale}}})?" if scale else ""
        pattern = rf"^-?0*\d{{1,{whole}}}{fraction}$" if whole else rf"^-?0+{fraction}$"
        reason = f"more digits than {type_name} holds"
        return [(lambda array: pc.invert(pc.match_substring_regex(array, pattern)), reason)]
    return []


def entry_bytes(type_name: str, cells: pa.Array) -> npt.NDArray[np.int64]:
    """None: an index has room for every value of its columns' types."""
    return np.zeros(len(cells), dtype=np.int64)
