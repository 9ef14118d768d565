"""``ticdc-replay inspect``: messages as a person reads them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.capture_sets import CaptureSets
from ticdc_replay.cli.main import app


def inspect(*options: object) -> Result:
    return CliRunner().invoke(app, ["inspect", *map(str, options)])


def test_messages_show_where_when_and_what(open_captures: Path) -> None:
    result = inspect("--capture", open_captures / "classic" / "open-claim-check")
    assert result.exit_code == 0, result.stderr
    assert "cap-open-claim-check[0]@0  2026-" in result.stdout
    assert "CREATE DATABASE `devlarge`  (type 1)" in result.stdout
    assert "claim check s3://ticdc-claims-01/dev/classic/open-claim-check/" in result.stdout
    assert "watermark" in result.stdout


def test_an_update_shows_the_key_and_what_changed(open_captures: Path) -> None:
    result = inspect("--capture", open_captures / "new" / "open-updated-columns", "--limit", 500)
    assert "c_bit8: 4 → 119" in result.stdout
    assert "old value unknown: c_big_u" in result.stdout


def test_a_range_and_a_limit_are_kept(open_captures: Path) -> None:
    capture = open_captures / "classic" / "open-2part-index"
    result = inspect("--capture", capture, "--partition", 1, "--from", 3, "--to", 9, "--limit", 4)
    offsets = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("cap-")]
    assert offsets == [f"cap-open-2part-index[1]@{offset}" for offset in (3, 4, 5, 6)]


def test_a_time_that_stands_for_a_commit_ts_is_not_shown_as_one(captures: CaptureSets) -> None:
    result = inspect("--capture", captures("canal-json") / "classic" / "canal-json", "--limit", 1)
    assert "no commitTs" in result.stdout
    assert "(type " in result.stdout


def test_what_can_not_be_decoded_is_shown_and_fails(tmp_path: Path) -> None:
    line = {"topic": "a", "partition": 0, "offset": 0, "timestamp_ms": -1, "key_b64": "AAAAAAAAAAI=", "value_b64": None}
    (tmp_path / "messages.jsonl").write_text(json.dumps(line))
    meta = {"sink_uri": "kafka://b/a?protocol=open-protocol", "replica_config": {}, "ticdc_timezone": "UTC"}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    result = inspect("--capture", tmp_path)
    assert result.exit_code == 1
    assert "unknown_version" in result.stdout
    assert "version 2 in key bytes 0..8, 1 expected" in result.stdout


@pytest.mark.parametrize("options", [(), ("--capture", "x", "--bootstrap", "b:1"), ("--bootstrap", "b:1")])
def test_it_must_be_clear_what_to_read(options: tuple[str, ...]) -> None:
    result = inspect(*options)
    assert result.exit_code == 2
    assert "--" in result.stderr
