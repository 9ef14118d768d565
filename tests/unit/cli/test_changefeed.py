"""``ticdc-replay changefeed``: what was understood of a changefeed's configuration."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ticdc_replay.cli.main import EXIT_ERROR, app

URI = "kafka://b:9093/main?protocol=open-protocol&sasl-mechanism=SCRAM-SHA-512&sasl-user=cdc"
TOML = """
memory-quotas = 1
[sink]
dispatchers = [
  {matcher = ["shop_[0-9].*"], topic = "cdc_{schema}_{table}", partition = "index-value"},
  {matcher = ["log.*"], partition = "ts"},
]
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["changefeed", *arguments])


def summary(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def toml(tmp_path: Path) -> str:
    path = tmp_path / "changefeed.toml"
    path.write_text(TOML)
    return str(path)


def test_a_person_sees_topics_dispatch_windows_connection_and_warnings(toml: str) -> None:
    result = run("--sink-uri", URI, "--config", toml)
    assert result.exit_code == 0, result.stderr
    for text in (
        "shop_[0-9].*",
        "cdc_{schema}_{table}",
        "index-value (handle key)",
        "scatter",
        "proven",
        "resolved-ts",
        "SASL_PLAINTEXT",
        "sasl.password",
        "TiCDC's own is cdc",
        "memory-quotas is unknown to TiCDC",
    ):
        assert text in result.stdout


def test_the_same_is_told_to_machines(toml: str) -> None:
    found = summary("--sink-uri", URI, "--config", toml)
    assert [(rule["topic"], rule["partition"], rule["scatters"]) for rule in found["rules"]] == [
        ("cdc_{schema}_{table}", "index-value (handle key)", False),
        ("main", "ts", True),
        ("main", "table", False),
    ]
    assert found["windows"] == "proven"
    assert {"name": "sasl.password", "value": None, "note": "or the password"} in found["kafka_connection"]


def test_a_pipeline_and_a_printed_info_are_understood_alike(tmp_path: Path) -> None:
    info = {"sink_uri": URI, "start_ts": 464626526453760000, "config": {"case_sensitive": False}}
    (tmp_path / "info.json").write_text(json.dumps(info))
    (tmp_path / "shop.yaml").write_text(
        "name: shop\nchangefeed: {info: info.json, timezone: UTC}\nconnections: {kafka: kafka}\nartifacts: file:///replay\n"
        'schedule: {start: "2026-03-02T00:00:00Z"}\ntargets: [{name: lake, type: parquet, uri: "file:///lake"}]\n'
    )
    printed = summary("--info", str(tmp_path / "info.json"))
    assert printed == summary(str(tmp_path / "shop.yaml"))
    assert printed["start_ts"] == 464626526453760000


@pytest.mark.parametrize(
    ("uri", "windows", "why"),
    [
        ("kafka://b/t?protocol=open-protocol&required-acks=1", "unproven", "brokers may lose"),
        ("kafka://b/t?protocol=avro&schema-registry=http://r:8081", "by offset", "no row has commitTs"),
    ],
)
def test_the_best_grade_of_windows_is_told_with_its_reason(uri: str, windows: str, why: str) -> None:
    found = summary("--sink-uri", uri)
    assert found["windows"] == windows
    assert why in found["windows_why"][0]


def test_rules_that_scatter_rows_exclude_windows_by_offset(tmp_path: Path) -> None:
    path = tmp_path / "changefeed.toml"
    path.write_text("[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'ts'}]")
    found = summary("--sink-uri", "kafka://b/t?protocol=avro&schema-registry=http://r:8081", "--config", str(path))
    assert "can't be replayed" in found["windows_why"][1]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--sink-uri", URI, "--info", __file__],
        ["--info", __file__, "--config", __file__],
        ["--sink-uri", "kafka://b/t?protocol=maxwell"],
        ["--sink-uri", URI + "&sasl-password=hunter2"],
    ],
)
def test_what_is_wrong_is_told_without_quoting_secrets(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == EXIT_ERROR
    assert "error:" in result.stderr
    assert "hunter2" not in result.stderr
