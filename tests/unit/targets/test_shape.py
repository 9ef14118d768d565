"""Shapes of tables: what becomes of schemas, DDL and rows, and what of a masked value can be found afterwards."""

import hmac
import json
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.in_process import in_process
from ticdc_replay.changelog.cells.written import written_cell
from ticdc_replay.config.shape import ShapeSection
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError, PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import Column, TableName
from ticdc_replay.schemas.changes import (
    BreakingChange,
    Change,
    ColumnAdded,
    ColumnDropped,
    ColumnRenamed,
    ColumnWidened,
    NoRowChange,
    TableChanges,
    kind_of,
)
from ticdc_replay.storage import open_store
from ticdc_replay.targets.base import LoadReport
from ticdc_replay.targets.load import load
from ticdc_replay.targets.shape import Shape, canonical_text
from ticdc_replay.targets.shaped_load import record_of, renaming_shapes

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=200, declared=True)
SALT = "s" * 32
PEOPLE = table("shop.people", {"id": INT, "email": TEXT, "note": TEXT, "phone": TEXT, "age": TEXT, "internal": TEXT})
ENTRY: dict[str, Any] = {
    "tables": ["shop.*"],
    "exclude": ["inter*"],
    "rename": {"EMAIL": "contact", "id": "person"},
    "cast": {"age": "bigint"},
    "mask": {"email": "hash", "note": "null", "phone": {"fixed": "***"}},
    "salt_connection": "salts",
    "constants": {"_window": "window", "_loaded_at": "loaded_at"},
}
PLANTED = ["plain-email", "plain-note", "plain-phone", "plain-internal", SALT]


def connections(salt: str = SALT) -> Connections:
    return Connections({"salts": Connection("salts", "generic", password=salt)})


def run(changes: Changelog, lake: Path, *shape: dict[str, Any], salt: str = SALT, **options: Any) -> LoadReport:
    target: dict[str, object] = {"type": "parquet", "name": "lake", "uri": lake.as_uri(), "shape": [*shape]}
    return load(changes.job(target, **options), connections(salt), in_process)


def rows_in(lake: Path) -> list[dict[str, Any]]:
    (path,) = lake.glob("pipeline/loads/window=*/run=*.json")
    files = json.loads(path.read_bytes())["changelog"]
    rows = [row for file in files for row in pq.read_table(lake / file["name"], partitioning=None).to_pylist()]
    return sorted(rows, key=lambda row: row["_commit_ts"])


def hashed(text: str) -> str:
    return hmac.digest(SALT.encode(), text.encode(), "sha256").hex()


def shape(**entry: Any) -> Shape:
    return Shape(TableName("shop", "people"), ShapeSection.model_validate(entry), SALT.encode())


@pytest.fixture
def people(tmp_path: Path) -> Changelog:
    rows = [
        put(10, id=1, email="plain-email", note="plain-note", phone="plain-phone", age="41", internal="plain-internal"),
        put(20, id=2, email=None, note=None, phone=None, age="many", internal=None),
        Row("insert", 25, {"id": 3, "age": "5"}, exact={"email": b"plain-email", "internal": b"x"}),
        delete(30, id=2),
    ]
    return Changelog(tmp_path / "artifacts", 0, 100).rows(PEOPLE, rows, files=2)


def test_brackets_in_the_name_of_a_column_are_letters(tmp_path: Path) -> None:
    cards = table("shop.cards", {"id": INT, "card[no]": TEXT, "card[a]x": TEXT, "cardn": TEXT})
    changes = Changelog(tmp_path / "artifacts", 100, 200)
    row = {"id": 1, "card[no]": "plain-email", "card[a]x": "plain-note", "cardn": "stays"}
    changes.rows(cards, [put(110, **row)])
    run(changes, tmp_path / "lake", {"tables": ["shop.*"], "mask": {"card[no]": "null"}, "exclude": ["card[?]*"]})
    (found,) = rows_in(tmp_path / "lake")
    assert found["after"] == {"id": 1, "card[no]": None, "cardn": "stays"}
    other = Changelog(tmp_path / "artifacts", 200, 300)
    other.rows(cards, [put(210, **row)])
    with pytest.raises(ConfigError, match=r"the table has no column card\[number\]"):
        run(other, tmp_path / "other", {"tables": ["shop.*"], "mask": {"card[number]": "null"}})


def test_a_target_has_shaped_rows_and_no_masked_value(people: Changelog, tmp_path: Path) -> None:
    report = run(people, tmp_path / "lake", ENTRY)
    first, second, third, gone = rows_in(tmp_path / "lake")
    assert list(first["after"]) == ["person", "contact", "note", "phone", "age", "_window", "_loaded_at"]
    loaded_at = first["after"].pop("_loaded_at")
    assert loaded_at.tzinfo is not None
    assert first["after"] == {
        "person": 1, "contact": hashed("plain-email"), "note": None, "phone": "***", "age": 41, "_window": "0-100",
    }  # fmt: skip
    assert (second["after"]["contact"], second["after"]["phone"], second["after"]["age"]) == (None, None, None)
    assert second["_exact"] == [("after.age", b"many")]
    assert (third["after"]["contact"], third["_exact"]) == (hashed("plain-email"), None)
    assert gone["before"]["person"] == 2
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "runs/" not in str(path.relative_to(tmp_path))]
    assert files
    for path in files:
        content = (
            repr(pq.read_table(path, partitioning=None).to_pylist()) if path.suffix == ".parquet" else path.read_text()
        )
        assert not [word for word in PLANTED if word in content or word in str(report)], path
    assert not [*(tmp_path / "artifacts").rglob("loads/**/shaped/**/*.parquet")], "copies of the attempt stay"


@pytest.mark.parametrize("entry", [{"mask": {"emial": "null"}}, {"exclude": ["emial"]}], ids=str)
def test_a_name_that_no_column_has_stops_also_where_rows_alone_show_the_columns(
    tmp_path: Path, entry: dict[str, Any]
) -> None:
    """A table from before the changefeed has no definition. Of a delete the wire may have the key alone."""
    changes = Changelog(tmp_path / "artifacts", 0, 100)
    changes.rows(table("shop.people", {"id": ColumnType("bigint")}), [delete(5, id=1), delete(6, id=2)], files=2)
    run(changes, tmp_path / "lake", {"mask": {"email": "null"}})
    wire = table("shop.people", {"id": ColumnType("bigint"), "email": ColumnType("varchar")})
    window = Changelog(tmp_path / "artifacts", 100, 200)
    window.rows(wire, [delete(110, id=1), put(120, id=2, email="plain-email")], files=2)
    with pytest.raises(ConfigError, match="the table has no column emial; correct the name"):
        run(window, tmp_path / "other", entry)
    assert not (tmp_path / "other").exists()
    run(window, tmp_path / "other", {"mask": {"email": "null"}})


def test_a_ddl_that_gives_a_table_another_name_shows_no_default_of_it(tmp_path: Path) -> None:
    """Its event is of the new name, which the load does not want."""
    changes = Changelog(tmp_path / "artifacts", 0, 100).rows(PEOPLE, [put(10, id=1)])
    ddl = "ALTER TABLE people ADD COLUMN internal2 VARCHAR(20) DEFAULT 'plain-internal', RENAME TO clients"
    changes.ddl(50, ddl, table="shop.clients")
    run(changes, tmp_path / "lake", ENTRY, tables=("shop.people",))
    found = [path for path in (tmp_path / "lake").rglob("*.json") if "clients" in path.read_text()]
    assert found
    assert not [path for path in found if "plain-internal" in path.read_text()]


def test_another_shape_or_salt_is_refused_once_there_are_rows(people: Changelog, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(people, lake, ENTRY)
    run(people, lake, ENTRY, reload=True)
    with pytest.raises(TargetMismatchError, match="mirror forget"):
        run(people, lake, {**ENTRY, "exclude": []}, reload=True)
    with pytest.raises(TargetMismatchError, match="another salt"):
        run(people, lake, ENTRY, salt="t" * 32, reload=True)
    with pytest.raises(TargetMismatchError, match="shape"):
        run(people, lake, reload=True)


def test_a_short_salt_is_refused(people: Changelog, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 16 bytes"):
        run(people, tmp_path / "lake", ENTRY, salt="short")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"exclude": ["id"]}, "part of the key"),
        ({"mask": {"id": "null"}}, "part of the key"),
        ({"mask": {"id": {"fixed": "x"}}}, "part of the key"),
        ({"cast": {"id": "decimal(10,2)"}}, "part of the key"),
        ({"cast": {"note": "double"}}, "without loss"),
        ({"include": ["emial"]}, "no column emial"),
        ({"mask": {"emial": "null"}}, "no column emial"),
        ({"rename": {"note": "email"}}, "two columns"),
        ({"constants": {"note": "run"}}, "two columns"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        shape(**entry).schema(PEOPLE)


@pytest.mark.parametrize(
    "entry",
    [
        {"mask": {"email": "hash"}},
        {"salt_connection": "salts"},
        {"cast": {"a": "varchar(3)"}},
        {"cast": {"a": "decimal(3,4)"}},
        {"rename": {"a": "x", "b": "X"}},
        {"rename": {"a": "x", "A": "y"}},
    ],
)
def test_a_section_that_means_nothing_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        ShapeSection.model_validate(entry)


@pytest.mark.parametrize(("first", "second"), [(None, "shop.people"), ("shop.*", "Shop.p*")])
def test_an_entry_that_an_earlier_one_hides_is_refused(tmp_path: Path, first: str | None, second: str) -> None:
    """It would mask nothing."""
    earlier = {"constants": {"_at": "loaded_at"}} | ({} if first is None else {"tables": [first]})
    later = {"tables": ["store.people", second], "mask": {"email": "null"}}
    target = {"type": "parquet", "name": "lake", "uri": tmp_path.as_uri()}
    with pytest.raises(ConfigError, match=r"`shape`.*an earlier entry"):
        read_section({**target, "shape": [earlier, later]})
    read_section({**target, "shape": [later, earlier]})


def test_a_key_is_renamed_and_hashed() -> None:
    made = shape(rename={"id": "person"}, mask={"id": "hash"}, salt_connection="salts")
    assert made.schema(PEOPLE).handle_key == ("person",)
    cells = made.key({"id": written_cell("7", INT, "UTC")})
    assert {name: cell.array.to_pylist() for name, cell in cells.items()} == {"person": [hashed("7")]}


@pytest.mark.parametrize("names", [("email", "mail"), ("internal", "visible"), ("other", "internal_3")])
def test_a_rename_to_a_name_that_is_treated_in_another_way_stops_every_kind_of_target(names: tuple[str, str]) -> None:
    with pytest.raises(PolicyStopError, match="let a pattern of `shape` match both names"):
        shape(**ENTRY).changes(TableChanges(PEOPLE.name, 5, (ColumnRenamed(*names),)))


HASHED = ColumnType("char", length=64, declared=True)
EMAIL, NEW = Column("email", TEXT), Column("internal_2", TEXT)
OTHER_TYPE = BreakingChange("x", "column_changed", column=Column("other", INT))
CHANGES: list[tuple[Change, Change | str]] = [
    (ColumnAdded(NEW, "x", True), "no_row_change"),
    (ColumnAdded(Column("email", TEXT), "x", True), ColumnAdded(Column("contact", HASHED), hashed("x"), True)),
    (ColumnWidened(EMAIL, Column("email", ColumnType("varchar", length=300, declared=True))), "no_row_change"),
    (ColumnWidened(Column("internal", TEXT), Column("internal", INT)), "no_row_change"),
    (ColumnDropped("email", 5), ColumnDropped("contact", 5)),
    (ColumnDropped("internal"), "no_row_change"),
    (ColumnRenamed("internal", "internal_2"), "no_row_change"),
    (ColumnRenamed("other", "another"), ColumnRenamed("other", "another")),
    (NoRowChange("x"), NoRowChange("x")),
    (BreakingChange("x", "column_changed", column=Column("internal", INT)), "no_row_change"),
    (BreakingChange("x", "column_changed", column=Column("phone", INT)), "no_row_change"),
    (BreakingChange("x", "column_changed", column=Column("note", INT)), "column_changed"),
    (BreakingChange("x", "column_changed", column=Column("age", INT)), "column_changed"),
    (OTHER_TYPE, OTHER_TYPE),
    (BreakingChange("x", "column_changed"), "column_changed"),
    (BreakingChange("x", "column_narrowed", column=Column("internal", INT)), "no_row_change"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_ddl_changes_what_the_target_has(change: Change, expected: Change | str) -> None:
    (made,) = shape(**ENTRY).changes(TableChanges(PEOPLE.name, 5, (change,))).changes
    assert expected == (kind_of(made) if isinstance(expected, str) else made)


@pytest.mark.parametrize(("fill", "known"), [("x", True), (None, False)], ids=["default", "computed"])
def test_a_column_that_is_masked_by_null_is_added_as_null_whatever_its_default(fill: str | None, known: bool) -> None:
    added = TableChanges(PEOPLE.name, 5, (ColumnAdded(Column("note", TEXT, nullable=False), fill, known),))
    (made,) = shape(**ENTRY).changes(added).changes
    assert isinstance(made, ColumnAdded)
    assert (made.fill, made.fill_known) == (None, True)


def test_defaults_are_written_as_rows_are() -> None:
    made = shape(tables=["*.*"], mask={"n": "hash"}, cast={"m": "text"}, salt_connection="salts")
    added = TableChanges(
        PEOPLE.name, 5, (ColumnAdded(Column("n", INT), "007", True), ColumnAdded(Column("m", INT), "-0", True))
    )
    assert [change.fill for change in made.changes(added).changes if isinstance(change, ColumnAdded)] == [
        hashed("7"),
        "0",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("1.50", ColumnType("decimal", length=10, scale=2)), ("1.5000", ColumnType("decimal", length=14, scale=4))),
        (("100", ColumnType("decimal", length=10, scale=0)), ("100.0", ColumnType("decimal", length=14, scale=1))),
        (("0.5", ColumnType("float")), ("0.5", ColumnType("double"))),
    ],
)
def test_a_hash_outlives_a_wider_type(one: tuple[str, ColumnType], other: tuple[str, ColumnType]) -> None:
    made = shape(tables=["*.*"], mask={"id": "hash"}, salt_connection="salts")
    hashes = [made.key({"id": written_cell(*each, "UTC")})["id"].array.to_pylist() for each in (one, other)]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    ("text", "base", "hashed_text"),
    [
        ("1", "double", "1.0"),
        ("1e22", "double", "1e+22"),
        ("0.1", "float", "0.10000000149011612"),
        ("-0", "double", "0.0"),
    ],
)
def test_floats_are_hashed_by_the_text_that_the_documents_give(text: str, base: Any, hashed_text: str) -> None:
    made = shape(tables=["*.*"], mask={"v": "hash"}, salt_connection="salts")
    found = made.key({"v": written_cell(text, ColumnType(base, declared=True), "UTC")})
    assert found["v"].array.to_pylist() == [hashed(hashed_text)]


@pytest.mark.parametrize("wire", ["0000-00-00 00:00:00.000", "0000-00-00 00:00:00"])
def test_a_hashed_zero_date_has_one_hash_whatever_text_the_wire_has(tmp_path: Path, wire: str) -> None:
    moment = ColumnType("datetime", scale=3, declared=True)
    entry = {"mask": {"at": "hash"}, "salt_connection": "salts"}
    changelog = Changelog(tmp_path / "artifacts", 0, 100)
    row = put(10, at=None)._replace(exact={"at": wire.encode()})
    run(changelog.rows(table("shop.people", {"at": moment}, key=("at",)), [row]), tmp_path / "lake", entry)
    (found,) = rows_in(tmp_path / "lake")
    key = shape(**entry).key({"at": written_cell("0000-00-00 00:00:00.0", moment, "UTC")})
    assert found["after"]["at"] == key["at"].array[0].as_py() == hashed("0000-00-00 00:00:00")


@pytest.mark.parametrize(
    ("text", "base", "cast"),
    [
        ("0.0010", ColumnType("decimal", length=10, scale=4), "decimal(10,1)"),
        ("0.00001000", ColumnType("decimal", length=20, scale=8), "decimal(20,2)"),
        *[(text, TEXT, "bigint") for text in ("1_000", " 12 ", "１２", "1e3", "007", "+5", "-0", "")],
        *[
            (text, TEXT, "datetime")
            for text in ("2024-01-02T03:04:05,1234567", "2024-W01-2", "20240102", "2024-01-02 03:04")
        ],
        ("2024-01-02 03:04:05", TEXT, "date"),
    ],
)
def test_a_cast_that_would_lose_something_leaves_the_text(text: str, base: ColumnType, cast: str) -> None:
    cell = shape(tables=["*.*"], cast={"v": cast}).key({"v": written_cell(text, base, "UTC")})["v"]
    assert (cell.array.to_pylist(), cell.exact) == ([None], text)


def test_text_of_ddl_is_not_shown() -> None:
    change = BreakingChange("a DDL that is not understood: DEFAULT 'plain-note'")
    (made,) = shape(**ENTRY).changes(TableChanges(PEOPLE.name, 5, (change,))).changes
    assert "plain-note" not in str(made)
    assert kind_of(made) == "not_understood"


@pytest.mark.parametrize(
    ("value", "column_type", "text"),
    [
        (5, INT, "5"),
        (Decimal("1.50"), ColumnType("decimal", length=5, scale=2), "1.50"),
        (datetime(2024, 1, 2, 3, 4, 5, 600_000), ColumnType("datetime"), "2024-01-02 03:04:05.6"),
        (datetime(2024, 1, 2), ColumnType("datetime"), "2024-01-02 00:00:00"),
        (date(2024, 1, 2), ColumnType("date"), "2024-01-02"),
        (-3_600_500_000, ColumnType("time"), "-01:00:00.5"),
        (-0.0, ColumnType("double"), "0"),
        (0.1, ColumnType("float"), "0.1"),
        (b"\xff", ColumnType("blob"), None),
    ],
)
def test_one_value_has_one_text(value: Any, column_type: ColumnType, text: str | None) -> None:
    assert canonical_text(value, column_type) == (b"\xff" if text is None else text.encode())


@pytest.mark.parametrize(
    ("before", "cast", "value", "expected"),
    [
        (TEXT, "bigint", "12", 12),
        (TEXT, "bigint", "1.5", None),
        (TEXT, "bigint", str(2**63), None),
        (TEXT, "decimal(5,2)", "123.45", Decimal("123.45")),
        (TEXT, "decimal(5,2)", "1.455", None),
        (TEXT, "decimal(5,2)", "1234", None),
        (INT, "double", 2**53 + 1, None),
        (INT, "text", 7, "7"),
        (TEXT, "date", "2024-01-02", date(2024, 1, 2)),
        (TEXT, "date", "2024-01-02 00:00:01", None),
        (TEXT, "datetime", "2024-01-02T03:04:05", datetime(2024, 1, 2, 3, 4, 5)),
        (TEXT, "datetime", "2024-01-02T03:04:05+01:00", None),
    ],
)
def test_a_cast_loses_nothing(tmp_path: Path, before: ColumnType, cast: str, value: Any, expected: Any) -> None:
    schema = table("shop.people", {"id": INT, "v": before})
    changes = Changelog(tmp_path / "artifacts", 0, 100).rows(schema, [put(10, id=1, v=value)])
    run(changes, tmp_path / "lake", {"cast": {"v": cast}})
    (row,) = rows_in(tmp_path / "lake")
    assert row["after"]["v"] == expected
    assert row["_exact"] == (None if expected is not None else [("after.v", str(value).encode())])


@pytest.mark.parametrize("base", ["enum", "set"])
@pytest.mark.parametrize(
    "entry", [{"cast": {"v": "text"}}, {"mask": {"v": "hash"}, "salt_connection": "salts"}], ids=["cast", "hash"]
)
def test_a_number_does_not_pass_for_a_name(tmp_path: Path, base: Any, entry: dict[str, Any]) -> None:
    """Where a definition is known, rows have names, and otherwise numbers: both are texts in the target."""
    named = table("shop.people", {"id": INT, "v": ColumnType(base, elements=("a", "b"), declared=True)})
    run(Changelog(tmp_path / "artifacts", 0, 100).rows(named, [put(10, id=1, v="b")]), tmp_path / "lake", entry)
    unnamed = table("shop.people", {"id": ColumnType("bigint"), "v": ColumnType(base)})
    window = Changelog(tmp_path / "artifacts", 100, 200).rows(unnamed, [put(110, id=1, v=2)])
    with pytest.raises(ConfigError, match=r"the names of v, of type .*, are unknown"):
        run(window, tmp_path / "lake", entry)
    assert not [*(tmp_path / "lake").rglob("window=100-200*")]
    run(window, tmp_path / "other", {"mask": {"v": "null"}})


def test_the_shape_in_the_documents_is_one() -> None:
    document = Path("docs/targets.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(shape:\n.*?)```", document, flags=re.DOTALL)
    (entry,) = yaml.safe_load(text)["shape"]
    assert ShapeSection.model_validate(entry).mask["email"] == "hash"


def test_a_target_without_shape_leaves_no_record(people: Changelog, tmp_path: Path) -> None:
    run(people, tmp_path / "lake")
    assert not (tmp_path / "artifacts/shapes").exists()


RECORD = {"columns": {"v": ["v", "mask", None, None]}, "constants": {}, "key": ["v"], "salt": "one"}
STALE = {
    "columns": {"v": ["v", "hash", None, None], "w": ["w", "hash", None, None]},
    "constants": {},
    "key": ["w"],
    "salt": "two",
}


@pytest.mark.parametrize(
    ("renames", "kept"),
    [({"s.t": "s.u"}, ["s.u"]), ({"s.t": "s.T"}, ["s.t"]), ({"s.t": "s.u", "s.u": "s.t"}, ["s.t", "s.u"])],
    ids=["renamed", "another case", "swapped"],
)
def test_a_record_goes_with_its_table_to_another_name(tmp_path: Path, renames: dict[str, str], kept: list[str]) -> None:
    store = open_store(tmp_path.as_uri())
    section = read_section({"type": "parquet", "name": "lake", "uri": (tmp_path / "lake").as_uri()})
    names = {TableName(*old.split(".")): TableName(*new.split(".")) for old, new in renames.items()}
    for name in set(names.values()) - set(names):  # of a table of that name that is gone
        store.put(record_of(section, name), json.dumps(STALE).encode())
    for name in names:
        store.put(record_of(section, name), json.dumps(RECORD).encode())
    with renaming_shapes(store, section, names):
        assert all(json.loads(store.get(record_of(section, name))) == RECORD for name in names.values())
    assert {info.name for info in store.list()} == {record_of(section, TableName(*name.split("."))) for name in kept}
    assert all(json.loads(store.get(info.name)) == RECORD for info in store.list())
