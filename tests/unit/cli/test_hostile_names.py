"""Names, reasons and values from outside are text in a terminal: no markup of Rich, no escape sequence."""

import ast
import base64
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from tests.support.open_protocol import columns, message, row
from ticdc_replay.cli import deletion, submit
from ticdc_replay.cli.main import app
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.visible import visible, visible_lines
from ticdc_replay.reconcile.delete.contents import PlannedGroup, PlannedObject
from ticdc_replay.state.deletion_plans import DeletionPlanRecord
from ticdc_replay.store_stages.deletion import PlanDescription
from ticdc_replay.submit.submitter import LogLine

HOSTILE = "[red]a[link=http://e]b[/]\x1b]8;;http://e\x1b_\x1b[2Jc\x9b1m:bomb:\u202ed"
SHOWN = r"[red]a[link=http://e]b[/]\x1b]8;;http://e\x1b_\x1b[2Jc\x9b1m:bomb:\u202ed"


def is_harmless(output: str) -> bool:
    return output == visible_lines(output)


@pytest.mark.parametrize("renderable", [HOSTILE, Text(HOSTILE, "bold"), Panel(HOSTILE), Padding(HOSTILE, 1)], ids=type)
def test_whatever_is_printed_is_shown_as_it_is(renderable: object, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(width=200).print(renderable)
    output = capsys.readouterr().out
    assert is_harmless(output)
    assert SHOWN in output


def test_cells_and_headings_of_tables_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(HOSTILE)
    table.add_row(HOSTILE)
    terminal(width=200).print(table)
    output = capsys.readouterr().out
    assert is_harmless(output)
    assert output.count(SHOWN) == 2


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not {"\x1b", "\r", "\b", "\x9b"} & set(visible_lines(text))
    assert not {"\n", "\t"} & set(visible(text))


def test_commands_print_through_the_one_console() -> None:
    # Whatever a new command prints, it prints it there; JSON is for programs, which read it as JSON.
    for file in Path(deletion.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and file.name != "terminal.py":
                called = ast.unparse(node.func)
                assert called not in ("Console", "rich.print", "print", "click.echo"), f"{file.name}:{node.lineno}"
                if called == "typer.echo":
                    assert "json" in ast.unparse(node.args[0]), f"{file.name}:{node.lineno}"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    bad = message([row(100, new=columns(1, HOSTILE), table=HOSTILE, schema=HOSTILE)], 0, topic="topic")
    lines = [bad, bad._replace(offset=1, value=b"\x00"), bad._replace(offset=2, key=HOSTILE.encode())]
    with (tmp_path / "messages.jsonl").open("w", encoding="utf-8") as file:
        for each in lines:
            key, value = (base64.b64encode(part or b"").decode() for part in (each.key, each.value))
            place = {"topic": HOSTILE, "partition": 0, "offset": each.offset, "timestamp_ms": 1}
            file.write(json.dumps({**place, "key_b64": key, "value_b64": value}) + "\n")
    meta = {"sink_uri": "kafka://b/a?protocol=open-protocol", "replica_config": {}, "ticdc_timezone": "UTC"}
    (tmp_path / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("command", ["inspect", "decode"])
def test_commands_that_show_messages_show_their_names(capture: Path, command: str) -> None:
    result = CliRunner().invoke(app, [command, "--capture", str(capture)])
    assert result.exit_code == 1, result.output
    shown = result.stdout if command == "inspect" else result.stderr  # what decode writes to stdout is JSON
    assert is_harmless(shown)
    assert SHOWN in shown


def test_a_plan_shows_names_of_objects(capsys: pytest.CaptureFixture[str]) -> None:
    record = DeletionPlanRecord(
        store="s", plan_hash="1" * 64, name="n", made_at_ms=1, due_at_ms=1, objects=1, bytes=1, decided_why=HOSTILE
    )
    deletion.show_description(
        PlanDescription(
            store="s",
            uri="s3://b",
            record=record,
            reconciliation_id="r",
            due_at_ms=1,
            groups=(PlannedGroup("orphan", HOSTILE, 1, 1, 1, 1),),
            first=(PlannedObject(HOSTILE, 1, 1, "orphan", HOSTILE, HOSTILE),),
            objections=(),
        )
    )
    deletion.show_plans([(record, 1)])
    output = capsys.readouterr().out
    assert is_harmless(output)
    assert "[red]a" in output


def test_an_error_shows_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ConfigError(HOSTILE)

    monkeypatch.setattr("ticdc_replay.cli.messages.Capture", fail)
    result = CliRunner().invoke(app, ["decode", "--capture", "."])
    assert is_harmless(result.stderr)
    assert SHOWN in result.stderr


def test_the_log_of_a_job_shows_names(capsys: pytest.CaptureFixture[str]) -> None:
    submit._watch(SimpleNamespace(wait=lambda show: show(LogLine(HOSTILE, None))))
    output = capsys.readouterr().err
    assert is_harmless(output)
    assert SHOWN in output
