"""Binary values in Open Protocol: Go's quoting, undone byte for byte."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.codecs.open.go_quote import unquote, unquote_all

LETTERS = {7: r"\a", 8: r"\b", 12: r"\f", 10: r"\n", 13: r"\r", 9: r"\t", 11: r"\v", 34: r"\"", 92: r"\\"}


def quote(content: bytes) -> str:
    """``strconv.Quote`` without the quotes, written from its rules."""
    text = ""
    for char in content.decode("utf-8", "surrogateescape"):
        point = ord(char)
        if 0xDC80 <= point <= 0xDCFF:
            text += f"\\x{point - 0xDC00:02x}"
        elif point in LETTERS:
            text += LETTERS[point]
        elif point < 0x20 or point == 0x7F:
            text += f"\\x{point:02x}"
        elif char.isprintable():
            text += char
        else:
            text += f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
    return text


@pytest.mark.parametrize(
    ("quoted", "content"),
    [
        (r"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n"),
        (r"\x01\x02\x03\x04\x05\x06\a\b\t\n", bytes(range(1, 11))),
        (r"back\\slash", b"back\\slash"),
        (r"\\x41", b"\\x41"),
        (r"\"", b'"'),
        (r"\u00a0\ufeff", "\u00a0\ufeff".encode()),
        (r"\U000de5d0é", "\U000de5d0é".encode()),
        (r"\101\377", b"A\xff"),
        (r"\xFF", b"\xff"),
        ("", b""),
    ],
)
def test_quoted_text_stands_for_bytes(quoted: str, content: bytes) -> None:
    assert unquote(quoted) == content


@pytest.mark.parametrize(
    "quoted",
    ["\\", r"\q", r"\'", r"\x4", r"\xg0", r"\u12", r"\ud800", r"\U00110000", r"\400", r"\18", 'a"b', "a\nb", "\\\n",
     r"\u00a0\q", r"\u00a0" + "\\"],
)  # fmt: skip
def test_text_that_go_can_not_have_quoted_is_refused(quoted: str) -> None:
    with pytest.raises(ValueError):
        unquote(quoted)


@given(st.binary())
def test_any_bytes_survive(content: bytes) -> None:
    assert unquote(quote(content)) == content


@given(st.text())
def test_any_text_is_unquoted_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        unquote(text)


def test_null_stays_null() -> None:
    assert unquote_all(["a", None, r"\x00"]) == [b"a", None, b"\x00"]
