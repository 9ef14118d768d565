"""Values that are text of a fixed form on the wire: decimals, dates, times, vectors.

Hot: a column is checked as the few distinct forms its values have, at about 0.1 µs a value, not value by value.
"""

import re
from collections.abc import Sequence

import pyarrow as pa

from ticdc_replay.codecs.neutral import Arrow, present, with_nulls
from ticdc_replay.domain.withheld import withheld

_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_NUMBER = r"-?0+(?:\.0+)?"
_CLOCK = r"00:00(?:\.0{1,6})?"


class TextForm:
    """Values that look like *form*, a pattern with 0 for each digit; *name* is what an error calls them."""

    def __init__(self, name: str, form: str) -> None:
        self._name = name
        self._matches = re.compile(form.encode()).fullmatch

    def of_texts(self, values: Sequence[str | None]) -> Sequence[str | None]:
        """*values* as they are. Raises ValueError for one that is not of the form."""
        texts = present(values)
        if texts and not self._all_match("\n".join(texts).encode(), len(texts)):
            wrong = next(value for value in texts if not self._matches(value.encode().translate(_DIGITS)))
            raise self._refused(wrong)
        return values

    def of_bytes(self, values: Sequence[bytes | None]) -> Sequence[str | None]:
        """*values* as text. Raises ValueError for one that is not of the form."""
        content = present(values)
        if not content:
            return values  # type: ignore[return-value] # all are None
        joined = b"\n".join(content)
        if not self._all_match(joined, len(content)):
            raise self._refused(next(value for value in content if not self._matches(value.translate(_DIGITS))))
        return with_nulls(values, joined.decode("ascii").split("\n"))

    def arrow(self, values: Sequence[str | bytes | None]) -> pa.Array | None:
        """*values* as an Arrow array of text; None where one is not of the form."""
        texts = utf8_array(values)
        if texts is None:
            return None
        validity, offsets, content = texts.buffers()
        if content is None:
            return texts
        digits = pa.py_buffer(content.to_pybytes().translate(_DIGITS))
        forms = pa.StringArray.from_buffers(len(texts), offsets, digits, validity, texts.null_count).unique()
        return texts if all(self._matches(form.encode()) for form in forms.drop_null().to_pylist()) else None

    def _all_match(self, joined: bytes, count: int) -> bool:
        joined = joined.translate(_DIGITS)
        first = joined.partition(b"\n")[0]
        if joined == b"\n".join([first] * count):  # dates and times of one column have one form
            return self._matches(first) is not None
        forms = joined.split(b"\n")
        return len(forms) == count and all(map(self._matches, set(forms)))

    def _refused(self, value: str | bytes) -> ValueError:
        return ValueError(f"{withheld(value)} is not a {self._name}")


def utf8_array(values: Sequence[str | bytes | None]) -> pa.Array | None:
    """*values* as an Arrow array of text; None where one is not UTF-8."""
    try:
        return pa.array(values, pa.string())
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None


DECIMAL = TextForm("decimal", r"-?0{1,65}(?:\.0{1,30})?")
DATE = TextForm("date", "0000-00-00")
MOMENT = TextForm("date and time", f"0000-00-00 00:{_CLOCK}")
TIME = TextForm("time", f"-?0{{2,3}}:{_CLOCK}")
VECTOR = TextForm("vector", rf"\[(?:{_NUMBER}(?:,{_NUMBER})*)?\]")

ARROWS: dict[str, Arrow] = {
    "decimal": DECIMAL.arrow,
    "date": DATE.arrow,
    "time": TIME.arrow,
    "datetime": MOMENT.arrow,
    "timestamp": MOMENT.arrow,
    "vector": VECTOR.arrow,
}
"""By base type."""
