"""Single rows that differ are found exactly, wherever they are, and whatever the key is."""

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from tests.support import mariadb
from tests.support.changelogs import Changelog, Row, delete, put
from tests.support.target_rigs import LakeRig, MirrorRig, MysqlRig
from tests.support.verified import Verified
from ticdc_replay.cli.main import app
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError, PermanentError, PolicyStopError, TransientError
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.domain.window import Window
from ticdc_replay.large_messages import source_statements
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.stages.upkeep.follow import ddl_at
from ticdc_replay.stages.upkeep.verification import require_equal
from ticdc_replay.stages.upkeep.verify import verify
from ticdc_replay.targets.lake.comparison import LakeSide
from ticdc_replay.targets.mirror import verify as target_verify
from ticdc_replay.targets.mysql.comparison import MysqlMirrorSide
from ticdc_replay.targets.postgres.comparison import PostgresSide
from ticdc_replay.verify import compare, readers, scan
from ticdc_replay.verify.compare import Pace
from ticdc_replay.verify.mysql import MySqlSide

pytestmark = pytest.mark.integration

SMALL = Pace(1.0, 100)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a test with few rows cuts ranges, too."""
    monkeypatch.setattr(compare, "_SMALL", 20)
    monkeypatch.setattr(readers, "SMALL", 20)


def numbered(verified: Verified, count: int) -> TableSchema:
    """A table of *count* rows with keys from 1 on, in both places."""
    schema = verified.create("id bigint PRIMARY KEY, v varchar(20)")
    verified.both(schema, [{"id": number, "v": f"v{number}"} for number in range(1, count + 1)])
    return schema


def test_rows_at_the_borders_of_ranges_are_found(verified: Verified) -> None:
    numbered(verified, 1_000)
    assert verified.differing(pace=SMALL) == []
    # A range has 100 rows, the first ones 1 to 100 and 101 to 200.
    verified.mirror("DELETE FROM {t}.t WHERE id IN (1, 101, 1000)")
    verified.mirror("UPDATE {t}.t SET v = 'other' WHERE id IN (100, 200)")
    verified.mirror("INSERT INTO {t}.t VALUES (0, 'x', 50), (-5, NULL, 50), (2000, '', 50)")
    verified.upstream("UPDATE t SET v = NULL WHERE id = 201")
    assert set(verified.differing(pace=SMALL)) == {
        ("missing", ("1",), ()),
        ("missing", ("101",), ()),
        ("missing", ("1000",), ()),
        ("changed", ("100",), ("v",)),
        ("changed", ("200",), ("v",)),
        ("changed", ("201",), ("v",)),
        ("extra", ("0",), ()),
        ("extra", ("-5",), ()),
        ("extra", ("2000",), ()),
    }


def test_rows_that_stay_when_they_are_deleted_are_missing(
    source: Connection, mirror: MirrorRig, tmp_path: Path
) -> None:
    mirror.section["deletes"] = "soft"
    with Verified(source, mirror, tmp_path) as verified:
        schema = numbered(verified, 1_000)
        gone = [Row("delete", 150, {"id": number, "v": f"v{number}"}) for number in range(300, 600)]
        verified.load_rows(
            schema, [*gone, delete(151, id=1), delete(151, id=1000), delete(152, id=2000)], Window(100, 200)
        )
        verified.upstream("DELETE FROM t WHERE id IN (1, 1000) OR id BETWEEN 300 AND 599")
        found = verified.verify(SMALL)
        assert (found.outcome, found.columns, found.findings.mirror_rows) == ("equal", 2, 698)
        verified.upstream("INSERT INTO t VALUES (1, 'v1'), (450, 'v450')", "DELETE FROM t WHERE id = 2")
        verified.mirror("UPDATE {t}.t SET v = 'other' WHERE id = 3")
        assert set(verified.differing(pace=SMALL)) == {
            ("missing", ("1",), ()),
            ("missing", ("450",), ()),
            ("extra", ("2",), ()),
            ("changed", ("3",), ("v",)),
        }
        versions = {each.key: each.version for each in verified.verify(SMALL).findings.differences}
        assert (versions[("1",)], versions[("450",)]) == (151, 150)


def test_a_column_that_was_of_the_key_stays_in_a_shaped_mirror(
    source: Connection, mirror: MirrorRig, tmp_path: Path
) -> None:
    mirror.section["shape"] = [{"include": ["s"]}]
    with Verified(source, mirror, tmp_path) as verified:
        schema = verified.create("a int, b int NOT NULL, s varchar(20), o varchar(20), PRIMARY KEY (a, b)")
        rows = [{"a": number, "b": 2, "s": "x", "o": "y"} for number in range(1, 5)]
        verified.insert(schema, rows)
        artifacts = verified.folder / "artifacts" / "pipeline"
        verified.rig.load(Changelog(artifacts, 1, 100).rows(schema, [put(50, **row) for row in rows]))
        created = "CREATE TABLE t (a int, b int NOT NULL, s varchar(20), o varchar(20), PRIMARY KEY (a, b))"
        change = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a)"
        window = Changelog(artifacts, 100, 151).knows(definition_from_sql(verified.table, created))
        window.ddl(150, change, table=str(verified.table))
        with pytest.raises(PolicyStopError, match="rows are now identified by a"):
            verified.rig.load(window)
        ddl = ddl_at(verified.context, verified.rig.target(None), window.write(), verified.table, 150)
        verified.rig.changeable().follow("pipeline", ddl)
        verified.upstream(change)
        found = verified.verify(at=150)
        assert (found.outcome, found.problems, found.findings.mirror_rows) == ("equal", (), 4)


def test_rows_that_repeat_a_key_are_extra(verified: Verified) -> None:
    if not isinstance(verified.rig, LakeRig):
        pytest.skip("a database keeps the primary key")
    numbered(verified, 300)
    verified.mirror("INSERT INTO {t}.t SELECT * FROM {t}.t WHERE id < 3 OR id > 299")
    verified.mirror("INSERT INTO {t}.t VALUES (7, 'other', 50), (7, 'newer', 900)")
    found = verified.verify(SMALL)
    assert (found.outcome, found.findings.source_rows, found.findings.mirror_rows) == ("differs", 300, 305)
    assert sorted((each.kind, each.key, each.version) for each in found.findings.differences) == [
        ("extra", ("1",), 50),
        ("extra", ("2",), 50),
        ("extra", ("300",), 50),
        ("extra", ("7",), 50),
        ("extra", ("7",), 900),
    ]


@pytest.mark.parametrize("key", ["id", "id, part"])
def test_rows_with_null_in_their_key_are_extra(verified: Verified, key: str) -> None:
    if not isinstance(verified.rig, LakeRig):
        pytest.skip("a database keeps the primary key")
    schema = verified.create(f"id bigint, part varchar(20), PRIMARY KEY ({key})")
    verified.both(schema, [{"id": number, "part": "p"} for number in range(1, 301)])
    for column in key.split(", "):
        verified.mirror(f"ALTER TABLE {{t}}.t ALTER COLUMN {column} DROP NOT NULL")
    verified.mirror("INSERT INTO {t}.t SELECT CAST(NULL AS bigint), part, 50 FROM {t}.t WHERE id < 41")
    found = verified.verify(SMALL).findings
    assert (found.source_rows, found.mirror_rows, found.extra, found.unexamined) == (300, 340, 40, 0)
    assert {each.key[0] for each in found.differences} == {"NULL"}


@pytest.mark.parametrize("emptied", ["mirror", "upstream", "both"])
def test_an_empty_side(verified: Verified, emptied: str) -> None:
    numbered(verified, 250)
    if emptied != "upstream":
        verified.mirror("DELETE FROM {t}.t")
    if emptied != "mirror":
        verified.upstream("DELETE FROM t")
    found = verified.verify(SMALL).findings
    assert (found.missing, found.extra) == {"mirror": (250, 0), "upstream": (0, 250), "both": (0, 0)}[emptied]


KEYS: list[tuple[str, Sequence[Any]]] = [
    (
        "k varchar(40) PRIMARY KEY",
        [f"{letter}{number}" for letter in ("a", "A", "é", "😀", "a ", "a\t") for number in range(60)],
    ),
    (
        "k varchar(40) COLLATE utf8mb4_general_ci PRIMARY KEY",
        [f"{letter}{number}" for letter in ("a", "B", "ß", "z") for number in range(60)],
    ),
    (
        "k varchar(40) CHARACTER SET latin1 PRIMARY KEY",
        [f"{letter}{number}" for letter in ("a", "é", "ÿ") for number in range(60)],
    ),
    ("k varbinary(20) PRIMARY KEY", [bytes([first, second]) for first in (0, 39, 128, 255) for second in range(60)]),
    ("k binary(4) PRIMARY KEY", [bytes([first, second, 0, 0]) for first in (0, 255) for second in range(60)]),
    ("k decimal(20,5) PRIMARY KEY", [Decimal(f"{number - 100}.{number:05}") for number in range(200)]),
    ("k double PRIMARY KEY", [(number - 100) * 1.1e10 for number in range(200)]),
    ("k bigint unsigned PRIMARY KEY", [2**64 - 1 - number for number in range(200)]),
    (
        "k enum(" + ",".join(f"'e{number}'" for number in range(200)) + ") PRIMARY KEY",
        [f"e{number}" for number in range(200)],
    ),
    ("k time(3) PRIMARY KEY", [(number - 100) * 3_600_001_000 for number in range(200)]),
]


@pytest.mark.parametrize(("columns", "values"), KEYS, ids=[columns[2:30] for columns, _ in KEYS])
def test_keys_of_every_kind(verified: Verified, columns: str, values: Sequence[Any]) -> None:
    schema = verified.create(f"{columns}, v int")
    verified.both(schema, [{"k": value, "v": at} for at, value in enumerate(values)])
    pace = Pace(1.0, 50)
    found = verified.verify(pace)
    assert (found.outcome, found.findings.source_rows, found.findings.mirror_rows) == (
        "equal",
        len(values),
        len(values),
    )
    assert found.findings.ranges >= 2
    for at in range(0, len(values), 17):
        verified.mirror(f"UPDATE {{t}}.t SET v = -1 WHERE v = {at}")
    verified.mirror("DELETE FROM {t}.t WHERE v = 5")
    found = verified.verify(pace)
    kinds = [(each.kind, each.columns) for each in found.findings.differences]
    assert sorted(kinds) == sorted([*[("changed", ("v",))] * len(range(0, len(values), 17)), ("missing", ())])


def test_a_key_of_several_columns_in_another_order_than_the_mirror_has(verified: Verified) -> None:
    schema = verified.create("tenant int, name varchar(20), id int, v int, PRIMARY KEY (tenant, name, id)")
    rows = [
        {"tenant": tenant, "name": name, "id": id, "v": 0}
        for tenant in range(3)
        for name in ("", "a", "a\x01", "b")
        for id in range(20)
    ]
    verified.both(schema, rows)
    assert verified.differing(pace=Pace(1.0, 30)) == []
    verified.mirror("UPDATE {t}.t SET v = 1 WHERE tenant = 1 AND name = 'a' AND id = 7")
    verified.mirror("DELETE FROM {t}.t WHERE tenant = 2 AND name = '' AND id = 19")
    found = verified.verify(Pace(1.0, 30))
    assert found.key == ("tenant", "name", "id")
    assert {(each.kind, each.key) for each in found.findings.differences} == {
        ("changed", ("1", "a", "7")),
        ("missing", ("2", "", "19")),
    }


def test_a_key_with_another_collation_than_loads_give_it(verified: Verified) -> None:
    schema = verified.create("k varchar(40) PRIMARY KEY, v int")
    texts = [f"{letter}{number}" for letter in ("a", "é", "z", "-a", " b") for number in range(40)]
    verified.both(schema, [{"k": text, "v": 1} for text in texts])
    if isinstance(verified.rig, LakeRig):
        pytest.skip("texts of a lake have no collation")
    if isinstance(verified.rig, MysqlRig):
        verified.mirror("ALTER TABLE {t}.t MODIFY k varchar(40) CHARSET utf8mb4 COLLATE utf8mb4_general_ci")
        problem, *_ = verified.verify().problems
        assert problem == "column k of the mirror has a collation that takes different texts as equal"
        return
    verified.mirror('ALTER TABLE {t}.t ALTER k TYPE text COLLATE "default"')
    assert verified.differing(pace=Pace(1.0, 30)) == []
    verified.mirror("DELETE FROM {t}.t WHERE k = '-a7'")
    assert verified.differing(pace=Pace(1.0, 30)) == [("missing", ("-a7",), ())]


def test_tables_without_a_mirror_are_named(verified: Verified) -> None:
    numbered(verified, 3)
    for name, columns in (("empty", "id int PRIMARY KEY"), ("keyless", "v int"), ("waiting", "id int PRIMARY KEY")):
        verified.create(columns, name)
    verified.create("id int PRIMARY KEY", "unreadable")
    for name in ("keyless", "waiting", "unreadable"):
        verified.upstream(f"INSERT INTO {name} VALUES (1)")
    verified.upstream("ALTER TABLE unreadable ADD COLUMN place point")
    report = verified.report(SMALL)
    assert report.without_mirror == tuple(TableName(verified.database, name) for name in ("unreadable", "waiting"))
    assert report.is_equal
    assert not verified.report(SMALL, tables=[f"{verified.database}.t"]).without_mirror


def test_only_tables_of_the_pipeline_are_compared(verified: Verified) -> None:
    numbered(verified, 3)
    verified.database, own = f"{verified.database}_other", verified.database
    mariadb.execute(verified.source, f"CREATE DATABASE {verified.database}")
    try:
        numbered(verified, 3)
        found = verified.report(SMALL).tables
    finally:
        mariadb.execute(verified.source, f"DROP DATABASE {verified.database}")
        verified.database = own
    assert [each.table for each in found] == [TableName(own, "t")]


def test_what_a_base_load_set_aside_is_named(verified: Verified) -> None:
    schema = numbered(verified, 3)
    verified.rig.raise_floor(str(schema.name), 200)
    verified.cover(schema, Window(100, 200), "base", quality="quarantine")
    assert any("was set aside" in note for note in verified.verify().notes)


def test_days_that_no_calendar_has_are_missing_rows(verified: Verified) -> None:
    schema = verified.create("d date PRIMARY KEY, v int")
    days = [f"2026-{month:02}-{day:02}" for month in range(1, 5) for day in range(1, 29)]
    verified.insert(schema, [{"d": day, "v": 1} for day in days])
    verified.load(schema, [{"d": datetime.date.fromisoformat(day), "v": 1} for day in days])
    verified.upstream(
        *(f"INSERT INTO t VALUES ('2026-0{month}-00', 1), ('0000-0{month}-00', 2)" for month in range(1, 9))
    )
    differing = verified.differing(pace=Pace(1.0, 3))
    assert {kind for kind, _, _ in differing} == {"missing"}
    assert {key for _, key, _ in differing} == {
        (f"{year}-0{month}-00",) for month in range(1, 9) for year in ("0000", "2026")
    }


def test_more_days_that_no_calendar_has_than_are_fetched_at_once(verified: Verified) -> None:
    schema = verified.create("d date, n int, v int, PRIMARY KEY (d, n)")
    rows = [{"d": datetime.date(2026, 3, 1), "n": number, "v": 1} for number in range(30)]
    verified.both(schema, rows)
    verified.upstream(f"INSERT INTO t VALUES {', '.join(f'(0, {number}, 1)' for number in range(90))}")
    assert verified.verify(SMALL).findings.missing == 90


def test_odd_names(verified: Verified) -> None:
    columns = '`k``%s` int PRIMARY KEY, `q"%` int, xmin text, `ключ 表` varchar(9), `Übung' + "x" * 50 + "` double"
    schema = verified.create(columns, "a%b 表")
    names = [column.name for column in schema.columns]
    verified.both(schema, [dict(zip(names, (number, 7, "a", "b", 0.1), strict=True)) for number in range(60)])
    assert verified.differing(pace=Pace(1.0, 20)) == []
    if isinstance(verified.rig, LakeRig) and verified.rig.kind == "delta":
        return  # its tables have no names, but paths
    verified.mirror('UPDATE {t}."a%b 表" SET "q""%" = 8 WHERE "k`%s" = 20')
    assert verified.differing(pace=Pace(1.0, 20)) == [("changed", ("20",), ('q"%',))]


def test_a_base_load_is_compared_as_of_its_floor(verified: Verified) -> None:
    schema = numbered(verified, 3)
    verified.rig.raise_floor(str(schema.name), 500)
    found = verified.verify()
    assert (found.at, found.outcome) == (500, "equal")
    assert any("the floor 500" in note for note in verified.verify(at=400).notes)


def test_rows_of_a_base_load_have_no_window_to_load_again(verified: Verified) -> None:
    """The window that holds the base's TSO does not bring them back, as they are below the floor."""
    schema = numbered(verified, 4)
    verified.rig.raise_floor(str(schema.name), 51)
    verified.cover(schema, Window(1, 100), "window")
    verified.insert(schema, [{"id": 9, "v": "newer"}])
    verified.load(schema, [{"id": 9, "v": "other"}], Window(100, 200), 150)
    verified.mirror("UPDATE {t}.t SET v = 'other' WHERE id = 2")
    verified.mirror("DELETE FROM {t}.t WHERE id = 3")
    found = verified.verify()
    assert [(each.key, each.version, each.window) for each in found.findings.differences] == [
        (("2",), 50, None),
        (("3",), 0, None),
        (("9",), 150, Window(100, 200)),
    ]
    assert any("`ticdc-replay mirror rebuild` does" in note for note in found.notes)


def test_json_is_compared_by_value(verified: Verified) -> None:
    is_text = verified.source.conn_type != "tidb"
    if isinstance(verified.rig, MysqlRig) or (is_text and isinstance(verified.rig, LakeRig)):
        pytest.skip("JSON of this source is a text, and so is its mirror")
    schema = verified.create("id int PRIMARY KEY, j json")
    declared = TableSchema(
        schema.name,
        tuple(column if column.name == "id" else _json_column(column) for column in schema.columns),
        schema.handle_key,
    )
    texts = ['{"a": 1, "b": [1.0, true]}', '{"a": 1}', "[1]", '"1"', "[0]"]
    verified.insert(schema, [{"id": at, "j": text} for at, text in enumerate(texts)])
    others = ['{"b":[1.00,true],"a":1}', '{"a": 1.5}', "[true]", "1", "[-0]"]
    verified.load(declared, [{"id": at, "j": text} for at, text in enumerate(others)])
    assert verified.differing() == [("changed", (str(at),), ("j",)) for at in (1, 2, 3)]


def _json_column(column: Any) -> Any:
    return msgspec.structs.replace(column, type=ColumnType("json", declared=True))


def test_versions_and_windows_are_named_and_newer_rows_do_not_count(verified: Verified) -> None:
    schema = verified.create("id int PRIMARY KEY, v int")
    verified.insert(schema, [{"id": number, "v": 1} for number in range(6)])
    verified.load_rows(schema, [put(50, id=number, v=1) for number in range(6)], Window(1, 100))
    verified.load_rows(schema, [put(150, id=1, v=2), delete(160, id=2)], Window(100, 200))
    verified.mirror("UPDATE {t}.t SET v = 9 WHERE id = 0")
    late = verified.verify()
    assert late.at == 199
    assert [(each.kind, each.key, each.version, each.window) for each in late.findings.differences] == [
        ("changed", ("0",), 50, Window(1, 100)),
        ("changed", ("1",), 150, Window(100, 200)),
        ("missing", ("2",), 160, Window(100, 200)),
    ]
    early = verified.verify(at=99)
    assert [(each.kind, each.key) for each in early.findings.differences] == [("changed", ("0",))]
    assert early.findings.newer == 2
    assert any("windows up to 200" in note for note in early.notes)
    verified.mirror("UPDATE {t}.t SET v = 1 WHERE id = 0")
    assert verified.verify(at=99).outcome == "equal"


def test_gaps_and_what_was_set_aside_are_named(verified: Verified) -> None:
    schema = numbered(verified, 3)
    verified.cover(schema, Window(200, 300), "later")
    notes = verified.verify().notes
    assert any(note.startswith("[100 ") and note.endswith("is not loaded") for note in notes)
    assert any("no base load is known" in note for note in notes)


def test_columns_and_keys_that_differ_are_named(verified: Verified) -> None:
    numbered(verified, 3)
    verified.upstream("ALTER TABLE t ADD w int")
    verified.mirror("ALTER TABLE {t}.t ADD COLUMN x int")
    found = verified.verify()
    assert found.problems == ("the mirror has no column w", "the source has no column for x of the mirror")
    assert (found.outcome, found.findings.source_rows) == ("differs", 3)
    verified.upstream("DROP TABLE t", "CREATE TABLE t (id bigint, v varchar(20), w int, x int, PRIMARY KEY (id, v))")
    assert "the key of the source (id, v) is not that of the mirror (id)" in verified.verify().problems
    verified.upstream("DROP TABLE t")
    (problem,) = verified.verify().problems
    assert "the source has no table" in problem


def test_a_column_that_the_mirror_keeps_is_no_difference(verified: Verified) -> None:
    schema = numbered(verified, 3)
    verified.upstream("ALTER TABLE t DROP COLUMN v")
    window = Changelog(verified.folder / "artifacts", 100, 200, "dropped")
    window.ddl(150, "ALTER TABLE t DROP COLUMN v", table=f"{verified.database}.t")
    verified.rig.load(window, drop_column="keep")
    verified.cover(schema, Window(100, 200), window.run_hash)
    found = verified.verify()
    assert (found.outcome, found.problems) == ("equal", ())
    assert verified.rig.rows(f"SELECT count(v) FROM {verified.database}.t") == [(3,)]


def test_a_comparison_that_broke_goes_on_where_it_was(verified: Verified, monkeypatch: pytest.MonkeyPatch) -> None:
    numbered(verified, 1_000)
    verified.mirror("DELETE FROM {t}.t WHERE id = 5")
    digest, asked = MySqlSide.digest, []

    def breaking(self: MySqlSide, part: Any) -> Any:
        asked.append(part)
        if part.lower == ("501",):
            raise TransientError("the source is away")
        return digest(self, part)

    monkeypatch.setattr(MySqlSide, "digest", breaking)
    with pytest.raises(TransientError):
        verified.verify(SMALL)
    monkeypatch.setattr(MySqlSide, "digest", lambda self, part: (asked.append(part), digest(self, part))[1])
    asked.clear()
    found = verified.verify(SMALL)
    assert asked[0].lower == ("501",)
    assert (found.findings.source_rows, found.findings.missing) == (1_000, 1)
    # The report is kept: the next one begins anew. So does one after other loads.
    asked.clear()
    verified.verify(SMALL)
    assert asked[0].lower is None


def test_a_comparison_that_was_killed_goes_on_from_what_it_kept(
    verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered(verified, 1_000)
    verified.mirror("DELETE FROM {t}.t WHERE id = 5")
    monkeypatch.setattr(target_verify, "_SAVED_EVERY_S", 0.0)
    progress = verified.folder / "artifacts/pipeline/verifications/mirror/progress"
    digest, kept, asked = MySqlSide.digest, dict[Path, bytes](), []

    def watching(self: MySqlSide, part: Any) -> Any:
        asked.append(part)
        if part.lower == ("501",):  # what a SIGKILL here would leave
            kept.update({file: file.read_bytes() for file in progress.glob("*.json")})
        return digest(self, part)

    monkeypatch.setattr(MySqlSide, "digest", watching)
    whole = verified.verify(SMALL).findings
    [(file, content)] = kept.items()
    assert not file.exists(), "the comparison has ended"
    file.write_bytes(content)
    asked.clear()
    assert verified.verify(SMALL).findings == whole
    assert asked[0].lower is not None
    assert (whole.source_rows, whole.missing) == (1_000, 1)


def test_a_load_beside_the_comparison_is_no_difference(verified: Verified, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(verified.rig, LakeRig):
        pytest.skip("one version of the table is compared")
    schema = numbered(verified, 100)
    side: type[Any] = MysqlMirrorSide if isinstance(verified.rig, MysqlRig) else PostgresSide
    rows = side.rows
    verified.mirror("UPDATE {t}.t SET v = 'wrong' WHERE id = 7")

    def loaded_after(self: Any, part: Any) -> Any:
        found = rows(self, part)
        monkeypatch.setattr(side, "rows", rows)
        verified.load(schema, [{"id": 7, "v": "newer"}], Window(100, 200), 150)
        return found

    monkeypatch.setattr(side, "rows", loaded_after)
    found = verified.verify(Pace(1.0, 1_000), at=99).findings
    assert (found.changed, found.newer) == (0, 1)


def test_one_version_of_a_lake_table_is_compared(verified: Verified, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(verified.rig, LakeRig):
        pytest.skip("a database shows the present to each statement")
    schema = numbered(verified, 100)
    digests = LakeSide.digests

    def loaded_before(self: LakeSide, parts: Any) -> Any:
        monkeypatch.setattr(LakeSide, "digests", digests)
        verified.load_rows(schema, [put(150, id=7, v="newer"), delete(151, id=8)], Window(100, 200))
        return digests(self, parts)

    monkeypatch.setattr(LakeSide, "digests", loaded_before)
    first = verified.verify(SMALL, at=99)
    assert (first.outcome, first.findings.mirror_rows, first.findings.newer) == ("equal", 100, 0)
    second = verified.verify(SMALL, at=99)
    assert (second.outcome, second.findings.mirror_rows, second.findings.newer) == ("equal", 99, 2)
    assert first.version not in ("", second.version)


def test_many_differences_are_listed_up_to_a_limit(verified: Verified, monkeypatch: pytest.MonkeyPatch) -> None:
    numbered(verified, 1_000)
    verified.mirror("UPDATE {t}.t SET v = ''")
    monkeypatch.setattr(compare, "MOST_LISTED", 150)
    monkeypatch.setattr(scan, "MOST_LISTED", 150)
    found = verified.verify(SMALL).findings
    in_parts_of_20 = isinstance(verified.rig, LakeRig)
    assert (found.changed, found.unexamined) == ((160, 42) if in_parts_of_20 else (150, 13))
    assert not found.is_equal


def test_the_source_rests_for_its_share_of_the_time(verified: Verified) -> None:
    numbered(verified, 500)
    rests: list[float] = []
    found = verified.verify(Pace(0.25, 100, rests.append)).findings
    assert len(rests) == (10 if isinstance(verified.rig, LakeRig) else found.ranges - 1)
    assert len(rests) >= 4
    assert all(rest > 0 for rest in rests)


def test_a_snapshot_beyond_the_safe_point_is_refused(verified: Verified, monkeypatch: pytest.MonkeyPatch) -> None:
    if verified.source.conn_type == "tidb":
        pytest.skip("TiDB has no SIGNAL")
    numbered(verified, 3)
    gone = Statement("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 8055, MESSAGE_TEXT = 'snapshot is older than GC'")
    monkeypatch.setattr(source_statements, "at_snapshot", lambda tso: gone)
    with pytest.raises(PermanentError, match=r"can no longer be read.*tidb_gc_life_time"):
        verified.verify()


def test_what_can_not_be_compared_is_said(verified: Verified) -> None:
    with pytest.raises(ConfigError, match="has no mirror of"):
        verified.verify()
    numbered(verified, 1)
    with pytest.raises(ConfigError, match=r"mirror has no mirror of other\.\*"):
        verify(verified.context, "mirror", ["other.*"])
    with pytest.raises(ConfigError, match="lake is not a target of the pipeline"):
        verify(verified.context, "lake")


def test_a_report_that_differs_names_its_tables_and_itself(verified: Verified) -> None:
    numbered(verified, 3)
    require_equal(verified.report(), "file:///report")
    verified.mirror("DELETE FROM {t}.t WHERE id = 2")
    with pytest.raises(
        PolicyStopError, match=r"t as of 99 .*: 1 missing, 0 extra, 0 changed rows(.|\n)*file:///report"
    ):
        require_equal(verified.report(), "file:///report")


def test_the_command(verified: Verified, tmp_path: Path) -> None:
    if isinstance(verified.rig, LakeRig):
        pytest.skip("tests/spark/test_verify.py has a real job")
    numbered(verified, 40)
    target = verified.connections["target"]
    connections = tmp_path / "connections.yaml"
    connections.touch(mode=0o600)
    fields = ("conn_type", "host", "port", "login", "password", "schema")
    connections.write_text(
        yaml.safe_dump(
            {
                "kafka": {"conn_type": "kafka"},
                **{
                    each.conn_id: {field: getattr(each, field) for field in fields if getattr(each, field) is not None}
                    for each in (target, verified.source)
                },
            }
        )
    )

    def run(*options: str) -> Any:
        return CliRunner().invoke(app, ["verify", str(verified.file), *options, "--connections", str(connections)])

    equal = run("--share", "1")
    assert equal.exit_code == 0, equal.stderr
    assert "equal" in equal.stdout
    verified.mirror("DELETE FROM {t}.t WHERE id = 7")
    differs = run("--table", f"{verified.database}.t", "--at", "99")
    assert differs.exit_code == 1
    assert "missing" in differs.stdout
    as_json = run("--json")
    assert '"missing":1' in as_json.stdout
    assert list((tmp_path / "artifacts/pipeline/verifications/mirror").glob("*.json"))
    assert run("--share", "0").exit_code == 2
    assert run("--at", "yesterday").exit_code == 2
