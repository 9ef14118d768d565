"""Text from outside, such as names of tables and objects, as a terminal or a log may have it."""

import re

# C0, DEL and C1, among them what starts an escape sequence; what ends a line for some readers; what turns the direction of text.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_IN_LINES = re.compile(f"[{_CONTROLS}]")
_IN_LINE = re.compile(f"[{_CONTROLS}\n\t]")


def visible_lines(text: str) -> str:
    """*text* with every character that a terminal would obey, but line feeds and tabs, as Python writes it: ``\\x1b``."""
    return _IN_LINES.sub(_escaped, text)


def visible(text: str) -> str:
    """As ``visible_lines``, in one line: line feeds and tabs are escaped, too."""
    return _IN_LINE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
