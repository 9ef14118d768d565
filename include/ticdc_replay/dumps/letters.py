"""The bytes of a column of texts, all at once: a tenth of the time that a regular expression takes for each text."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Letters = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

INTEGER, NUMBER = r"-?[0-9]+", r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
"""What servers print for integers, and for numbers of every type."""

_IS_DIGIT = np.zeros(256, np.bool_)
_IS_DIGIT[ord("0") : ord("9") + 1] = True


def content(texts: pa.Array) -> tuple[Letters, Numbers]:
    """The bytes of *texts* (binary) behind one another, and where each text begins among them, and the last one ends."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    letters = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return letters[bounds[0] : bounds[-1]], bounds - bounds[0]


def count(texts: pa.Array, letter: bytes) -> int:
    """How often *texts* have the byte *letter*."""
    return int(np.count_nonzero(content(texts)[0] == letter[0]))


def are_integers(texts: pa.Array) -> bool:
    """Whether each of *texts* (binary), but for NULL, is made of digits, perhaps after a minus."""
    return _are_plain(texts, point=False) or all_match(texts, INTEGER)


def are_numbers(texts: pa.Array) -> bool:
    """Whether each of *texts* (binary), but for NULL, is a number, as servers print those of every type."""
    return _are_plain(texts, point=True) or all_match(texts, NUMBER)


def all_match(texts: pa.Array, pattern: str) -> bool:
    """Whether each of *texts* (binary), but for NULL, matches the regular expression *pattern* as a whole."""
    return pc.all(pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")).as_py() is not False


def _are_plain(texts: pa.Array, *, point: bool) -> bool:
    """Whether each is made of digits, perhaps after a minus, and with a *point* among them where one may be."""
    letters, bounds = content(texts)
    starts, ends = bounds[:-1], bounds[1:]
    has_any = ends > starts
    if np.count_nonzero(has_any) != len(texts) - texts.null_count:
        return False
    starts, ends = starts[has_any], ends[has_any]
    others = np.flatnonzero(~_IS_DIGIT[letters])
    if not len(others):
        return True
    negative = letters[starts] == ord("-")
    if not _IS_DIGIT[letters[starts + negative * (ends - starts > 1)]].all() or not _IS_DIGIT[letters[ends - 1]].all():
        return False
    if not point:
        return len(others) == np.count_nonzero(negative)
    points = others[letters[others] == ord(".")]
    if len(points) + np.count_nonzero(negative) != len(others):
        return False
    # Each is neither first nor last, so a text has two only if no text ends between them.
    of_text = np.searchsorted(ends, points, side="right")
    return bool((np.diff(of_text) > 0).all())
