"""Tests wait with one patience, and say what they waited for."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S, wait_for

TESTS = Path(__file__).resolve().parents[1]
SHORT_S = 10
LIMIT = re.compile(
    r"(?<!socket\.)timeout=(\d[\d.]*)|\.(?:result|wait|join|flush|init_transactions)\((\d[\d.]*)\)|mark\.timeout\((\d+)\)"
)
LOOP = re.compile(r"time\.monotonic\(\) \+ |while .*time\.monotonic\(\)")


def lines_that_match(pattern: re.Pattern[str]) -> list[tuple[str, re.Match[str]]]:
    return [
        (f"{path.relative_to(TESTS)}:{number}: {line.strip()}", match)
        for path in sorted(TESTS.rglob("*.py"))
        if path not in {Path(__file__).resolve(), TESTS / "waiting.py"}
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := pattern.search(line))
    ]


def test_it_returns_the_first_result_that_is_true() -> None:
    results = iter([None, [], ["here"], ["later"]])
    assert wait_for("something", lambda: next(results), pause_s=0) == ["here"]


def test_it_says_what_it_waited_for() -> None:
    with pytest.raises(AssertionError, match=r"waited \d+ s for the topic to go; the last look gave False"):
        wait_for("the topic to go", lambda: False, patience_s=0.05, pause_s=0.01)


def test_limits_are_the_common_patience_or_short_on_purpose() -> None:
    """A limit below 10 s is part of what a test shows, such as that of a client that is refused."""
    limits = [(place, float(next(filter(None, match.groups())))) for place, match in lines_that_match(LIMIT)]
    assert [place for place, seconds in limits if seconds >= SHORT_S] == []


def test_no_test_has_a_waiting_loop_of_its_own() -> None:
    assert [place for place, _ in lines_that_match(LOOP)] == []


def test_pytest_stops_only_what_waits_without_a_limit() -> None:
    settings = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["timeout"] >= 2 * PATIENCE_S
