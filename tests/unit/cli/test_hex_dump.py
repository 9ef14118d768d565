"""Bytes of a message in quarantine, as a person looks at them."""

import pytest

from ticdc_replay.cli.rendering import byte_named_in, hex_dump


def test_bytes_stand_beside_their_text_and_the_line_of_the_error_is_marked() -> None:
    lines = hex_dump(b"0123456789abcdef\x00tail", 17).splitlines()
    assert lines[0].startswith("  00000000  30 31 32")
    assert lines[0].endswith(" 0123456789abcdef")
    assert lines[1].startswith("> 00000010  00 74 61")
    assert lines[1].endswith(" .tail")


def test_of_long_content_the_beginning_and_the_place_of_the_error_are_shown() -> None:
    text = hex_dump(bytes(10_000), 8_000)
    assert text.count("…") == 2
    assert "> 00001f40" in text
    assert len(text.splitlines()) < 40
    assert (hex_dump(None), hex_dump(b"")) == ("  null", "  empty")


@pytest.mark.parametrize(
    ("detail", "byte"), [("byte 12: no UTF-8", 12), ("ends after byte 7", 7), ("300 bytes announced", None)]
)
def test_the_byte_that_an_error_names_is_found(detail: str, byte: int | None) -> None:
    assert byte_named_in(detail) == byte
