"""Go's ``strconv.Quote`` undone: how Open Protocol writes binary and varbinary (protocols: type mapping, section 4)."""

import re
from codecs import escape_decode
from collections.abc import Sequence

import numpy as np

_LETTERS = bytes.maketrans(b'abfnrtvx"S', b"SSSSSSSSS-")
"""Maps each letter that may follow a backslash, and mean the same in Python's bytes literals, to S, and nothing else to it."""
_BACKSLASH, _LINE_FEED, _DOUBLE_QUOTE = ord("\\"), ord("\n"), ord('"')
_UNKNOWN, _PLAIN, _QUOTE, _WIDE = range(4)
_KINDS = np.full(256, _UNKNOWN, np.uint8)
"""What a byte after a backslash makes of it."""
_KINDS[list(b"\\abfnrtvx")] = _PLAIN
_KINDS[_DOUBLE_QUOTE] = _QUOTE
_KINDS[list(b"uU")] = _WIDE
_WIDE_ESCAPE = re.compile(
    rb"\\(?:\\|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|([^abfnrtvx\"]|\Z))", re.DOTALL
)


def unquote(text: str) -> bytes:
    """The bytes that Go quoted as *text*, the surrounding quotes left out.

    Raises ValueError for what ``strconv.Quote`` can't have made: an unknown or cut-off escape, a surrogate, a bare quote or
    line feed. The mapping is lossless.
    """
    (content,) = unquote_all((text,))
    assert content is not None
    return content


def unquote_all(values: Sequence[str | None]) -> list[bytes | None]:
    """``unquote`` of each value, None kept. Hot: 0.5 µs for 60 characters with 13 escapes."""
    present = [value for value in values if value is not None]
    own = _with_escapes_of_their_own(present)
    if own is None:
        return [None if value is None else _unquoted(value) for value in values]
    expanded = [_unquoted(present[at]) for at in own]
    for at in own:
        present[at] = ""
    contents: list[bytes | None] = [escape_decode(value)[0] for value in present]
    for at, content in zip(own, expanded, strict=True):
        contents[at] = content
    if len(present) == len(values):
        return contents
    found = iter(contents)
    return [None if value is None else next(found) for value in values]


def _with_escapes_of_their_own(values: Sequence[str]) -> list[int] | None:
    """The positions of *values* with escapes that Python's bytes literals lack; None where some value may be no quoted text.

    All values are looked at together: a fifth of the time of one by one.
    """
    if not values:
        return []
    joined = np.frombuffer("\n".join(values).encode(), np.uint8)
    ends = np.flatnonzero(joined == _LINE_FEED)
    backslashes = np.flatnonzero(joined == _BACKSLASH)
    if len(ends) != len(values) - 1 or (len(backslashes) and backslashes[-1] == len(joined) - 1):
        return None
    # Of backslashes in a row every other one, from the first on, begins an escape.
    first_of_row = np.diff(backslashes, prepend=-2) != 1
    number = np.arange(len(backslashes))
    in_row = number - np.maximum.accumulate(np.where(first_of_row, number, 0))
    begins = backslashes[in_row % 2 == 0]
    kinds = _KINDS[joined[begins + 1]]
    quotes = np.count_nonzero(kinds == _QUOTE)
    if np.any(kinds == _UNKNOWN) or quotes != np.count_nonzero(joined == _DOUBLE_QUOTE):
        return None
    own: list[int] = np.unique(np.searchsorted(ends, begins[kinds == _WIDE])).tolist()
    return own


def _unquoted(value: str) -> bytes:
    if "\n" in value or ('"' in value and _has_bare_quote(value)):
        raise ValueError(f"bare quote or line feed in the quoted binary value {value[:80]!r}")
    quoted = value.encode()
    if "\\" not in value:
        return quoted
    if _BACKSLASH in quoted.translate(_LETTERS).replace(b"\\\\", b"").replace(b"\\S", b""):
        quoted = _WIDE_ESCAPE.sub(_expand, quoted)
    # What is left means in Python's bytes literals what it means in Go's.
    content: bytes = escape_decode(quoted)[0]
    return content


def _has_bare_quote(text: str) -> bool:
    single = text.replace("\\\\", "")
    return single.count('"') != single.count('\\"')


def _expand(escape: re.Match[bytes]) -> bytes:
    """An escape that Python's bytes literals don't have, as one they have."""
    four, eight, octal, unknown = escape.groups()
    if unknown is not None:
        raise ValueError(f"unknown escape {escape.group().decode(errors='replace')!r} in a quoted binary value")
    if octal:
        return f"\\x{int(octal, 8):02x}".encode()
    if not (four or eight):
        return escape.group()
    # UnicodeEncodeError (a surrogate) and chr's refusal beyond U+10FFFF are both ValueErrors.
    char = chr(int(four or eight, 16))
    return b"\\\\" if char == "\\" else char.encode()
