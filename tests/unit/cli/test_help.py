"""The help of every verb."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ticdc_replay.cli.main import app


def _verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, verb in getattr(command, "commands", {}).items():
        yield from _verbs(verb, (*path, name))


VERBS = dict(_verbs(typer.main.get_command(app)))


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_help_shows_brackets_as_they_are_to_be_typed(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 400)
    shown = CliRunner().invoke(app, [*path, "--help"])
    assert shown.exit_code == 0
    words = set(shown.output.split())
    for parameter in VERBS[path].params:
        for word in (getattr(parameter, "help", None) or "").split():
            assert word.replace("\\[", "[") in words, f"{parameter.name}: {word}"
