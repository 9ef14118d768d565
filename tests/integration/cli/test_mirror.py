"""``ticdc-replay mirror``: floors, and tables that are built anew."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, put, table
from ticdc_replay.cli.main import app
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.state.coverage import Coverage, CoveredTable

pytestmark = pytest.mark.integration

Command = Callable[..., Any]

PIPELINE = """\
name: shop
changefeed: {{sink_uri: "kafka://broker:9092/shop?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: brokers}}
artifacts: file://{folder}/artifacts
tables: [shop.*]
schedule: {{start: "2026-01-01T00:00:00Z"}}
targets:
  - {{name: mirror, type: postgres, connection: target}}
  - {{name: lake, type: parquet, uri: "file://{folder}/lake"}}
"""


@pytest.fixture
def mirror(make_database: Callable[[], str]) -> Mirror:
    return Mirror(make_database())


@pytest.fixture
def command(mirror: Mirror, tmp_path: Path) -> Command:
    (tmp_path / "shop.yaml").write_text(PIPELINE.format(folder=tmp_path))
    parts = urlsplit(mirror.dsn)
    connections = tmp_path / "connections.yaml"
    connections.touch(mode=0o600)
    connections.write_text(
        f"brokers: {{conn_type: kafka}}\n"
        f"target: {{conn_type: postgres, host: {parts.hostname}, port: {parts.port}, login: {parts.username}, "
        f"password: '{parts.password or ''}', schema: '{parts.path.lstrip('/')}'}}\n"
    )

    def run(verb: str, *options: str) -> Any:
        arguments = ["mirror", verb, str(tmp_path / "shop.yaml"), "shop.orders", *options]
        return CliRunner().invoke(app, [*arguments, "--connections", str(connections)])

    return run


def test_a_floor_is_raised_by_tso_or_time_and_never_lowered(mirror: Mirror, command: Command) -> None:
    raised = command("floor", "--at", "2026-03-01T00:00:00Z")
    assert raised.exit_code == 0, raised.stderr
    assert "nothing below 464603892940800000" in raised.stdout.replace("\n", " ")
    again = command("floor", "--at", "5")
    assert "the floor was there before, and 5 is lower" in again.stdout.replace("\n", " ")
    assert mirror.rows("SELECT target_table, floor_ts, pipeline FROM _ticdc_replay.tables") == [
        ("orders", 464603892940800000, "shop")
    ]


def test_a_floor_below_what_was_loaded_is_told(mirror: Mirror, command: Command, tmp_path: Path) -> None:
    orders = table("shop.orders", {"id": ColumnType("int", declared=True)})
    window = Changelog(tmp_path / "artifacts", 0, 100).rows(orders, [put(70, id=1)])
    window.pipeline = "shop"
    mirror.load(window)
    assert "rows up to 70" in command("floor", "--at", "60").stderr.replace("\n", " ")
    assert command("floor", "--at", "70").stderr == ""


def test_a_ddl_is_shown_and_then_followed(mirror: Mirror, command: Command, tmp_path: Path) -> None:
    orders = table("shop.orders", {name: ColumnType("int", declared=True) for name in ("id", "v")})
    window = Changelog(tmp_path / "artifacts" / "shop", 0, 51).rows(orders, [put(50, id=1, v=2)])
    window.ddl(50, "ALTER TABLE orders DROP COLUMN v", table="shop.orders")
    window.pipeline = "shop"
    none = command("follow")
    assert none.exit_code == 2
    assert "was stopped by a DDL at its window's end" in none.stderr.replace("\n", " ")
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(window)
    shown = command("follow", "--dry-run")
    assert shown.exit_code == 0, shown.stderr
    assert "DROP COLUMN v" in shown.stdout
    assert "nothing was changed" in shown.stdout
    assert mirror.rows("SELECT v FROM shop.orders") == [(2,)]
    done = command("follow", "--at", "50")
    assert done.exit_code == 0, done.stderr
    assert mirror.rows("SELECT * FROM shop.orders") == [(1, 50)]
    assert mirror.rows("SELECT floor_ts FROM _ticdc_replay.tables") == [(51,)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--at", "yesterday"), "--at: 'yesterday' is neither a TSO nor an ISO 8601 time"),
        (("--at", "5", "--target", "lake"), "lake is not a mirror of the pipeline; its mirrors: mirror"),
    ],
)
def test_wrong_input_is_said(command: Command, options: tuple[str, ...], message: str) -> None:
    result = command("floor", *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_what_is_forgotten_covers_nothing_any_more(command: Command, tmp_path: Path) -> None:
    def with_context(work: Callable[[ReplayContext], Any]) -> Any:
        with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections({})) as context:
            return work(context)

    window, orders, items = Window(1, 10), TableName("shop", "orders"), TableName("shop", "items")
    record = Coverage(
        pipeline="shop",
        target="mirror",
        place="postgres target",
        window=window,
        run_hash="a",
        selection=("shop.*",),
        grade="proven",
        quality="complete",
        tables=(CoveredTable(items, "complete"), CoveredTable(orders, "complete")),
        loaded_at_ms=0,
    )
    with_context(lambda context: context.state.coverage.record([record]))
    result = command("forget")
    assert result.exit_code == 0, result.stderr
    assert '"shop"."orders" is forgotten: load its windows again' in result.stdout.replace("\n", " ")
    found = with_context(lambda context: coverage(context.pipeline, context.state))[0]
    assert [(table.name, bool(table.spans)) for table in found.tables] == [("shop.items", True), ("shop.orders", False)]
    assert (found.target.spans, [gap.partial for gap in found.target.gaps]) == ((), [True])
