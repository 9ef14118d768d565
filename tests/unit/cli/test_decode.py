"""``ticdc-replay decode``: canonical lines on stdout; what is left out is told, and is a failure."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.expected import compare
from ticdc_replay.captures import Capture
from ticdc_replay.cli.main import app


def decode(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["decode", "--capture", str(folder), *options])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    "variant", ["classic/open-claim-check-lz4", "new/open-2part-index", "new/open-handle-key-only"]
)
def test_every_event_is_a_line_in_order(open_captures: Path, variant: str) -> None:
    result = decode(open_captures / variant)
    assert result.exit_code == 0, result.stderr
    found = lines(result)
    places = [(line["topic"], line["partition"], line["offset"], line["index"]) for line in found]
    assert places == sorted(set(places))
    assert compare(found, open_captures / variant, Capture(open_captures / variant).changefeed()) == []


def test_deduplicated_there_is_one_line_per_row_version_and_ddl(open_captures: Path) -> None:
    folder = open_captures / "classic" / "open-2part-index"
    everything, unique = lines(decode(folder)), lines(decode(folder, "--dedupe"))
    assert {line["kind"] for line in unique} == {"row", "ddl"}
    ddl = {(line["commit_ts"], line["query"], line["table"]) for line in everything if line["kind"] == "ddl"}
    assert len([line for line in unique if line["kind"] == "ddl"]) == len(ddl)

    def content(line: dict[str, Any]) -> str:
        return json.dumps({name: line[name] for name in ("commit_ts", "table", "type", "columns", "pre")})

    rows = [content(line) for line in unique if line["kind"] == "row"]
    assert len(rows) == len(set(rows)) == len({content(line) for line in everything if line["kind"] == "row"})
    assert len(rows) < sum(line["kind"] == "row" for line in everything)
    places = [(line["partition"], line["offset"], line["index"]) for line in unique]
    assert places == sorted(places)


def test_rows_of_a_table_without_key_all_stay(open_captures: Path) -> None:
    folder = open_captures / "classic" / "open-default"
    everything, unique = (
        [line for line in lines(decode(folder, *options)) if line.get("table") == "no_key" and line["kind"] == "row"]
        for options in ((), ("--dedupe",))
    )
    assert everything
    assert everything == unique


@pytest.fixture
def damaged(open_captures: Path, tmp_path: Path) -> Path:
    """A capture whose second message is cut off, with one claim-check object missing and one foreign."""
    folder = tmp_path / "capture"
    shutil.copytree(open_captures / "new" / "open-claim-check", folder)
    messages = (folder / "messages.jsonl").read_text().splitlines()
    second = json.loads(messages[1])
    second["value_b64"] = second["value_b64"][:8]
    messages[1] = json.dumps(second)
    (folder / "messages.jsonl").write_text("\n".join(messages))
    objects = sorted((folder / "objects").iterdir())
    objects[0].unlink()
    shutil.copy(objects[1], objects[2])
    return folder


def test_what_can_not_be_decoded_is_listed_and_fails(damaged: Path, open_captures: Path) -> None:
    result = decode(damaged)
    assert result.exit_code == 1
    told = result.stderr.splitlines()
    assert told[-1] == "3 messages or events could not be decoded"
    assert told[0].startswith("cap-open-claim-check[0]@1 bad_framing: ")
    assert sorted(line.split()[1] for line in told[1:-1]) == ["claim_check_mismatch:", "claim_check_missing:"]
    whole = lines(decode(open_captures / "new" / "open-claim-check"))
    in_second = sum(line["offset"] == 1 for line in whole)
    assert len(lines(result)) == len(whole) - in_second - 2


def test_a_folder_without_capture_is_an_error(tmp_path: Path) -> None:
    result = decode(tmp_path)
    assert result.exit_code == 2
    assert "is not a capture" in result.stderr
    assert result.stdout == ""
