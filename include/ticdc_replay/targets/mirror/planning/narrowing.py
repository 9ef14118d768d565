"""Which rows of a mirror a narrower type alters, as a condition in SQL that all databases read."""

from collections.abc import Callable

from ticdc_replay.domain.column_types import INTEGER_TYPES, ColumnType, integer_range

_FRACTION_DIGITS = 6
_LARGEST_FLOAT, _SMALLEST_NORMAL_FLOAT, _FLOATS_BELOW_IT = (2.0 - 2.0**-23) * 2.0**127, 2.0**-126, 2.0**149
_SPLITTER = 2.0**29 + 1
"""Of Dekker's method, which finds the 24 bits of a float in the 53 of a double by arithmetic alone. A cast to FLOAT fails in
PostgreSQL if a number is too large or too small, and rounds nothing in TiDB (``builtinCastRealAsRealSig``)."""
_MAX_BYTES = {
    f"{size}{kind}": limit
    for kind in ("text", "blob")
    for size, limit in {"tiny": (1 << 8) - 1, "": (1 << 16) - 1, "medium": (1 << 24) - 1, "long": (1 << 32) - 1}.items()
}


def unfit(
    column: str,
    column_type: ColumnType,
    literal: Callable[[str], str],
    micros: str,
    *,
    most_digits: int | None = None,
) -> str:
    """A condition, in SQL that all databases read, for values of *column* (quoted) that ``schemas.changes.narrows`` to
    *column_type* does not leave as they are. *literal* makes an SQL literal of a text,
    *micros* is an expression with the microseconds of a time. No decimal of the database has more than *most_digits*, nor has a
    literal; None for no such limit."""
    if column_type.base in INTEGER_TYPES:
        low, high = integer_range(column_type)
        return f"{column} < {low} OR {column} > {high}"
    if column_type.base == "decimal":
        whole, scale = (column_type.length or 0) - (column_type.scale or 0), column_type.scale or 0
        conditions = [f"round({column}, {scale}) <> {column}"]
        if most_digits is None or whole < most_digits:
            conditions.append(f"abs({column}) >= 1{'0' * whole}")
        conditions += [f"{column} < 0"] if column_type.unsigned else []
        return " OR ".join(conditions)
    if column_type.base in ("float", "double"):
        conditions = [f"{column} < 0"] if column_type.unsigned else []
        conditions += [_more_than_32_bits(column)] if column_type.base == "float" else []
        return " OR ".join(conditions)
    if column_type.base in ("time", "datetime", "timestamp"):
        step = 10 ** (_FRACTION_DIGITS - (column_type.scale or 0))
        return f"floor({micros} / {step}) * {step} <> {micros}"
    if column_type.base == "enum":
        return f"{column} NOT IN ({', '.join(map(literal, column_type.elements or ()))})"
    if column_type.base == "set":
        known = " + ".join(
            f"CASE WHEN position({literal(f',{name},')} IN concat(',', {column}, ',')) > 0 THEN 1 ELSE 0 END"
            for name in column_type.elements or ()
        )
        members = f"char_length({column}) - char_length(replace({column}, ',', '')) + 1"
        return f"{column} <> '' AND {members} <> {known}"
    if column_type.base in _MAX_BYTES:
        return f"octet_length({column}) > {_MAX_BYTES[column_type.base]}"
    if column_type.base == "varbinary":
        return f"octet_length({column}) > {column_type.length or 0}"
    padded = f" OR right({column}, 1) = ' '" if column_type.base == "char" else ""
    return f"char_length({column}) > {column_type.length or 0}{padded}"


def _more_than_32_bits(column: str) -> str:
    """A condition for doubles in *column* that are no floats of 32 bits."""
    size, large = f"abs({column})", f"{column} * {_SPLITTER:.17e}"
    units = f"{column} * {_FLOATS_BELOW_IT!r}"
    return (
        f"CASE WHEN {column} IS NULL THEN 0 WHEN {size} > {_LARGEST_FLOAT!r} THEN 1 "
        f"WHEN {size} < {_SMALLEST_NORMAL_FLOAT!r} THEN CASE WHEN floor({units}) = {units} THEN 0 ELSE 1 END "
        f"WHEN {large} - ({large} - {column}) = {column} THEN 0 ELSE 1 END = 1"
    )
