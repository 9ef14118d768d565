"""Canonical texts of a lake table's cells in Spark SQL (``verify.forms``), and literals of its keys.

Statements run in ANSI mode, where a decimal as text has no exponent, and with UTC as the session's time zone.
"""

import calendar
import re
from typing import NamedTuple

from ticdc_replay.targets.lake.dialect import quoted
from ticdc_replay.verify import forms
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.side import ComparedColumn

SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
"""Of the session, for every statement."""

_FORMS = {
    "int": {Form.INTEGER},
    "bigint": {Form.INTEGER, Form.SPAN},
    "float": {Form.BITS},
    "double": {Form.BITS},
    "date": {Form.DATE},
    "timestamp": {Form.INSTANT},
    "timestamp_ntz": {Form.MOMENT},
    "string": {Form.TEXT, Form.JSON, Form.DECIMAL},
    "binary": {Form.BYTES},
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SPAN = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_MOST_DIGITS = 38
_WIDE_INTEGER = "decimal(20,0)"
_MICROS = 1_000_000
_FIRST_DAY = "0001-01-01"


def forms_of_type(type_name: str) -> frozenset[Form]:
    """The forms that cells of a Spark type can be compared in. A TIME is stored as microseconds, a decimal of many digits as
    text."""
    if _DECIMAL.fullmatch(type_name):
        return frozenset({Form.INTEGER, Form.DECIMAL})
    return frozenset(_FORMS.get(type_name, ()))


class LakeColumn(NamedTuple):
    """A compared column with its Spark type in the mirror. *number* distinguishes it among those of its table."""

    number: int
    column: ComparedColumn
    type: str

    @property
    def name(self) -> str:
        """Its SQL name."""
        return quoted(self.column.mirror)

    @property
    def form(self) -> Form:
        """The form that it is compared in."""
        return self.column.form

    def scaled(self) -> list[str]:
        """What a query must select beside the table's columns before ``text`` can be written: of a float, its absolute value
        as ``forms.LIMBS`` takes it, and what names the power of two that brought it there."""
        if self.form is not Form.BITS:
            return []
        positive = f"abs(CAST({self.name} AS double))"
        factors, places = [], []
        for place, (bound, scale) in reversed([*enumerate(forms.TIMES_DOWN, 1)]):
            product = " * ".join([positive, *map(_double, scale)])
            factors.append(f"WHEN {positive} >= {_double(bound)} THEN {product}")
            places.append(f"WHEN {positive} >= {_double(bound)} THEN '-{place}:'")
        for place, (bound, scale) in reversed([*enumerate(forms.TIMES_UP, 1)]):
            product = " * ".join([positive, *map(_double, scale)])
            factors.append(f"WHEN {positive} < {_double(bound)} THEN {product}")
            places.append(f"WHEN {positive} < {_double(bound)} THEN '{place}:'")
        return [
            f"CASE {' '.join(factors)} ELSE {positive} END AS {self._scaled}",
            f"CASE {' '.join(places)} ELSE '' END AS {self._place}",
        ]

    def in_row(self) -> list[str]:
        """The cell among the arguments of concat_ws, which leaves out a NULL. A text stands after its length in bytes."""
        text = self.cell()
        if self.form is Form.TEXT and not forms.is_hashed(self.form, self.column.type):
            return [f"CAST(coalesce(octet_length({text}), {forms.NO_LENGTH}) AS string)", text]
        return [f"coalesce({text}, '{forms.NULL}')"]

    def cell(self) -> str:
        """The text of the cell, of a long one its MD5."""
        return f"md5({self._bytes})" if forms.is_hashed(self.form, self.column.type) else self.text()

    def short_cell(self) -> str:
        """The text of the cell, of any character text its MD5."""
        return f"md5({self._bytes})" if self.form is Form.TEXT else self.cell()

    @property
    def _bytes(self) -> str:
        return f"CAST({self.name} AS binary)"

    def text(self) -> str:
        """The canonical text of the cell."""
        match self.form:
            case Form.INTEGER:
                decimal = _DECIMAL.fullmatch(self.type)
                text = f"CAST({self.name} AS string)"
                return text if decimal is None or decimal[2] == "0" else f"regexp_replace({text}, '[.]?0+$', '')"
            case Form.DECIMAL:
                return self._decimal()
            case Form.BITS:
                return self._bits()
            case Form.SPAN:
                return self._span()
            case Form.BYTES:
                return f"lower(hex({self.name}))"
            case Form.TEXT | Form.JSON:
                return self.name
            case _:
                return f"CAST({self.name} AS string)"

    def key_text(self) -> str:
        """The text of the cell of a key, of a float with all its digits."""
        return f"CAST(CAST({self.name} AS double) AS string)" if self.form is Form.BITS else self.text()

    def _decimal(self) -> str:
        scale, decimal = self.column.type.scale or 0, _DECIMAL.fullmatch(self.type)
        if decimal is None:
            return _padded(self.name, scale)
        if int(decimal[2]) == scale:
            return f"CAST({self.name} AS string)"
        number = f"CAST({self.name} AS decimal({_MOST_DIGITS},{scale}))"
        return f"CASE WHEN {number} = {self.name} THEN CAST({number} AS string) ELSE CAST({self.name} AS string) END"

    def _bits(self) -> str:
        parts, rest = [], self._scaled
        for _ in range(forms.LIMBS):
            parts += [f"CAST(floor({rest}) AS string)", "'.'"]
            rest = f"({rest} - floor({rest})) * {_double(2.0**forms.LIMB_BITS)}"
        limbs = ", ".join([*parts, f"CAST(floor({rest}) AS string)"])
        sign = f"CASE WHEN {self.name} < 0 THEN '-' ELSE '' END"
        return (
            f"CASE WHEN isnan({self.name}) OR {self._scaled} = double('Infinity') THEN CAST({self.name} AS string) "
            f"WHEN {self.name} = 0 THEN '0' WHEN {self.name} IS NOT NULL THEN concat({sign}, {self._place}, {limbs}) END"
        )

    @property
    def _scaled(self) -> str:
        return f"_ticdc_replay_scaled_{self.number}"

    @property
    def _place(self) -> str:
        return f"_ticdc_replay_scale_{self.number}"

    def _span(self) -> str:
        micros, second = f"abs({self.name})", f"(abs({self.name}) div {_MICROS})"
        two_digits = [f"lpad(CAST({part} AS string), 2, '0')" for part in (f"{second} div 60 % 60", f"{second} % 60")]
        hours = f"({second} div 3600)"
        fraction = f"trim(TRAILING '0' FROM concat('.', lpad(CAST({micros} % {_MICROS} AS string), 6, '0')))"
        return (
            f"concat(CASE WHEN {self.name} < 0 THEN '-' ELSE '' END, CASE WHEN {hours} < 10 THEN '0' ELSE '' END, "
            f"CAST({hours} AS string), ':', {two_digits[0]}, ':', {two_digits[1]}, trim(TRAILING '.' FROM {fraction}))"
        )

    @property
    def key_type(self) -> str:
        """The type in which keys are compared: it holds every value of the source's column, and of the mirror's."""
        source = self.column.type
        match self.form:
            case Form.INTEGER if source.unsigned or source.base in ("bit", "set") or self.type.startswith("decimal"):
                return _WIDE_INTEGER
            case Form.INTEGER:
                return "bigint"
            case Form.DECIMAL:
                decimal = _DECIMAL.fullmatch(self.type)
                assert decimal is not None, "a key has no decimal that is text"
                scale = max(source.scale or 0, int(decimal[2]))
                whole = max((source.length or 10) - (source.scale or 0), int(decimal[1]) - int(decimal[2]))
                return f"decimal({min(whole + scale, _MOST_DIGITS)},{scale})"
            case Form.BITS:
                return "double"
            case _:
                return self.type

    @property
    def key(self) -> str:
        """The cell as keys are compared."""
        return self.name if self.key_type == self.type else f"CAST({self.name} AS {self.key_type})"

    def literal(self, text: str) -> str:
        """The literal of the key's cell with a canonical *text*, which the mirror may have (``forms.is_calendar_day``)."""
        match self.form:
            case Form.BYTES:
                return f"X'{text}'"
            case Form.TEXT:
                return f"CAST(X'{text.encode().hex()}' AS string)"
            case Form.SPAN:
                return f"CAST({_micros(text)} AS bigint)"
            case Form.INSTANT:
                return f"CAST('{text}+00:00' AS timestamp)"
            case _:
                return f"CAST('{text}' AS {self.key_type})"

    def next_possible(self, text: str) -> str:
        """The text of the least value that the mirror may have from *text* on, a day that no calendar has."""
        year, month, day = (int(part) for part in text[:10].split("-"))
        if year < 1:
            first = _FIRST_DAY
        elif month < 1:
            first = f"{year:04}-01-01"
        elif day < 1:
            first = f"{year:04}-{month:02}-01"
        else:
            assert day > calendar.monthrange(year, month)[1], text
            first = f"{year:04}-{month + 1:02}-01"  # December has every day
        return first if self.form is Form.DATE else f"{first} 00:00:00"


def _padded(name: str, scale: int) -> str:
    """The decimal text *name* with *scale* digits after the point, or more where its value needs them; a zero without sign."""
    whole = f"regexp_replace(split_part({name}, '.', 1), '^(-?)0+(?=[0-9])', '$1')"
    fraction = f"trim(TRAILING '0' FROM split_part({name}, '.', 2))"
    point = f"CASE WHEN {scale} > 0 OR {fraction} <> '' THEN '.' ELSE '' END"
    digits = f"CASE WHEN length({fraction}) < {scale} THEN rpad({fraction}, {scale}, '0') ELSE {fraction} END"
    return f"regexp_replace(concat({whole}, {point}, {digits}), '^-(?=[0.]*$)', '')"


def _micros(text: str) -> int:
    found = _SPAN.fullmatch(text)
    assert found is not None, text
    sign, hours, minutes, seconds, fraction = found.groups(default="")
    micros = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * _MICROS + int(fraction.ljust(6, "0"))
    return -micros if sign else micros


def _double(number: float) -> str:
    return f"{number!r}D"
