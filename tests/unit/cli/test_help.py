"""The help of every verb."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ticdc_replay import __version__
from ticdc_replay.cli.main import VERBS, app, load


def _verbs(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, verb in getattr(command, "commands", {}).items():
        yield from _verbs(verb, (*path, name))


COMMANDS = {(): typer.main.get_command(app)}
COMMANDS |= {path: verb for name in VERBS for path, verb in _verbs(load(name), (name,))}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_brackets_as_they_are_to_be_typed(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 400)
    shown = CliRunner().invoke(app, [*path, "--help"])
    assert shown.exit_code == 0
    words = set(shown.output.split())
    for parameter in COMMANDS[path].params:
        for word in (getattr(parameter, "help", None) or "").split():
            assert word.replace("\\[", "[") in words, f"{parameter.name}: {word}"


def test_the_list_of_verbs_begins_with_those_that_most_need() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert re.findall(r"^│ ([a-z]+) ", shown, flags=re.MULTILINE) == list(VERBS)
    assert list(VERBS)[:4] == ["plan", "run", "coverage", "quarantine"]


def test_a_verb_that_there_is_not_is_an_error() -> None:
    refused = CliRunner().invoke(app, ["covrage"])
    assert refused.exit_code == 2
    assert "No such command 'covrage'" in refused.output


def test_the_version_is_that_of_the_library() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"ticdc-replay {__version__}\n"
