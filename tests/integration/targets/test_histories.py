"""A history has every row version once, whatever windows are loaded, in any order, and how often: in every kind of target."""

import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.examples import examples
from tests.support.target_rigs import LakeRig, MirrorRig, MysqlRig, PostgresRig
from ticdc_replay.changelog.cells.written import written_cell
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import (
    ConfigError,
    PermanentError,
    SupersededError,
    TargetMismatchError,
    UnrepresentableValueError,
)
from ticdc_replay.domain.tables import TableSchema
from ticdc_replay.targets.base import FoundRow
from ticdc_replay.targets.load import open_target

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
BIG = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
DAY = ColumnType("date", declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
LINES = table("shop.lines", {"v": TEXT}, key=())

ROWS: list[Row] = [
    *(put(10, id=1, v="a"), put(11, id=2, v="a"), put(90, id=1, v="b", op="update")),
    *(delete(110, id=1), put(110, id=1, v="c"), delete(111, id=2)),
    *(put(210, id=2, v="d"), put(211, id=3, v="d", op="upsert"), delete(212, id=3)),
]
"""At 110 a row is deleted and put again: two versions of one commitTs."""
DOCS = (Path(__file__).parents[3] / "docs/targets.md").read_text()
VERSIONS = "SELECT id, v, _op, _commit_ts FROM shop.orders ORDER BY _commit_ts, _op, id"

Make = Callable[..., MirrorRig]


def window(artifacts: Path, from_ts: int, to_ts: int, run: str = "a", rows: Sequence[Row] = ROWS) -> Changelog:
    """The window's changelog, with those of *rows* that are in it."""
    return Changelog(artifacts, from_ts, to_ts, run).rows(ORDERS, [r for r in rows if from_ts <= r.commit_ts < to_ts])


def found(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """What ``VERSIONS`` gives if the history has *rows*."""
    ordered = sorted(rows, key=lambda row: (row.commit_ts, row.op, row.cells["id"]))
    return [(row.cells["id"], row.cells.get("v"), row.op, row.commit_ts) for row in ordered]


def newest(history: MirrorRig, schema: TableSchema, **key: str) -> FoundRow:
    """What the target says that it has of the row with *key*."""
    cells = {name: written_cell(text, schema.column(name).type, "UTC") for name, text in key.items()}  # type: ignore[union-attr]
    return open_target(read_section(history.section), history.connections).find_row("pipeline", schema.name, cells)


def test_windows_of_any_grid_in_any_order(history: MirrorRig, artifacts: Path) -> None:
    grid = [window(artifacts, from_ts, from_ts + 100) for from_ts in (0, 100, 200)]
    for number in (2, 0, 0, 1):
        report = history.load_table(grid[number])
    assert (report.outcome, report.events, report.upserted) == ("loaded", 3, 3)
    assert history.load_table(grid[1]).outcome == "done_before"
    assert history.rows(VERSIONS) == found(ROWS)
    for wide in (
        window(artifacts, 50, 250, "wide"),
        window(artifacts, 0, 300, "all"),
        window(artifacts, 120, 211, "late"),
    ):
        history.load(wide)
        assert history.rows(VERSIONS) == found(ROWS)
    for number in (1, 0, 2):
        assert history.load_table(grid[number], reload=True).outcome == "loaded"
        assert history.rows(VERSIONS) == found(ROWS)


def test_redriven_rows_and_newer_runs(history: MirrorRig, artifacts: Path) -> None:
    whole = [row for row in ROWS if row.commit_ts < 100]
    first = window(artifacts, 0, 100, rows=whole[:1])
    history.load(first)
    redrive = window(artifacts, 0, 100, "redrive", rows=whole)  # of which one row is there already
    redrive.redrives = first.run_hash
    history.load(redrive)
    assert history.rows(VERSIONS) == found(whole)
    history.load(first, reload=True)
    assert history.rows(VERSIONS) == found(whole), "a reload keeps what re-drives have added"

    repaired = [put(10, id=1, v="repaired")]
    history.load(window(artifacts, 0, 100, "newer", rows=repaired), generation=2)
    assert history.rows(VERSIONS) == found(repaired)
    with pytest.raises(SupersededError):
        history.load(first, generation=1, reload=True)
    with pytest.raises(PermanentError, match="re-drive that of run"):
        history.load(redrive, generation=2, reload=True)
    assert history.rows(VERSIONS) == found(repaired)
    history.load(Changelog(artifacts, 0, 100, "without"), generation=3)
    assert history.rows(VERSIONS) == []


@pytest.mark.parametrize(
    ("ddl", "table_name"), [("TRUNCATE TABLE orders", "shop.orders"), ("DROP DATABASE shop", "shop.")]
)
def test_redriven_ddl_stays_when_its_run_is_loaded_again(
    history: MirrorRig, artifacts: Path, ddl: str, table_name: str
) -> None:
    first = window(artifacts, 0, 100, rows=[put(10, id=1, v="a")])
    redrive = Changelog(artifacts, 0, 100, "redrive").ddl(50, ddl, table=table_name)
    redrive.redrives = first.run_hash
    history.load(first)
    for changelog in (redrive, first, redrive):
        history.load(changelog, reload=True)
        assert history.rows("SELECT _commit_ts, _op FROM shop.orders ORDER BY 1") == [(10, "insert"), (50, "empty")]


def test_a_run_without_rows_of_a_table_keeps_what_its_redrives_have_added(history: MirrorRig, artifacts: Path) -> None:
    """The older run's rows go, and those of the re-drive stay, also when the run is loaded again."""
    older = window(artifacts, 0, 100, "older")
    history.load(older, generation=1)
    first = Changelog(artifacts, 0, 100, "first")
    history.load(first, generation=2)
    redriven = [put(10, id=7, v="late")]
    redrive = window(artifacts, 0, 100, "redrive", rows=redriven)
    redrive.redrives = first.run_hash
    history.load(redrive, generation=2)
    assert history.rows(VERSIONS) == found(redriven)
    history.load(first, generation=2, reload=True)
    assert history.rows(VERSIONS) == found(redriven)
    again = Changelog(artifacts, 0, 100, "again")
    again.redrives, again.offset = first.run_hash, 5  # another copy of the message
    history.load(again.rows(ORDERS, redriven), generation=2)
    history.load(
        Changelog(artifacts, 0, 100, "first").ddl(50, "ALTER TABLE orders COMMENT = 'x'"), generation=2, reload=True
    )
    assert history.rows(VERSIONS.replace("ORDER", "WHERE _ddl IS NULL ORDER")) == found(redriven)


def test_a_reload_keeps_the_rows_of_definitions_with_different_keys(history: MirrorRig, artifacts: Path) -> None:
    codes = table("shop.orders", {"code": INT, "w": TEXT}, key=["code"], valid_from=50)
    lines = table("shop.orders", {"v": TEXT}, key=(), valid_from=80)

    def changelog(run: str, v: str) -> Changelog:
        made = Changelog(artifacts, 0, 100, run).rows(ORDERS, [put(10, id=1, v=v), put(10, id=2, v="a")])
        made.rows(codes, [put(60, code=1, w=v), put(60, code=2, w="a")])
        return made.rows(lines, [put(90, v="x")] * 2)

    first, redrive = changelog("first", "a"), changelog("redrive", "b")
    redrive.redrives = first.run_hash
    history.load(first)
    history.load(redrive)
    query = "SELECT id, v, code, w, _commit_ts FROM shop.orders WHERE _commit_ts < 80 ORDER BY _commit_ts, id, code"
    redriven = [(1, "b", None, None, 10), (2, "a", None, None, 10), (None, None, 1, "b", 60), (None, None, 2, "a", 60)]
    assert history.rows(query) == redriven
    history.load(first, reload=True)
    assert history.rows(query) == redriven
    assert history.rows("SELECT count(*) FROM shop.orders WHERE v = 'x'") == [(2,)]


def test_columns_that_come_change_and_go(history: MirrorRig, artifacts: Path) -> None:
    history.load(window(artifacts, 0, 100))
    wider = table("shop.orders", {"id": BIG, "n": INT}, valid_from=150)
    changed = Changelog(artifacts, 100, 200).rows(wider, [put(160, id=1 << 40, n=7)]).ddl(150, "TRUNCATE TABLE orders")
    report = history.load_table(changed)
    integer = "integer" if isinstance(history, PostgresRig) else "int"
    assert report.ddl == (f"change column id from {integer} to bigint", f"add column n {integer}")
    query = "SELECT id, v, n, _op, _ddl FROM shop.orders WHERE _commit_ts >= 90 ORDER BY _commit_ts"
    assert history.rows(query) == [
        (1, "b", None, "update", None),
        (None, None, None, "empty", "truncated: the table was truncated"),
        (1 << 40, None, 7, "insert", None),
    ]
    other = table("shop.orders", {"id": BIG, "n": TEXT}, valid_from=250)
    with pytest.raises(TargetMismatchError, match=f"column n before and after a change from {integer} to"):
        history.load(Changelog(artifacts, 200, 300).rows(other, [put(260, id=1, n="x")]))


def test_ddl_never_stops_a_history_and_is_a_row_of_its_slice(history: MirrorRig, artifacts: Path) -> None:
    history.load(window(artifacts, 0, 100))
    ddl = Changelog(artifacts, 100, 200).ddl(120, "ALTER TABLE orders DROP COLUMN v")
    ddl.ddl(150, "RENAME TABLE orders TO others").ddl(170, "FLASHBACK TABLE orders TO BEFORE DROP")
    rows = "SELECT _commit_ts, _op FROM shop.orders WHERE _ddl IS NOT NULL ORDER BY _commit_ts"
    for _ in range(2):
        history.load(ddl, reload=True)
        assert history.rows(rows)[:2] == [(120, "ddl"), (150, "empty")]
    history.load(Changelog(artifacts, 100, 200, "newer"), generation=2)
    assert history.rows(rows) == []
    assert history.rows(VERSIONS) == found([row for row in ROWS if row.commit_ts < 100])


def test_a_database_that_was_dropped_before_its_history_began(history: MirrorRig, artifacts: Path) -> None:
    """The row of the DROP is in the slice of its own window, whichever window brings it."""
    drop = Changelog(artifacts, 100, 200).ddl(150, "DROP DATABASE shop", table="shop.")
    history.load(drop)
    dropped = "SELECT _commit_ts, _ddl FROM shop.orders WHERE _op = 'empty'"
    for changelog in (window(artifacts, 0, 100), window(artifacts, 200, 300), window(artifacts, 0, 100), drop):
        history.load(changelog, reload=True)
        assert history.rows(dropped) == [(150, "dropped: the table was dropped with its database")]
    rows = [row for row in ROWS if not 100 <= row.commit_ts < 200]
    assert history.rows(VERSIONS.replace("ORDER", "WHERE _ddl IS NULL ORDER")) == found(rows)


def test_a_history_that_was_dropped_by_hand_is_made_again_once_it_is_forgotten(
    history: MirrorRig, artifacts: Path
) -> None:
    if isinstance(history, LakeRig) and history.kind == "delta":
        pytest.skip("a Delta table below a path is a folder, which nothing drops")
    for from_ts in (0, 100):
        history.load(window(artifacts, from_ts, from_ts + 100))
    if not isinstance(history, LakeRig):
        with pytest.raises(ConfigError, match="is still there: drop it first"):
            history.forget("shop.orders")
    history.execute("DROP TABLE shop.orders")
    with pytest.raises(
        TargetMismatchError, match=r"dropped by hand.*mirror forget <pipeline> shop.orders --target mirror"
    ):
        history.load(window(artifacts, 200, 300))
    with pytest.raises(TargetMismatchError, match="mirror of pipeline pipeline"):
        history.forget("shop.orders", "another")
    for _ in range(2):
        history.forget("shop.orders")
    for from_ts in (200, 0, 100):
        history.load(window(artifacts, from_ts, from_ts + 100))
    assert history.rows(VERSIONS) == found(ROWS)


def test_values_keys_and_places(history: MirrorRig, artifacts: Path) -> None:
    """Values that no typed column holds are set aside, of a delete those of its key alone; rows without key have their place."""
    changelog = Changelog(artifacts, 0, 100).rows(LINES, [put(8, v="x"), put(8, v="x")])
    gone = Row("delete", 12, {"id": 3}, exact={"v": b"\xff"})
    changelog.rows(ORDERS, [put(9, id=1, v="a"), Row("insert", 10, {"id": 2}, exact={"v": b"\xff"}), gone])
    with pytest.raises(UnrepresentableValueError, match="column v"):
        history.load(changelog)
    report = {each.table.table: each for each in history.load(changelog, target_value="quarantine").tables}
    assert (report["orders"].events, report["orders"].quarantined, report["orders"].upserted) == (3, 1, 2)
    assert len(report["orders"].quarantine_files) == 1
    rows = history.rows("SELECT id, v, _op, _absent FROM shop.orders ORDER BY id")
    assert [(*row[:3], absent_of(row[3])) for row in rows] == [(1, "a", "insert", None), (3, None, "delete", ["v"])]
    lines = "SELECT v, _commit_ts, _kafka_topic, _kafka_partition, _kafka_offset FROM shop.lines ORDER BY 5"
    assert history.rows(lines) == [("x", 8, "topic", 0, 1), ("x", 8, "topic", 0, 2)]


def absent_of(cell: Any) -> Any:
    """MySQL has a list as JSON."""
    return json.loads(cell) if isinstance(cell, str) else cell


def test_values_that_a_database_lacks_or_has(make_history: Make, artifacts: Path) -> None:
    """MySQL holds zero dates; PostgreSQL's text holds no NUL, which of a deleted row is left out."""
    history = make_history()
    if isinstance(history, LakeRig):
        pytest.skip("a lake has every typed value, and no other: see test_values_keys_and_places")
    days = table("shop.days", {"id": INT, "day": DAY, "v": TEXT})
    rows = [
        Row("insert", 10, {"id": 1, "v": "\0"}, exact={"day": b"0000-00-00"}),
        put(11, id=2, v="\0"),
        delete(12, id=2, v="\0"),
    ]
    changelog = Changelog(artifacts, 0, 100).rows(days, rows)
    report = history.load_table(changelog, target_value="quarantine")
    found_rows = history.rows("SELECT id, v, _op, _absent FROM shop.days ORDER BY _commit_ts")
    if isinstance(history, PostgresRig):
        assert report.quarantined == 2
        assert found_rows == [(2, None, "delete", ["v"])]
    else:
        assert report.quarantined == 0
        assert found_rows == [(1, "\0", "insert", None), (2, "\0", "insert", None), (2, "\0", "delete", None)]
        assert history.rows("SELECT CAST(day AS char) FROM shop.days WHERE id = 1") == [("0000-00-00",)]


def test_names_of_tables_and_columns(history: MirrorRig, artifacts: Path) -> None:
    odd = 'it\'s "so" `odd` 100%s {x} \\ é'
    schema = table("shop.t", {odd: INT, "select": TEXT, "Upper": TEXT, "version": INT, "put": INT}, key=[odd])
    rows = [put(10, **{odd: 1, "select": "a", "Upper": "'", "version": 1, "put": 2}), delete(20, **{odd: 1})]
    changelog = Changelog(artifacts, 0, 100).rows(schema, rows).ddl(5, "TRUNCATE TABLE t", table="shop.t")
    report = history.load_table(changelog)
    assert {field.name for field in report.fields} >= {odd, "select", "Upper", "version", "put"}
    history.load(changelog, reload=True)
    assert history.rows("SELECT _commit_ts, _op FROM shop.t ORDER BY _commit_ts") == [
        (5, "empty"),
        (10, "insert"),
        (20, "delete"),
    ]
    other = table("shop.t" + "x" * 60, {"id": INT, "c" * 64: INT})
    long = history.load_table(Changelog(artifacts, 0, 100, "long").rows(other, [put(10, id=1)]))
    assert long.outcome == "loaded"


def test_what_is_refused(make_history: Make, artifacts: Path) -> None:
    history = make_history()
    by_offset = Changelog(artifacts, 0, 100, order="place").rows(ORDERS, [put(1, id=1, v="a")])
    with pytest.raises(ConfigError, match="windows are by offset"):
        history.load(by_offset)
    taken = table("shop.taken", {"id": INT, "_OP": TEXT})
    with pytest.raises(TargetMismatchError, match="names of its columns _OP"):
        history.load(Changelog(artifacts, 0, 100, "taken").rows(taken, [put(1, id=1)]))
    if isinstance(history, LakeRig):
        return
    reserved = table("_ticdc_replay.tables", {"id": INT})
    report = history.load_table(Changelog(artifacts, 0, 100, "reserved").rows(reserved, [put(1, id=1)]))
    assert (report.outcome, report.destination) == ("reserved_name", "")


@pytest.mark.parametrize("mode", ["history", "scd2"])
def test_a_mirror_is_no_history(make_history: Make, artifacts: Path, mode: str) -> None:
    """Neither is a window that a mirror has."""
    rig = make_history("scd2")  # a catalog that holds views
    mirrored, later = (window(artifacts, from_ts, from_ts + 100) for from_ts in (0, 100))
    rig.load(mirrored, {"mode": "mirror"})
    before = rig.rows("SELECT * FROM shop.orders ORDER BY id")
    for changelog in (mirrored, later):
        with pytest.raises(TargetMismatchError, match=r"orders.* is (no history|there already|a history)"):
            rig.load(changelog, {"mode": mode})
        assert rig.rows("SELECT * FROM shop.orders ORDER BY id") == before
    assert rig.load_table(later, target={"mode": "mirror"}).outcome == "loaded"


@pytest.mark.parametrize("mode", ["mirror", "scd2"])
def test_a_history_is_nothing_else(make_history: Make, artifacts: Path, mode: str) -> None:
    rig = make_history("scd2")
    first, later = (window(artifacts, from_ts, from_ts + 100) for from_ts in (0, 100))
    rig.load(first, {"mode": "history"})
    for changelog in (first, later, Changelog(artifacts, 100, 200, "drop").ddl(150, "DROP TABLE orders")):
        with pytest.raises(TargetMismatchError, match=r"orders.* is (no history|there already|a history)"):
            rig.load(changelog, {"mode": mode}, drop="apply")
        assert rig.rows(VERSIONS) == found([row for row in ROWS if row.commit_ts < 100])
    assert rig.load_table(later, target={"mode": "history"}).outcome == "loaded"


def test_the_newest_version_of_a_row_is_found(make_history: Make, artifacts: Path) -> None:
    history = make_history()
    if isinstance(history, LakeRig):
        pytest.skip("a lake takes Spark, which is not started for one row")
    assert newest(history, ORDERS, id="1") == FoundRow(where='"shop"."orders"', keeps="all")
    for from_ts in (200, 0, 100):
        history.load(window(artifacts, from_ts, from_ts + 100))
    history.load(Changelog(artifacts, 300, 400).ddl(310, "TRUNCATE TABLE orders"))
    versions = {key: newest(history, ORDERS, id=key) for key in "1234"}
    assert {key: (each.version, each.is_deleted) for key, each in versions.items()} == {
        "1": (110, False),
        "2": (210, False),
        "3": (212, True),
        "4": (None, False),
    }
    assert {each.keeps for each in versions.values()} == {"all"}


VALUES = st.lists(
    st.tuples(st.integers(0, 299), st.integers(0, 3), st.booleans()), max_size=60, unique_by=lambda x: x[:2]
)
"""CommitTs, key, and whether it is a delete."""


def intervals_of(versions: Sequence[Row], emptied: Sequence[int]) -> list[tuple[Any, ...]]:
    """What the view has: computed key by key from sorted events."""
    expected = []
    for key in sorted({row.cells["id"] for row in versions}):
        events = sorted((row.commit_ts, row.op != "delete") for row in versions if row.cells["id"] == key)
        for number, (ts, is_put) in enumerate(events):
            ends = [later for later, _ in events[number + 1 :]] + [at for at in emptied if at >= ts]
            end = min(ends, default=None)
            if is_put and end != ts:
                expected.append((key, str(ts), ts, end, end is None))
    return sorted(expected, key=itemgetter(0, 2))


def as_of(versions: Sequence[Row], emptied: Sequence[int], tso: int) -> list[tuple[Any, ...]]:
    """The rows that the upstream had at *tso*: every event applied in its order."""
    rows: dict[int, str] = {}
    events = [(row.commit_ts, 1 + (row.op != "delete"), row) for row in versions] + [(at, 3, None) for at in emptied]
    for ts, _, row in sorted(events, key=itemgetter(0, 1)):
        if ts > tso:
            break
        if row is None:
            rows.clear()
        elif row.op == "delete":
            rows.pop(row.cells["id"], None)
        else:
            rows[row.cells["id"]] = row.cells["v"]
    return sorted(rows.items())


def documented_as_of(tso: int, history: str) -> str:
    """The query of the docs for the table as it was at *tso*."""
    query = DOCS.split("## History\n")[1].split("```sql\n")[1].split("```")[0]
    return query.replace("lake.shop.orders", history).replace("460000000000000000", str(tso))


def numbers(kind: type[MirrorRig]) -> int:
    """How many examples are tried: lake tables take seconds for a statement."""
    return examples(0.02) if kind is LakeRig else examples(0.15)


def test_intervals_have_no_overlap_and_no_hole(make_history: Make, tmp_path: Path) -> None:
    """Whatever windows are loaded, in any order, also twice; and the documented query has the table as it was at any TSO."""
    kind = type(make_history("scd2"))
    counter = iter(range(10_000))

    # Without shrinking: an example takes seconds.
    @settings(max_examples=numbers(kind), phases=[Phase.explicit, Phase.reuse, Phase.generate])
    @given(VALUES, st.permutations((0, 0, 1, 2)), st.sets(st.integers(0, 299), max_size=2), st.integers(0, 299))
    def check(drawn: list[tuple[int, int, bool]], order: list[int], emptied: set[int], tso: int) -> None:
        rig, folder = make_history("scd2"), tmp_path / str(next(counter))
        versions = [delete(ts, id=key) if gone else put(ts, id=key, v=str(ts)) for ts, key, gone in sorted(drawn)]
        windows = [window(folder, at, at + 100, rows=versions) for at in (0, 100, 200)]
        for at in emptied:
            windows[at // 100].ddl(at, "TRUNCATE TABLE orders")
        for number in order:
            rig.load(windows[number])
        if not (versions or emptied):
            return
        if versions:
            view = "SELECT id, v, valid_from, valid_to, is_current FROM shop.orders ORDER BY id, valid_from"
            assert rig.rows(view) == intervals_of(versions, sorted(emptied))
            query = documented_as_of(tso, "shop.orders_history")
            found_rows = rig.rows(f"SELECT id, v FROM ({query}) AS versions_then ORDER BY id")
            assert found_rows == as_of(versions, sorted(emptied), tso)

    check()


def test_intervals_follow_columns_and_leave_out_tables_without_key(make_history: Make, artifacts: Path) -> None:
    rig = make_history("scd2")
    rig.load(Changelog(artifacts, 0, 100).ddl(50, "TRUNCATE TABLE orders", table="shop.orders"))
    rig.load(window(artifacts, 100, 200, rows=[put(110, id=1, v="a"), put(120, id=1, v="b")]))
    intervals = "SELECT id, v, valid_from, valid_to FROM shop.orders ORDER BY valid_from"
    assert rig.rows(intervals) == [(1, "a", 110, 120), (1, "b", 120, None)]
    wider = table("shop.orders", {"id": BIG, "v": TEXT, "n": INT}, valid_from=200)
    keyless = table("shop.keyless", {"v": TEXT}, key=())
    mixed = (
        Changelog(artifacts, 200, 300).rows(wider, [put(210, id=1 << 40, v="c", n=1)]).rows(keyless, [put(210, v="a")])
    )
    outcomes = {each.table.table: each.outcome for each in rig.load(mixed).tables}
    assert outcomes == {"orders": "loaded", "keyless": "without_key"}
    assert rig.rows("SELECT id, n, valid_to FROM shop.orders WHERE is_current ORDER BY id") == [
        (1, None, None),
        (1 << 40, 1, None),
    ]
    with pytest.raises(PermanentError, match="load it in mode history"):
        rig.load(mixed, tables=("shop.keyless",))
    other = table("shop.orders", {"id": INT, "v": TEXT}, ["v"])
    with pytest.raises(TargetMismatchError, match="its rows are identified by id, and those of this window by v"):
        rig.load(Changelog(artifacts, 300, 400).rows(other, [put(310, id=1, v="c")]))


def test_intervals_of_a_table_that_is_made_again_have_its_key(make_history: Make, artifacts: Path) -> None:
    rig = make_history("scd2")
    rig.load(window(artifacts, 0, 100))
    rig.execute(f"DROP TABLE shop.orders_history{' CASCADE' if isinstance(rig, PostgresRig) else ''}")
    rig.forget("shop.orders")
    other = table("shop.orders", {"id": INT, "v": TEXT}, key=["v"], valid_from=100)
    rig.load(Changelog(artifacts, 100, 200).rows(other, [put(110, id=1, v="a"), put(120, id=1, v="b")]))
    intervals = "SELECT id, v, valid_from, valid_to FROM shop.orders ORDER BY valid_from"
    assert rig.rows(intervals) == [(1, "a", 110, None), (1, "b", 120, None)]


def test_a_view_that_others_depend_on_stops_a_load_that_changes_columns(
    make_database: Callable[[], str], artifacts: Path
) -> None:
    rig = PostgresRig(make_database())
    rig.section["mode"] = "scd2"
    rig.load(window(artifacts, 0, 100))
    rig.execute("CREATE VIEW shop.mine AS SELECT id FROM shop.orders")
    wider = table("shop.orders", {"id": BIG, "v": TEXT}, valid_from=100)
    changed = Changelog(artifacts, 100, 200).rows(wider, [put(110, id=1 << 40, v="c")])
    with pytest.raises(TargetMismatchError, match=r"view shop.mine depends on view shop.orders\. Drop these, load"):
        rig.load(changed)
    rig.execute("DROP VIEW shop.mine")
    rig.load(changed)
    assert rig.rows("SELECT max(id) FROM shop.orders") == [(1 << 40,)]


def test_a_slice_in_several_commits(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    """Its parts are replaced as a whole, and a newer run without rows of the table empties it."""
    mysql_mirror.section |= {"mode": "history", "rows_per_commit": 1000}
    rows = [put(at, id=at, v="a") for at in range(2500)]
    first = Changelog(artifacts, 0, 3000).rows(ORDERS, rows)
    for reload in (False, True):
        assert mysql_mirror.load_table(first, reload=reload).upserted == 2500
        assert mysql_mirror.rows("SELECT count(*), count(DISTINCT id) FROM shop.orders") == [(2500, 2500)]
    redrive = Changelog(artifacts, 0, 3000, "redrive").rows(ORDERS, [put(at, id=at, v="b") for at in range(1500)])
    redrive.redrives = first.run_hash
    mysql_mirror.load(redrive)
    mysql_mirror.load(first, reload=True)
    query = "SELECT count(*), count(DISTINCT id) FROM shop.orders GROUP BY v ORDER BY v"
    assert mysql_mirror.rows(query) == [(1000, 1000), (1500, 1500)]
    mysql_mirror.load(Changelog(artifacts, 0, 3000, "newer"), generation=2)
    assert mysql_mirror.rows("SELECT count(*) FROM shop.orders") == [(0,)]
    assert mysql_mirror.rows("SELECT count(*) FROM _ticdc_replay.ledger") == [(0,)]


def test_the_indexes_of_a_keyed_table(
    mysql_mirror: MysqlRig, make_database: Callable[[], str], artifacts: Path
) -> None:
    long = table("shop.orders", {"id": INT, "k": ColumnType("text", declared=True)}, key=["k"])
    changelogs = [Changelog(artifacts, at, at + 100).rows(long, [put(at, id=1, k="x" * 5000)]) for at in (0, 100)]
    mysql_mirror.section["mode"] = "history"
    mysql_mirror.load_all(changelogs)
    found_columns = (
        "SELECT index_name, column_name FROM information_schema.statistics "
        "WHERE table_schema = 'shop' ORDER BY 1, seq_in_index"
    )
    assert [tuple(row) for row in mysql_mirror.rows(found_columns)] == [
        ("history_commit_ts", "_commit_ts"),
        ("history_key", "k"),
        ("history_key", "_commit_ts"),
    ]
    postgres = PostgresRig(make_database())
    postgres.section["mode"] = "history"
    postgres.load_all([window(artifacts, at, at + 100, "pg") for at in (0, 100)])
    definitions = postgres.rows("SELECT indexdef FROM pg_indexes WHERE schemaname = 'shop' ORDER BY 1")
    assert [text.split("USING ")[1] for (text,) in definitions] == ["btree (_commit_ts)", "btree (id, _commit_ts)"]


@pytest.mark.parametrize("newer_first", [False, True])
@pytest.mark.parametrize("key", [("id", "v"), ()], ids=["another key", "no key"])
def test_intervals_stop_at_a_key_that_changes_within_a_window(
    make_history: Make, artifacts: Path, key: tuple[str, ...], newer_first: bool
) -> None:
    rig = make_history("scd2")
    old, new = (
        table("shop.orders", {"id": INT, "v": TEXT}, key=each, valid_from=at) for each, at in ((("id",), 0), (key, 150))
    )
    if newer_first and key:
        rig.load(Changelog(artifacts, 200, 300).rows(new, [put(210, id=5, v="z")]))
    window = Changelog(artifacts, 100, 200).rows(old, [put(110, id=1, v="a")]).rows(new, [put(160, id=2, v="x")])
    with pytest.raises(TargetMismatchError, match=r"of this window .* no interval goes over such a change"):
        rig.load(window)


def test_ddl_of_a_table_without_key_stops_no_later_window_of_it(make_history: Make, artifacts: Path) -> None:
    keyless = table("shop.orders", {"id": INT, "v": TEXT}, key=())
    rig = make_history("scd2")
    rig.load(Changelog(artifacts, 0, 100).ddl(50, "TRUNCATE TABLE orders", table="shop.orders"))
    later = Changelog(artifacts, 100, 200).rows(keyless, [put(110, id=1, v="a")])
    assert rig.load_table(later).outcome == "without_key"


def test_ddl_stops_no_repeat_of_a_window_from_before_the_key(make_history: Make, artifacts: Path) -> None:
    keyless = table("shop.orders", {"id": INT, "v": TEXT}, key=())
    rig = make_history("scd2")
    rig.load(Changelog(artifacts, 0, 50).ddl(20, "TRUNCATE TABLE orders", table="shop.orders"))
    before = Changelog(artifacts, 50, 100).rows(keyless, [put(60, id=3, v="c")])
    with_key = table("shop.orders", {"id": INT, "v": TEXT}, valid_from=150)
    rig.load(Changelog(artifacts, 100, 200).rows(with_key, [put(160, id=1, v="a")]))
    assert rig.load_table(before).outcome == "without_key"
    assert rig.rows("SELECT id, v, valid_to FROM shop.orders") == [(1, "a", None)]


def test_intervals_stop_at_a_key_that_is_lost_between_windows(make_history: Make, artifacts: Path) -> None:
    keyless = table("shop.orders", {"id": INT, "v": TEXT}, key=())
    before, with_key, after = (Changelog(artifacts, at, at + 100) for at in (0, 100, 200))
    rig = make_history("scd2")
    before.rows(keyless, [put(10, id=3, v="c")])
    rig.load(before)
    rig.load(with_key.rows(table("shop.orders", {"id": INT, "v": TEXT}, valid_from=150), [put(160, id=1, v="a")]))
    assert rig.load_table(before, reload=True).outcome == "without_key"
    with pytest.raises(
        TargetMismatchError, match=r"of this window have no key, .* no interval goes over such a change"
    ):
        rig.load(after.rows(keyless, [put(210, id=4, v="d")]))
    assert rig.rows("SELECT id, v, valid_to FROM shop.orders") == [(1, "a", None)]


def test_intervals_of_long_keys_end(make_history: Make, artifacts: Path) -> None:
    """MySQL sorts by the first bytes of a value alone."""
    rig = make_history("scd2")
    orders = table("shop.orders", {"k": ColumnType("varbinary", length=6000, declared=True), "v": TEXT}, key=("k",))
    rows = [put(10 + at, k=b"x" * 1200 + name.encode(), v=name) for at, name in enumerate("abcab")]
    rig.load(Changelog(artifacts, 0, 100).rows(orders, rows))
    found = rig.rows("SELECT v, valid_from, valid_to FROM shop.orders")
    assert sorted(found, key=itemgetter(1)) == [
        ("a", 10, 13),
        ("b", 11, 14),
        ("c", 12, None),
        ("a", 13, None),
        ("b", 14, None),
    ]


@pytest.mark.parametrize(
    ("key_type", "unit", "is_hashed"),
    [
        (ColumnType("varchar", length=255, declared=True), "\U0001f600", False),
        (ColumnType("varchar", length=256, declared=True), "\U0001f600", True),
        (ColumnType("varbinary", length=1020, declared=True), b"x", False),
        (ColumnType("varbinary", length=1021, declared=True), b"x", True),
    ],
    ids=["varchar(255)", "varchar(256)", "varbinary(1020)", "varbinary(1021)"],
)
def test_only_keys_that_mysql_cuts_when_it_sorts_are_hashed(
    mysql_mirror: MysqlRig, artifacts: Path, key_type: ColumnType, unit: Any, is_hashed: bool
) -> None:
    """Keys of the greatest length, which differ in their last byte; a hash keeps the index from being used for one key."""
    mysql_mirror.section["mode"] = "scd2"
    orders = table("shop.orders", {"k": key_type, "v": TEXT}, key=("k",))
    assert key_type.length is not None
    keys = [unit * (key_type.length - 1) + end for end in ("ab" if isinstance(unit, str) else (b"a", b"b"))]
    rows = [put(10 + at, k=keys[at % 2], v=str(at)) for at in range(4)]
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(orders, rows))
    found = mysql_mirror.rows("SELECT v, valid_from, valid_to FROM shop.orders")
    assert sorted(found) == [("0", 10, 12), ("1", 11, 13), ("2", 12, None), ("3", 13, None)]
    ((query,),) = mysql_mirror.rows("SELECT view_definition FROM information_schema.views WHERE table_schema = 'shop'")
    assert ("sha2(" in query.lower()) == is_hashed
