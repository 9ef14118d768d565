"""Which changelogs a trace reads, what it says it could not read, and what a command prints of it."""

import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.support.changelogs import Changelog, Row, delete, put, rows_of, table
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.changelog.files.reading import file_name
from ticdc_replay.cli.main import app
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.trace.trace import Trace, trace
from ticdc_replay.state.coverage import Coverage
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.runs import Run

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
T = table("s.t", {"id": INT, "v": TEXT})
NAME = TableName("s", "t")


class Pipeline:
    """The pipeline of *context*, whose runs are made by hand."""

    def __init__(self, context: ReplayContext, folder: Path) -> None:
        self.context = context
        self.artifacts = folder / "artifacts" / "shop"
        self._started = count(1)

    def decoded(
        self, from_ts: int, to_ts: int, rows: Sequence[Row], schema: TableSchema = T, run: str = "a", **changes: Any
    ) -> ChangelogIndex:
        """A window with *rows*; *changes* are members of its index."""
        changelog = Changelog(self.artifacts, from_ts, to_ts, run).rows(schema, rows)
        index = msgspec.structs.replace(changelog.write(), pipeline="shop", **changes)
        self.write(index)
        self.record(index.window, index.run_hash)
        return index

    def write(self, index: ChangelogIndex) -> None:
        (self.artifacts / changelog_root(index.run_hash) / INDEX).write_bytes(canonical.encode(index))

    def record(self, window: Window, run_hash: str) -> None:
        """A run of *window*, with its present manifest."""
        state, before = self.context.state, self.context.state.manifests.of_window("shop", window)
        if before is None:
            state.manifests.register(WindowManifest("shop", window, "i", "manifests/i.json", 1), replaces=None)
        state.runs.record(
            Run(
                pipeline="shop",
                run_hash=run_hash,
                window=window,
                input_hash="i",
                status="done",
                started_at_ms=next(self._started),
            )
        )

    def loaded(self, index: ChangelogIndex, generation: int = 1) -> None:
        """The target ``lake`` holds *index*."""
        self.context.state.coverage.record(
            [
                Coverage(
                    pipeline="shop",
                    target="lake",
                    place=self.context.places["lake"],
                    window=index.window,
                    run_hash=index.run_hash,
                    selection=("s.*",),
                    grade="proven",
                    quality="complete",
                    tables=(),
                    loaded_at_ms=generation,
                    generation=generation,
                )
            ]
        )

    def trace(self, key: Mapping[str, str] = {"id": "1"}) -> Trace:
        return trace(self.context, NAME, key)


@pytest.fixture
def shop(context: ReplayContext, tmp_path: Path) -> Pipeline:
    return Pipeline(context, tmp_path)


def commits(found: Trace) -> list[int | None]:
    return [version.commit_ts for version in found.versions]


def test_all_windows_in_order_of_time(shop: Pipeline) -> None:
    shop.decoded(100, 200, [delete(150, id=1), put(160, id=2, v="y")])
    shop.loaded(shop.decoded(0, 100, [put(10, id=1, v="x"), put(20, id=1, v="y", op="update")]))
    found = shop.trace()
    assert commits(found) == [10, 20, 150]
    assert [fate.fate for version in found.versions for fate in version.fates] == ["held", "held", "not_loaded"]
    (target,) = found.targets
    assert target.row.where.endswith("/lake/shop/changelog/schema=s/table=t")
    assert (found.changelogs_read, found.unread, found.other_keys) == (2, (), ())


def test_a_version_in_overlapping_windows_is_one(shop: Pipeline) -> None:
    shop.decoded(0, 100, [put(50, id=1, v="x")])
    shop.loaded(shop.decoded(40, 60, [put(50, id=1, v="x")]))
    (version,) = shop.trace().versions
    assert [place.window for place in version.changelogs] == [Window(0, 100), Window(40, 60)]
    assert [fate.fate for fate in version.fates] == ["held"]


def test_of_a_window_the_last_run_and_what_the_target_holds_count(shop: Pipeline) -> None:
    held = shop.decoded(0, 100, [put(10, id=1, v="x")], run="old")
    shop.loaded(held)
    newer = shop.decoded(0, 100, [put(11, id=1, v="x")], run="new")
    assert commits(shop.trace()) == [10, 11]
    shop.loaded(newer, generation=2)
    assert commits(shop.trace()) == [11]


def test_rows_without_commit_ts_are_ordered_by_their_place(shop: Pipeline) -> None:
    changelog = Changelog(shop.artifacts, 0, 100, order="place")
    index = changelog.rows(T, [put(7, id=1, v="y", op="update"), put(5, id=1, v="x")]).write()
    shop.record(index.window, index.run_hash)
    found = shop.trace()
    assert [(version.operation, version.commit_ts, version.version) for version in found.versions] == [
        ("insert", None, 6),
        ("update", None, 8),
    ]


def test_files_of_other_runs_count_for_their_part(shop: Pipeline) -> None:
    wide = Changelog(shop.artifacts, 0, 100).rows(T, [put(ts, id=1, v="x") for ts in (10, 50, 90)]).write()
    (version,) = wide.tables
    (file,) = version.files
    part = msgspec.structs.replace(file, run=wide.run_hash, only=Window(40, 60))
    index = Changelog(shop.artifacts, 40, 60, "part").write()
    shop.write(msgspec.structs.replace(index, tables=(msgspec.structs.replace(version, files=(part,)),)))
    shop.record(index.window, index.run_hash)
    found = shop.trace()
    assert commits(found) == [50]
    assert found.versions[0].changelogs[0].file == f"runs/{wide.run_hash}/{file.name}"


def test_what_could_not_be_looked_at_is_named(shop: Pipeline) -> None:
    shop.decoded(0, 100, [put(10, id=1, v="x")])
    shop.record(Window(100, 200), "running")
    shop.decoded(200, 300, [put(210, id=1, v="x")], selection=("s.other",))
    lost = shop.decoded(300, 400, [put(310, id=1, v="x")])
    (shop.artifacts / file_name(lost, lost.tables[0].files[0])).unlink()
    found = shop.trace()
    assert commits(found) == [10]
    assert [(unread.window.from_ts, unread.why.partition(":")[0]) for unread in found.unread[:2]] == [
        (100, "its changelog is not there"),
        (200, "it was decoded for other tables only"),
    ]
    assert (found.unread[2].window.from_ts, "is gone" in found.unread[2].why) == (300, True)


def test_the_key_has_the_type_of_each_version_of_the_table(shop: Pipeline) -> None:
    narrow = table("s.t", {"id": ColumnType("int", declared=True), "v": TEXT}, valid_from=1)
    shop.decoded(0, 100, [put(10, id=1, v="x")], narrow)
    shop.decoded(100, 200, [put(110, id=1, v="x"), put(120, id=5_000_000_000, v="x")])
    assert commits(shop.trace()) == [10, 110]
    assert commits(shop.trace({"id": "5000000000"})) == [120]


def test_another_key_by_ddl(shop: Pipeline) -> None:
    shop.decoded(0, 100, [put(10, id=1, v="x")])
    shop.decoded(100, 200, [put(110, id=1, v="x")], table("s.t", {"id": INT, "v": TEXT}, key=("id", "v")))
    found = shop.trace()
    assert (commits(found), found.other_keys) == ([10], (("id", "v"),))
    assert commits(shop.trace({"id": "1", "v": "x"})) == [110]
    with pytest.raises(ConfigError, match="give --key id=… or --key id=… --key v=…"):
        shop.trace({"v": "x"})


def test_a_key_that_no_type_holds(shop: Pipeline) -> None:
    schema = table("s.t", {"id": ColumnType("date", declared=True), "v": TEXT})
    shop.loaded(shop.decoded(0, 100, [Row("insert", 10, {"v": "x"}, {"id": b"0000-00-00"})], schema))
    found = shop.trace({"id": "0000-00-00"})
    assert [(version.commit_ts, version.fates[0].fate) for version in found.versions] == [(10, "held")]


def command(tmp_path: Path, *options: str) -> Any:
    connections = tmp_path / "connections.yaml"
    connections.touch(mode=0o600)
    connections.write_text("k: {conn_type: kafka}\nclaims: {conn_type: aws}\n")
    return CliRunner().invoke(
        app, ["trace", str(tmp_path / "shop.yaml"), "s.t", *options, "--connections", str(connections)]
    )


def test_the_command_shows_doubts(shop: Pipeline, tmp_path: Path) -> None:
    index = shop.decoded(0, 100, [put(10, id=1, v="x")])
    path = shop.artifacts / file_name(index, index.tables[0].files[0])
    rows = rows_of(T, [put(10, id=1, v="x")])
    at = rows.schema.get_field_index("_split")
    pq.write_table(rows.set_column(at, rows.schema.field(at), pa.array([True])), path)
    shop.record(Window(100, 200), "running")
    shown = command(tmp_path, "--key", "id=1")
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "half of an UPDATE that changed the key" in text
    assert "not looked at: window [100 (1970-01-01T00:00:00.000Z), 200" in text
    nothing = command(tmp_path, "--key", "id=2")
    assert (nothing.exit_code, "no version of the row is in the 1 changelogs" in nothing.output) == (0, True)


def test_the_members_of_the_json(shop: Pipeline, tmp_path: Path) -> None:
    index = shop.decoded(0, 100, [put(10, id=1, v="x")])
    shop.loaded(index)
    shown = command(tmp_path, "--key", "id=1", "--json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.output)
    assert list(found) == [
        *("pipeline", "table", "key", "targets", "versions", "set_aside", "unknown"),
        *("changelogs_read", "unread", "other_keys"),
    ]
    assert found["versions"] == [
        {
            "operation": "insert",
            "commit_ts": 10,
            "version": 10,
            "is_split": False,
            "changelogs": [
                {
                    "window": {"from_ts": 0, "to_ts": 100},
                    "run_hash": index.run_hash,
                    "file": file_name(index, index.tables[0].files[0]),
                    "place": {"topic": "topic", "partition": 0, "offset": 1, "ordinal": 0},
                    "claim_check": None,
                    "other_references": [],
                    "dropped_copies": 0,
                }
            ],
            "fates": [{"target": "lake", "fate": "held", "detail": ""}],
        }
    ]
