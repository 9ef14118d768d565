"""What the gate between decode and load tells of what it let through."""

import re
from pathlib import Path

import msgspec
import pytest

from tests.support.changelogs import Changelog
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import CheckResult, check, ddl_stops, idle_patterns
from ticdc_replay.state.coverage import Coverage, CoveredTable

CHANGED = [TableName("shop", "orders"), TableName("shop", "items")]


def test_patterns_that_no_changed_table_matches_are_named_since_they_may_be_mistyped():
    assert idle_patterns(["shop.*", "SHOP.orders", "shop.ordres", "billing.*"], CHANGED) == ("shop.ordres", "billing.*")
    assert idle_patterns(["*.*"], []) == ("*.*",)


def test_the_summary_says_so_in_one_line():
    result = CheckResult("0123456789abcdef", 7, 0, {}, (), ("shop.ordres", "billing.*"))
    assert result.summary == (
        "changelog 0123456789ab: 7 rows; no change of a table called shop.ordres or billing.* in this window"
    )
    assert CheckResult("0123456789abcdef", 7, 0, {}, (), ()).summary == "changelog 0123456789ab: 7 rows"


def test_places_at_which_nothing_was_set_aside_are_told_by_name():
    result = CheckResult("0123456789abcdef", 7, 0, {}, (), (), idle_places=("shop[0]@5", "shop[1]@9#4"))
    assert result.summary == (
        "changelog 0123456789ab: 7 rows; set_aside names shop[0]@5 and shop[1]@9#4, where no row of this window and its "
        "tables is: nothing was set aside there"
    )


@pytest.mark.parametrize("reasons", [{}, {"set_aside": 1}])
def test_the_gate_tells_them_whether_it_stops_or_not(tmp_path: Path, reasons: dict[str, int]) -> None:
    window = Changelog(tmp_path / "shop", 100, 200)
    manifest = Manifest(
        pipeline="shop", changefeed_hash="", window=window.window, grade="proven", topics=(), pinned_at_ms=1
    )
    window.input_hash = manifest.input_hash
    written = window.write()
    report = msgspec.structs.replace(
        written.report, quarantine_reasons=reasons, idle_places=(EventPlace("shop", 0, 5),)
    )
    index = msgspec.structs.replace(written, report=report, unsearched=())
    path = window.folder / changelog_root(index.run_hash) / INDEX
    path.write_bytes(canonical.encode(index))
    text = PIPELINE.format(policies="{}").replace("file:///artifacts", tmp_path.as_uri())
    (tmp_path / "shop.yaml").write_text(text)
    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections()) as context:
        context.artifacts.put_once(f"manifests/{manifest.input_hash}.json", canonical.encode(manifest))
        if not reasons:
            result = check(context, index.run_hash)
            assert result.idle_places == ("shop[0]@5",)
            assert "set_aside names shop[0]@5, where no row" in result.summary
            return
        with pytest.raises(PolicyStopError, match=r"1 × set_aside.*(?s:.)*set_aside names shop\[0\]@5, where no row"):
            check(context, index.run_hash)


PIPELINE = """
name: shop
changefeed: {{sink_uri: "kafka://b:9092/shop?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: kafka}}
artifacts: file:///artifacts
tables: [shop.orders, shop.lines]
schedule: {{start: "2026-03-01T00:00:00Z"}}
policies: {policies}
targets:
- {{name: mirror, type: postgres, connection: target}}
- {{name: lake, type: parquet, uri: "file:///lake"}}
"""
ORDERS = definition_from_sql(TableName("shop", "orders"), "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))")


@pytest.mark.parametrize(
    ("policies", "order", "stopping"),
    [
        (
            "{}",
            "commit_ts",
            ["orders at 160 .*: the column v was dropped: drop the column", "lines at 170 .* was dropped:"],
        ),
        ("{drop: apply}", "commit_ts", []),
        ("{truncate: stop, drop: apply}", "commit_ts", ["orders at 120 ", "orders at 140 "]),
        ("{ddl: stop}", "commit_ts", ["n was added", "truncated", "u was added", "v was dropped", "lines at 170 "]),
        ("{drop: apply}", "place", ["orders at 120 ", "orders at 140 ", "orders at 160 ", "lines at 170 "]),
    ],
)
def test_what_will_stop_a_load_is_told_before_it(
    tmp_path: Path, policies: str, order: str, stopping: list[str]
) -> None:
    """Of a TRUNCATE that is followed nothing counts that came before it; DDL about other tables never does."""
    window = Changelog(tmp_path, 100, 200, order=order).knows(ORDERS)
    window.ddl(110, "ALTER TABLE orders ADD COLUMN n INT").ddl(120, "RENAME TABLE other TO orders")
    window.ddl(140, "TRUNCATE TABLE orders").ddl(150, "ALTER TABLE orders ADD COLUMN u INT")
    window.ddl(160, "ALTER TABLE orders DROP COLUMN v").ddl(170, "DROP TABLE lines", table="shop.lines")
    window.ddl(180, "DROP TABLE else", table="shop.else")
    (tmp_path / "shop.yaml").write_text(PIPELINE.format(policies=policies))
    stops = ddl_stops(window.write(), load_pipeline(tmp_path / "shop.yaml").pipeline)
    if not stopping:
        assert stops == {}
        return
    assert list(stops) == ["mirror"]
    for pattern in stopping:
        assert any(re.search(pattern, line) for line in stops["mirror"]), (pattern, stops)
    assert len(stops["mirror"]) == len(stopping) + (policies == "{ddl: stop}")
    summary = CheckResult("0123456789abcdef", 7, 0, {}, (), (), ddl_stops=stops).summary
    assert "; DDL that stops load_mirror unless the floor of the mirror lies above it: shop." in summary


def test_a_stop_that_is_told_before_a_load_shows_no_text_of_a_masked_table(tmp_path: Path) -> None:
    """Its event is of the new name, which masks nothing."""
    ddl = "ALTER TABLE people ADD COLUMN a VARCHAR(9) DEFAULT 'plain', SOFTDELETE = 'ON', RENAME TO orders"
    window = Changelog(tmp_path, 100, 200).knows(ORDERS).ddl(110, ddl)
    shape = "shape: [{tables: [shop.people], mask: {v: 'null'}}]"
    text = PIPELINE.format(policies="{}").replace("connection: target", f"connection: target, {shape}")
    (tmp_path / "shop.yaml").write_text(text)
    stops = ddl_stops(window.write(), load_pipeline(tmp_path / "shop.yaml").pipeline)
    assert "not understood (not shown" in str(stops)
    assert "plain" not in str(stops)


def test_a_shape_of_a_table_that_nobody_knows_is_told_since_its_name_may_be_mistyped(tmp_path: Path) -> None:
    """Its table would be loaded with plain values. One that was loaded before is known, if it is quiet now."""
    shape = "shape: [{tables: [shop.ordres, shop.orders, 'shop.people'], mask: {v: 'null'}}]"
    text = PIPELINE.format(policies="{}").replace("connection: target", f"connection: target, {shape}")
    (tmp_path / "shop.yaml").write_text(text.replace("file:///artifacts", tmp_path.as_uri()))
    window = Changelog(tmp_path / "shop", 100, 200).empty(ORDERS.schema())
    manifest = Manifest(
        pipeline="shop", changefeed_hash="", window=window.window, grade="proven", topics=(), pinned_at_ms=1
    )
    window.input_hash = manifest.input_hash
    index = window.write()
    people = CoveredTable(TableName("shop", "people"), "complete")
    loaded = Coverage(
        pipeline="shop",
        target="mirror",
        place="elsewhere",
        window=Window(0, 100),
        run_hash="0" * 64,
        selection=("shop.*",),
        grade="proven",
        quality="complete",
        tables=(people,),
        loaded_at_ms=1,
    )
    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections()) as context:
        context.artifacts.put_once(f"manifests/{manifest.input_hash}.json", canonical.encode(manifest))
        context.state.coverage.record([loaded])
        result = check(context, index.run_hash)
    assert result.idle_shapes == {"mirror": ("shop.ordres",)}
    assert "`shape` of target mirror has entries for shop.ordres, and no table of such a name" in result.summary
