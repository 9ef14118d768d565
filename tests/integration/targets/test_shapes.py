"""Shaped mirrors of every kind: what their tables have, whatever the order of windows, and after DDL."""

import hmac
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.support.changelogs import Changelog, base, delete, put, table
from tests.support.target_rigs import LakeRig, MirrorRig
from ticdc_replay.changelog.cells.written import written_cell
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import (
    ConfigError,
    PolicyStopError,
    TargetMismatchError,
    TransientError,
    UnrepresentableValueError,
)
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.alter import alter
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.schemas.ddl.statements import RenameColumn
from ticdc_replay.schemas.former_names import former_names
from ticdc_replay.storage import open_store
from ticdc_replay.targets.base import Load, ReplaceableMirror, StoppingDdl
from ticdc_replay.targets.load import open_target
from ticdc_replay.targets.shaped_load import shape_in, shape_of, shaped

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=40, declared=True)
SALT = "0123456789abcdef"
COLUMNS = {"id": INT, "email": TEXT, "age": TEXT, "secret": TEXT}
PEOPLE = table("shop.people", COLUMNS)
KNOWN = definition_from_sql(
    TableName("shop", "people"),
    "CREATE TABLE people (id BIGINT PRIMARY KEY, email VARCHAR(40), age VARCHAR(40), secret VARCHAR(40))",
)
ADDED = "ALTER TABLE people ADD COLUMN secret2 VARCHAR(40), ADD COLUMN city VARCHAR(40) DEFAULT 'x'"
SHAPE: dict[str, Any] = {
    "exclude": ["secret*"],
    "rename": {"email": "contact"},
    "cast": {"age": "bigint"},
    "mask": {"email": "hash", "id": "hash"},
    "salt_connection": "salts",
    "constants": {"_window": "window"},
}


@pytest.fixture
def shaped_mirror(any_mirror: MirrorRig) -> MirrorRig:
    """A mirror of each kind with a shape."""
    any_mirror.section |= {"shape": [SHAPE]}
    by_id = {**any_mirror.connections.by_id, "salts": Connection("salts", "generic", password=SALT)}
    any_mirror.connections = msgspec.structs.replace(any_mirror.connections, by_id=by_id)
    return any_mirror


def hashed(text: str) -> str:
    return hmac.digest(SALT.encode(), text.encode(), "sha256").hex()


def person(commit_ts: int, id: int, age: str, **cells: Any) -> Any:
    return put(commit_ts, id=id, email=f"plain-{id}", age=age, secret="plain", **cells)


def windows(artifacts: Path) -> list[Changelog]:
    added = table("shop.people", {**COLUMNS, "secret2": TEXT, "city": TEXT}, valid_from=150)
    return [
        Changelog(artifacts, 0, 100).rows(PEOPLE, [person(10, 1, "1"), person(10, 2, "2"), person(10, 3, "3")]),
        Changelog(artifacts, 100, 200)
        .knows(KNOWN)
        .ddl(150, ADDED, table="shop.people")
        .rows(PEOPLE, [delete(110, id=2)])
        .rows(added, [person(160, 4, "4", city="y")]),
        Changelog(artifacts, 200, 300).rows(added, [person(210, 1, "11", city="z")]),
    ]  # fmt: skip


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[::2], ids=str)
def test_windows_in_any_order_give_one_shaped_mirror(
    shaped_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]
) -> None:
    all_windows = windows(artifacts)
    shaped_mirror.load_all(all_windows[at] for at in order)
    found = shaped_mirror.rows("SELECT id, contact, age, _window, city, _commit_ts FROM shop.people")
    assert sorted(found, key=lambda row: row[2]) == [
        (hashed("3"), hashed("plain-3"), 3, "0-100", "x", 10),
        (hashed("4"), hashed("plain-4"), 4, "100-200", "y", 160),
        (hashed("1"), hashed("plain-1"), 11, "200-300", "z", 210),
    ]
    assert "plain" not in str(shaped_mirror.rows("SELECT * FROM shop.people"))
    assert not [*artifacts.glob("loads/**/shaped/**/*.parquet")]


def test_a_base_is_shaped(shaped_mirror: MirrorRig, artifacts: Path) -> None:
    shaped_mirror.load(base(artifacts, 50).rows(PEOPLE, [put(50, op="upsert", **person(50, 1, "1").cells)]))
    assert shaped_mirror.rows("SELECT id, contact, age FROM shop.people") == [(hashed("1"), hashed("plain-1"), 1)]


def test_a_cast_without_result_stops_or_is_set_aside(shaped_mirror: MirrorRig, artifacts: Path) -> None:
    changelog = Changelog(artifacts, 0, 100).rows(PEOPLE, [person(10, 1, "1"), person(10, 2, "old")])
    with pytest.raises(UnrepresentableValueError, match="age") as stop:
        shaped_mirror.load(changelog)
    assert "plain" not in str(stop.value)
    report = shaped_mirror.load_table(changelog, target_value="quarantine")
    assert (report.upserted, report.quarantined) == (1, 1)
    for file in artifacts.glob("loads/**/*"):
        assert not file.is_file() or b"plain" not in file.read_bytes(), file


def test_a_rename_that_would_unmask_stops(shaped_mirror: MirrorRig, artifacts: Path) -> None:
    shaped_mirror.load(windows(artifacts)[0])
    renamed = table("shop.people", {"id": INT, "mail": TEXT, "age": TEXT, "secret": TEXT}, valid_from=150)
    ddl = "ALTER TABLE people RENAME COLUMN email TO mail"
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ddl, table="shop.people")
    with pytest.raises(PolicyStopError, match="treats in another way"):
        shaped_mirror.load(window)
    later = Changelog(artifacts, 200, 300).rows(renamed, [put(210, id=1, mail="plain-1", age="1", secret="plain")])
    with pytest.raises(ConfigError, match="no column email"):
        shaped_mirror.load(later)
    assert "plain" not in str(shaped_mirror.rows("SELECT * FROM shop.people"))


@pytest.mark.parametrize("mode", [None, "history"])
@pytest.mark.parametrize(
    ("ddl", "later"),
    [
        ("ALTER TABLE people RENAME COLUMN secret TO private", "shop.people"),
        ("RENAME TABLE people TO clients", "shop.clients"),
    ],
    ids=["column", "table"],
)
def test_no_later_window_unmasks_what_was_renamed(
    any_mirror: MirrorRig, mode: str | None, ddl: str, later: str, artifacts: Path
) -> None:
    """Until the shape treats both names alike, whether or not the window of the RENAME was loaded."""
    if mode is not None:
        any_mirror.section["mode"] = mode
    entry = {"tables": ["shop.people"], "mask": {"*secret": {"fixed": "***"}}}
    any_mirror.section["shape"] = [entry]
    any_mirror.load(windows(artifacts)[0])
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ddl, table=later)
    name = "private" if later == "shop.people" else "secret"
    columns = {"id": INT, "email": TEXT, "age": TEXT, name: TEXT}
    renamed = table(later, columns, valid_from=150, since={"private": 150})
    rows = Changelog(artifacts, 200, 300).rows(
        renamed, [put(210, id=1, email="e", age="1", **{name: "not to be seen"})]
    )
    known = tuple(former_names(window.write().changes))
    for _ in range(2):
        with pytest.raises(PolicyStopError, match="treats in another way"):
            any_mirror.load(rows, former_names=known)
        with pytest.raises(PolicyStopError, match="treats in another way"):
            any_mirror.load(window, former_names=known)
    any_mirror.section["shape"] = [
        {**entry, "tables": ["shop.*"], "mask": {"*secret": {"fixed": "***"}, "priv*": {"fixed": "***"}}}
    ]
    if mode is None and later == "shop.people":
        any_mirror.load(window, former_names=known)
    any_mirror.load(rows, former_names=known)
    assert "seen" not in str(any_mirror.rows(f"SELECT * FROM {later}"))
    any_mirror.section["shape"] = [
        {**entry, "tables": ["shop.*"], "mask": {"secre*": {"fixed": "***"}, "priv*": {"fixed": "***"}}}
    ]
    any_mirror.load(rows, former_names=known, reload=True)


HIDDEN: dict[str, Any] = {"mask": {"*secret": {"fixed": "***"}}}
OWN = {"tables": ["shop.clients"], "mask": {"email*": "null"}}
RENAMES = ("ALTER TABLE people RENAME COLUMN secret TO private", "RENAME TABLE people TO clients")


@pytest.mark.parametrize(
    ("entries", "ddls", "column"),
    [
        ([HIDDEN], RENAMES, "private"),
        ([{"mask": {**HIDDEN["mask"], "email*": "null"}}, OWN], RENAMES, "private"),
        ([{"include": ["id", "email", "age", "secret"]}], RENAMES[1:], "ssn"),
        ([{"mask": {"*phone": "null"}}], RENAMES[1:], "phone"),
    ],
    ids=["column and table", "with an entry of its own", "include", "pattern"],
)
def test_a_renamed_table_shows_nothing_that_its_old_name_hides(
    any_mirror: MirrorRig, entries: list[dict[str, Any]], ddls: tuple[str, ...], column: str, artifacts: Path
) -> None:
    any_mirror.section["shape"] = [{"tables": ["shop.people"], **entry} for entry in entries]
    any_mirror.load(windows(artifacts)[0])
    window = Changelog(artifacts, 100, 200).knows(KNOWN)
    for at, ddl in enumerate(ddls, 150):
        window.ddl(at, ddl, table="shop.clients" if "clients" in ddl else "shop.people")
    known = tuple(former_names(window.write().changes))
    renamed = table("shop.clients", {"id": INT, "email": TEXT, "age": TEXT, column: TEXT}, valid_from=151)
    rows = [put(210, id=1, email="e", age="1", **{column: "not to be seen"})]
    with pytest.raises(PolicyStopError, match="treats in another way"):
        any_mirror.load(Changelog(artifacts, 200, 300).rows(renamed, rows), former_names=known)


@pytest.mark.parametrize("name", ["people", "shop.people"])
@pytest.mark.parametrize(
    ("known", "action"),
    [((KNOWN,), "SOFTDELETE = 'ON'"), ((), "SOFTDELETE = 'ON'"), ((KNOWN,), "DROP COLUMN unknown")],
    ids=["known", "unknown", "inconsistent"],
)
def test_a_rename_in_a_ddl_that_is_not_understood_unmasks_nothing(
    any_mirror: MirrorRig, known: tuple[TableDefinition, ...], action: str, name: str, artifacts: Path
) -> None:
    any_mirror.section |= {"mode": "history", "shape": [{"tables": ["shop.people"], **HIDDEN}]}
    any_mirror.load(windows(artifacts)[0])
    ddl = f"ALTER TABLE {name} {action}, RENAME TO clients"
    window = Changelog(artifacts, 100, 200).knows(*known).ddl(150, ddl, table="shop.clients")
    window.rows(table("shop.clients", COLUMNS, valid_from=150), [person(160, 1, "1")])
    later = Changelog(artifacts, 200, 300)
    later.rows(table("shop.clients", COLUMNS, valid_from=150), [person(210, 1, "1")])
    names = tuple(former_names(window.write().changes))
    for changelog in (window, later):
        with pytest.raises(PolicyStopError, match="in another way: let one entry of `shape` match both names"):
            any_mirror.load(changelog, former_names=names)
    any_mirror.section["shape"] = [{"tables": ["shop.people", "shop.clients"], **HIDDEN}]
    any_mirror.load_all([window, later], former_names=names)
    assert "plain" not in str(any_mirror.rows("SELECT secret FROM shop.clients"))


HALF = ("RENAME TABLE people TO archive.people", "ALTER TABLE people RENAME TO archive.people")


@pytest.mark.parametrize("ddl", HALF)
@pytest.mark.parametrize("known", [(KNOWN,), ()], ids=["known", "unknown"])
def test_a_rename_that_leaves_out_the_old_schema_unmasks_nothing(
    any_mirror: MirrorRig, known: tuple[TableDefinition, ...], ddl: str, artifacts: Path
) -> None:
    """Its event has the new name alone. A person can tell that it was another table."""
    entry = {"tables": ["shop.people"], **HIDDEN}
    any_mirror.section |= {"mode": "history", "shape": [entry]}
    any_mirror.load(windows(artifacts)[0])
    window = Changelog(artifacts, 100, 200).knows(*known).ddl(150, ddl, table="archive.people")
    renamed = table("archive.people", COLUMNS, valid_from=150)
    later = Changelog(artifacts, 200, 300).rows(renamed, [person(210, 1, "1")])
    names = tuple(former_names(window.write().changes))
    for changelog in (window, later):
        with pytest.raises(PolicyStopError, match=r"people, of a schema that the DDL leaves out.*match both names"):
            any_mirror.load(changelog, former_names=names)
    any_mirror.load(later, {"shape": [entry, {"tables": ["archive.people"]}]}, former_names=names)
    assert any_mirror.rows("SELECT id, secret FROM archive.people") == [(1, "plain")]
    any_mirror.load(later, {"shape": []}, former_names=names, reload=True)


def test_a_rename_that_leaves_out_the_old_schema_keeps_what_is_masked(any_mirror: MirrorRig, artifacts: Path) -> None:
    any_mirror.section |= {"mode": "history", "shape": [{"tables": ["*.people"], **HIDDEN}]}
    any_mirror.load(windows(artifacts)[0])
    window = Changelog(artifacts, 100, 200).ddl(150, HALF[0], table="archive.people")
    window.rows(table("archive.people", COLUMNS, valid_from=150), [person(160, 1, "1")])
    any_mirror.load(window, former_names=tuple(former_names(window.write().changes)))
    assert any_mirror.rows("SELECT secret FROM archive.people WHERE id IS NOT NULL") == [("***",)]


@pytest.mark.parametrize(
    ("ddl", "new"),
    [
        ("ALTER TABLE people ADD COLUMN a VARCHAR(9) DEFAULT 'plain', SOFTDELETE = 'ON', RENAME TO clients", "shop.clients"),
        ("ALTER TABLE people ADD COLUMN a VARCHAR(9) DEFAULT 'plain', RENAME TO archive.clients", "archive.clients"),
    ],
    ids=["not understood", "without schema"],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["mirror", "history"])
def test_a_ddl_that_may_be_of_a_masked_table_shows_no_text(
    any_mirror: MirrorRig, mode: str, ddl: str, new: str, artifacts: Path
) -> None:
    """Its event is of the new name, which has no shape, or of which a person has said so."""
    any_mirror.section |= {"mode": mode, "shape": [{"tables": ["shop.people"], **HIDDEN}, {"tables": [new]}]}
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(199, ddl, table=new)
    window.rows(table(new, {"id": INT}), [put(160, id=1)])
    if mode == "mirror":
        with pytest.raises(PolicyStopError, match=r"not understood \(not shown") as stop:
            any_mirror.load(window)
        assert "plain" not in str(stop.value)
        return
    assert "plain" not in str(any_mirror.load(window))
    found = str(any_mirror.rows(f"SELECT * FROM {new}"))
    assert "not shown" in found
    assert "plain" not in found


@pytest.mark.parametrize(
    "action",
    [
        "ADD PARTITION (PARTITION p1 VALUES IN ('plain'))",
        "LAST PARTITION LESS THAN ('plain')",
        "FIRST PARTITION LESS THAN ('plain')",
    ],
)
def test_a_ddl_of_partitions_shows_no_value(any_mirror: MirrorRig, action: str, artifacts: Path) -> None:
    """What it did is listed beside the rows."""
    any_mirror.section |= {"mode": "history", "shape": [{"mask": {"email": "null", "*secret": "null"}}]}
    window = Changelog(artifacts, 100, 200).knows(KNOWN).rows(PEOPLE, [person(110, 1, "1")])
    any_mirror.load(window.ddl(150, f"ALTER TABLE people {action}", table="shop.people"))
    found = str(any_mirror.rows("SELECT * FROM shop.people"))
    assert "partition" in found
    assert "plain" not in found


@pytest.mark.parametrize("entry", [None, {"mask": {"email*": "null"}}], ids=["no entry", "another entry"])
@pytest.mark.parametrize("back", ["", "RECOVER TABLE people", "FLASHBACK TABLE people TO people"])
def test_what_a_column_was_under_its_old_name_is_for_ever(
    any_mirror: MirrorRig, entry: dict[str, Any] | None, back: str, artifacts: Path
) -> None:
    any_mirror.section |= {
        "mode": "history",
        "shape": [{"mask": {**HIDDEN["mask"], **(entry or {"mask": {}})["mask"]}}],
    }
    any_mirror.load(windows(artifacts)[0])
    window = Changelog(artifacts, 100, 200).knows(KNOWN)
    for at, ddl in enumerate([RENAMES[0], "DROP TABLE people", back] if back else [RENAMES[0]], 150):
        window.ddl(at, ddl, table="shop.people")
    any_mirror.section["shape"] = [] if entry is None else [entry]
    columns = {"id": INT, "email": TEXT, "age": TEXT, "private": TEXT}
    renamed = table("shop.people", columns, valid_from=152, since={"private": 150})
    later = Changelog(artifacts, 200, 300).rows(renamed, [put(210, id=1, email="e", age="1", private="not to be seen")])
    with pytest.raises(PolicyStopError, match="treats in another way"):
        any_mirror.load(later, former_names=tuple(former_names(window.write().changes)))


def test_a_column_of_unknown_type_is_not_unmasked_by_a_change_of_its_name(
    any_mirror: MirrorRig, artifacts: Path
) -> None:
    """As of a table that was there before the changefeed: no DDL told its definition."""
    any_mirror.section |= {"mode": "history", "shape": [HIDDEN]}
    any_mirror.load(windows(artifacts)[0])
    window = Changelog(artifacts, 100, 200)
    window.ddl(150, "ALTER TABLE people CHANGE COLUMN secret private VARCHAR(40)", table="shop.people")
    columns = dict.fromkeys(("email", "age", "private"), ColumnType("varchar"))
    renamed = table("shop.people", {"id": ColumnType("bigint"), **columns})
    later = Changelog(artifacts, 200, 300).rows(renamed, [put(210, id=1, email="e", age="1", private="not to be seen")])
    known = tuple(former_names(window.write().changes))
    for changelog in (window, later):
        with pytest.raises(PolicyStopError, match="the column secret was renamed to private"):
            any_mirror.load(changelog, former_names=known)


def test_a_rename_to_the_name_that_the_target_has_changes_nothing(any_mirror: MirrorRig, artifacts: Path) -> None:
    any_mirror.section["shape"] = [{"rename": {"email": "contact"}}]
    columns = {"id": INT, "contact": TEXT, "age": TEXT, "secret": TEXT}
    renamed = table("shop.people", columns, valid_from=150, since={"contact": 150})
    dropped = table("shop.people", {"id": INT, "age": TEXT, "secret": TEXT}, valid_from=350)
    defined = alter(KNOWN, [RenameColumn("email", "contact")], 150)

    def plain(commit_ts: int, id: int) -> Any:
        return put(commit_ts, id=id, contact=f"plain-{id}", age="1", secret="s")

    all_windows = [
        windows(artifacts)[0],
        Changelog(artifacts, 100, 200)
        .knows(KNOWN)
        .ddl(150, "ALTER TABLE people RENAME COLUMN email TO contact", table="shop.people")
        .rows(PEOPLE, [person(110, 4, "4")])
        .rows(renamed, [plain(160, 5)]),
        Changelog(artifacts, 200, 300).rows(renamed, [plain(210, 6)]),
    ]
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        any_mirror.section["schema"] = f"ordered_{''.join(map(str, order))}"
        any_mirror.load_all(all_windows[at] for at in order)
        found = any_mirror.rows(f"SELECT id, contact FROM {any_mirror.section['schema']}.people ORDER BY id")
        assert found == [(id, f"plain-{id}") for id in range(1, 7)], order
    window = Changelog(artifacts, 300, 400).knows(defined)
    window.ddl(350, "ALTER TABLE people DROP COLUMN contact", table="shop.people")
    any_mirror.load(window.rows(dropped, [put(360, id=7, age="1", secret="s")]), drop="apply")
    any_mirror.load(all_windows[0], reload=True)
    assert len(any_mirror.rows("SELECT id, age, secret FROM ordered_120.people")) == 7


KEYS: dict[str, tuple[list[ColumnType], list[Any], dict[str, Any], str]] = {
    "decimal": (
        [ColumnType("decimal", length=5, scale=1, declared=True), ColumnType("decimal", length=7, scale=2, declared=True)],
        [Decimal("1.5"), Decimal("1.50")],
        {"mask": {"id": "hash"}, "salt_connection": "salts"},
        "1.5",
    ),
    "zero": (
        [ColumnType("double", declared=True)] * 2,
        [0.0, -0.0],
        {"mask": {"id": "hash"}, "salt_connection": "salts"},
        "0.0",
    ),
    "zero date": (
        [ColumnType("datetime", scale=0, declared=True), ColumnType("datetime", scale=3, declared=True)],
        [b"0000-00-00 00:00:00", b"0000-00-00 00:00:00.000"],
        {"mask": {"id": "hash"}, "salt_connection": "salts"},
        "0000-00-00 00:00:00",
    ),
    "datetime": (
        [ColumnType("datetime", scale=0, declared=True), ColumnType("datetime", scale=3, declared=True)],
        [datetime(2026, 3, 1)] * 2,
        {"cast": {"id": "text"}},
        "2026-03-01 00:00:00",
    ),
}  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_the_wire_has_in_two_ways_is_one_in_the_target(
    shaped_mirror: MirrorRig, artifacts: Path, key: str
) -> None:
    """The hash in ``_key`` is of the text on the wire, and DDL may have given the column more digits."""
    types, cells, entry, text = KEYS[key]
    shaped_mirror.section["shape"] = [entry]
    schemas = [
        table("shop.people", {"id": type_, "age": TEXT}, valid_from=at)
        for type_, at in zip(types, (0, 150), strict=True)
    ]
    window = Changelog(artifacts, 0, 200)
    for number, (schema, cell) in enumerate(zip(schemas, cells, strict=True)):
        row = put(110 + 50 * number, id=cell, age=str(number))._replace(key_hash=bytes([number]) * 16)
        if isinstance(cell, bytes):  # a value without a type
            row = row._replace(cells={**row.cells, "id": None}, exact={"id": cell})
        window.rows(schema, [row])
    assert shaped_mirror.load_table(window).keys == 1
    expected = hashed(text) if "mask" in entry else text
    assert shaped_mirror.rows("SELECT id, age FROM shop.people") == [(expected, "1")]


def test_a_table_that_masks_nothing_may_get_the_name_of_one_that_does(any_mirror: MirrorRig, artifacts: Path) -> None:
    """As tools for online changes of schemas do."""
    any_mirror.section["shape"] = [{"tables": ["shop.people"], "exclude": ["secret"]}]
    swap = "RENAME TABLE people TO _people_del, _people_gho TO people"
    known = former_names(Changelog(artifacts, 100, 200).ddl(150, swap, table="shop.people").write().changes)
    assert [each.table.table for each in known] == ["_people_del", "people"]
    any_mirror.load(Changelog(artifacts, 200, 300).rows(PEOPLE, [person(210, 1, "1")]), former_names=tuple(known))
    assert any_mirror.rows("SELECT id, age FROM shop.people") == [(1, "1")]


@pytest.mark.parametrize("include", [["id", "age"], ["age"]], ids=str)
def test_what_becomes_of_the_key_is_for_ever_whether_or_not_it_is_named(
    shaped_mirror: MirrorRig, include: list[str], artifacts: Path
) -> None:
    shape = {"include": include, "mask": {"id": "hash"}, "salt_connection": "salts"}
    shaped_mirror.section["shape"] = [shape]
    text = table("shop.people", {"id": TEXT, "age": TEXT})
    first = Changelog(artifacts, 0, 100).rows(text, [put(10, id="plain", age="1")])
    later = Changelog(artifacts, 100, 200).rows(text, [put(110, id="plain", age="2")])
    shaped_mirror.load(first)
    other = Connection("salts", "generic", password="another salt of it")
    connections = shaped_mirror.connections
    by_id = {**connections.by_id, "salts": other}
    shaped_mirror.connections = msgspec.structs.replace(connections, by_id=by_id)
    with pytest.raises(TargetMismatchError, match="another salt"):
        shaped_mirror.load(later)
    shaped_mirror.connections = connections
    shaped_mirror.section["shape"] = [{"include": include}]
    with pytest.raises(TargetMismatchError, match="another `shape`"):
        shaped_mirror.load(later)
    shaped_mirror.section["shape"] = [shape]
    shaped_mirror.load(later)
    assert shaped_mirror.rows("SELECT id, age FROM shop.people") == [(hashed("plain"), "2")]


def test_a_key_that_is_not_named_follows_its_rename(any_mirror: MirrorRig, artifacts: Path) -> None:
    any_mirror.section["shape"] = [{"include": ["age"]}]
    any_mirror.load(windows(artifacts)[0])
    rename = "ALTER TABLE people RENAME COLUMN id TO pid"
    window = Changelog(artifacts, 100, 151).knows(KNOWN).ddl(150, rename, table="shop.people")
    with pytest.raises(PolicyStopError, match="the column id was renamed to pid"):
        any_mirror.load(window)
    own, section = TableName("shop", "people"), read_section(any_mirror.section)
    shape = shape_in(open_store(artifacts.as_uri()), section, any_mirror.connections, window.write(), own)
    assert shape is not None
    changes = tuple(shape.changes(entry) for entry in window.write().changes)
    any_mirror.changeable().follow("pipeline", StoppingDdl(own, 150, changes, ("shop.*",)))
    any_mirror.load(window)
    renamed = table("shop.people", {"pid": INT, "age": TEXT}, key=("pid",), valid_from=150)
    any_mirror.load(Changelog(artifacts, 151, 300).rows(renamed, [put(210, pid=4, age="4")]))
    assert any_mirror.rows("SELECT pid, age FROM shop.people ORDER BY pid") == [(1, "1"), (2, "2"), (3, "3"), (4, "4")]


@pytest.mark.parametrize("shape", [[], [{"tables": ["*.people"], "exclude": ["secret*"]}]], ids=["plain", "shaped"])
def test_hidden_ddl_tells_other_tables_of_a_rename(
    any_mirror: MirrorRig, shape: list[dict[str, Any]], artifacts: Path
) -> None:
    any_mirror.section["shape"] = shape
    any_mirror.load(windows(artifacts)[0])
    ddl = "RENAME TABLE `people` /* plain */ TO `archive`.`people`"
    window = Changelog(artifacts, 100, 151).ddl(150, ddl, table="archive.people")
    with pytest.raises(PolicyStopError, match=r"shop\.people at 150") as stop:
        any_mirror.load(window)
    assert bool(shape) == ("plain" not in str(stop.value))


@pytest.mark.parametrize("rest", ["", ", DROP COLUMN age"], ids=["alone", "with others"])
def test_what_becomes_of_an_excluded_column_does_not_stop_a_mirror(
    shaped_mirror: MirrorRig, artifacts: Path, rest: str
) -> None:
    """Its type changes, then its name, then it goes. If another column of the statement needs a person, that is all they see."""
    shaped_mirror.load(windows(artifacts)[0])
    window = Changelog(artifacts, 100, 200).knows(KNOWN)
    for number, action in enumerate(["MODIFY secret BIGINT", "RENAME COLUMN secret TO secret2", "DROP COLUMN secret2"]):
        window.ddl(150 + number, f"ALTER TABLE people {action}{rest if number == 2 else ''}", table="shop.people")
    window.rows(PEOPLE, [person(110, 4, "4")])
    if rest:
        with pytest.raises(PolicyStopError, match="column age was dropped") as stopped:
            shaped_mirror.load(window, drop="stop")
        assert "secret" not in str(stopped.value)
        return
    shaped_mirror.load(window, drop="stop")
    later = table("shop.people", {"id": INT, "email": TEXT, "age": TEXT}, valid_from=152)
    last = Changelog(artifacts, 200, 300).rows(later, [put(210, id=5, email="plain-5", age="5")])
    shaped_mirror.load(last, drop="stop")
    assert shaped_mirror.rows("SELECT age FROM shop.people ORDER BY age") == [(1,), (2,), (3,), (4,), (5,)]


@pytest.mark.parametrize("mask", ["null", "hash"])
def test_a_masked_column_with_a_computed_default_is_never_filled_with_plain_values(
    shaped_mirror: MirrorRig, mask: str, artifacts: Path
) -> None:
    salt = {"salt_connection": "salts"} if mask == "hash" else {}
    shaped_mirror.section["shape"] = [{"mask": {"v*": mask}, **salt}]
    shaped_mirror.load(windows(artifacts)[0])
    window = Changelog(artifacts, 100, 200).knows(KNOWN)
    window.ddl(150, "ALTER TABLE people ADD COLUMN v DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP", table="shop.people")
    if mask == "hash":
        with pytest.raises(PolicyStopError, match="upstream shows in older rows, masked or cast as its `shape` says"):
            shaped_mirror.load(window)
        return
    shaped_mirror.load(window)
    assert set(shaped_mirror.rows("SELECT v FROM shop.people")) == {(None,)}


@pytest.mark.parametrize("mode", ["mirror", "history"])
def test_a_column_that_is_spelled_in_another_letter_case_has_the_same_shape(
    any_mirror: MirrorRig, mode: str, artifacts: Path
) -> None:
    any_mirror.section |= {"mode": mode, "shape": [{"mask": {"email": {"fixed": "***"}}}]}
    any_mirror.load(windows(artifacts)[0])
    ddl = "ALTER TABLE people RENAME COLUMN email TO Email, RENAME COLUMN age TO AGE"
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ddl, table="shop.people")
    columns = {"id": INT, "Email": TEXT, "AGE": TEXT, "secret": TEXT}
    row = put(160, id=4, Email="plain-4", AGE="4", secret="s")
    any_mirror.load(window.rows(table("shop.people", columns, valid_from=150), [row]))
    any_mirror.load(windows(artifacts)[0], reload=True)
    assert {id for (id,) in any_mirror.rows("SELECT id FROM shop.people WHERE id IS NOT NULL")} == {1, 2, 3, 4}
    assert "plain-" not in str(any_mirror.rows("SELECT * FROM shop.people"))
    with pytest.raises(TargetMismatchError, match="another `shape`"):
        any_mirror.load(
            window, {"shape": [{"mask": {"email": {"fixed": "***"}}, "rename": {"age": "years"}}]}, reload=True
        )


def test_another_shape_is_refused(shaped_mirror: MirrorRig, artifacts: Path) -> None:
    first, second, _ = windows(artifacts)
    shaped_mirror.load(first)
    for other in ([{**SHAPE, "cast": {}}], []):
        with pytest.raises(TargetMismatchError, match="another `shape`"):
            shaped_mirror.load(second, {"shape": other})


def test_another_salt_is_refused_whatever_comes_between(shaped_mirror: MirrorRig, artifacts: Path) -> None:
    first, _, last = windows(artifacts)
    shaped_mirror.load(first)
    other = {**shaped_mirror.connections.by_id, "salts": Connection("salts", "generic", password="another salt of it")}
    shaped_mirror.connections = msgspec.structs.replace(shaped_mirror.connections, by_id=other)
    only_ddl = Changelog(artifacts, 100, 150).knows(KNOWN)
    shaped_mirror.load(only_ddl.ddl(120, "ALTER TABLE people ADD INDEX (age)", table="shop.people"))
    with pytest.raises(TargetMismatchError, match="another salt"):
        shaped_mirror.load(last)


def test_the_keys_of_deleted_rows_keep_their_salt(shaped_mirror: MirrorRig, artifacts: Path) -> None:
    """Under another one an older version of the row would not find its delete."""
    shaped_mirror.load(Changelog(artifacts, 100, 200).rows(PEOPLE, [delete(110, id=2)]))
    other = {**shaped_mirror.connections.by_id, "salts": Connection("salts", "generic", password="another salt of it")}
    shaped_mirror.connections = msgspec.structs.replace(shaped_mirror.connections, by_id=other)
    with pytest.raises(TargetMismatchError, match="another salt"):
        shaped_mirror.load(windows(artifacts)[0])


@pytest.mark.parametrize("mode", ["mirror", "history"])
@pytest.mark.parametrize("shape", [[HIDDEN], []], ids=["equal", "none"])
def test_a_shaped_table_is_of_one_pipeline(
    any_mirror: MirrorRig, mode: str, shape: list[dict[str, Any]], artifacts: Path, tmp_path: Path
) -> None:
    """Another one, whose artefacts have no record of the shape, would bring what this one masks."""
    any_mirror.section |= {"mode": mode, "shape": [HIDDEN]}
    any_mirror.load(windows(artifacts)[0])
    other = Changelog(tmp_path / "other", 100, 200).rows(PEOPLE, [person(110, 4, "4")])
    other.pipeline = "other"
    with pytest.raises(TargetMismatchError, match="shape"):
        any_mirror.load(other, {"same_upstream_as": ["pipeline"], "shape": shape})
    any_mirror.load(Changelog(artifacts, 200, 300).rows(PEOPLE, [person(210, 5, "5")]))
    found = any_mirror.rows("SELECT id, secret FROM shop.people WHERE id IS NOT NULL")
    assert sorted(found) == [(id, "***") for id in (1, 2, 3, 5)]


def test_no_other_pipeline_changes_a_shaped_mirror_as_ddl_says(
    any_mirror: MirrorRig, artifacts: Path, tmp_path: Path
) -> None:
    any_mirror.section |= {"shape": [HIDDEN]}
    any_mirror.load(windows(artifacts)[0])
    other = Changelog(tmp_path / "other", 100, 151).knows(KNOWN).ddl(150, "DROP TABLE people", table="shop.people")
    ddl = StoppingDdl(PEOPLE.name, 150, other.write().changes, ("shop.*",))
    with pytest.raises(TargetMismatchError, match="has a `shape`, by which pipeline pipeline loads it"):
        any_mirror.changeable({"same_upstream_as": ["pipeline"]}).follow("other", ddl)
    assert any_mirror.has_table("shop.people")


@pytest.mark.parametrize("mode", ["mirror", "history"])
@pytest.mark.parametrize("shape", [[{"mask": {"email": "null"}}], []], ids=["shaped", "plain"])
def test_of_two_first_loads_with_different_shapes_one_loads_nothing(
    any_mirror: MirrorRig, mode: str, shape: list[dict[str, Any]], artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one begins, and ends, while this one stages its rows."""
    any_mirror.section |= {"mode": mode, "shape": shape}
    others = [Changelog(artifacts, 300, 400).rows(PEOPLE, [person(310, 4, "4")])]

    @contextmanager
    def shaped_beside(*given: Any) -> Iterator[Load]:
        with shaped(*given) as load:
            while others:
                any_mirror.load(others.pop(), {"shape": [HIDDEN]})
            yield load

    monkeypatch.setattr("ticdc_replay.targets.load.shaped", shaped_beside)
    with pytest.raises(TransientError, match="recorded `shape` was changed"):
        any_mirror.load(windows(artifacts)[0])
    monkeypatch.undo()
    assert any_mirror.rows("SELECT secret FROM shop.people") == [("***",)]


@pytest.mark.parametrize("shape", [[HIDDEN], []], ids=["equal", "none"])
def test_no_other_pipeline_rebuilds_a_shaped_mirror(
    any_mirror: MirrorRig, shape: list[dict[str, Any]], artifacts: Path, tmp_path: Path
) -> None:
    """Its artefacts have no record of the shape, so plain values would take the place of masked ones."""
    any_mirror.section |= {"shape": [HIDDEN]}
    any_mirror.load(windows(artifacts)[0])
    section = {"same_upstream_as": ["pipeline"], "shape": shape}
    own = any_mirror.changeable(section)
    assert isinstance(own, ReplaceableMirror)
    other = base(tmp_path / "other", 200).rows(PEOPLE, [put(200, op="upsert", **person(200, 1, "1").cells)])
    other.pipeline = "other"
    any_mirror.load(other, section | {"schema": own.beside(PEOPLE.name).db_schema})
    for attempt in (
        lambda: own.require_replaceable("other", PEOPLE.name),
        lambda: own.replace("other", PEOPLE.name, (), ()),
    ):
        with pytest.raises(TargetMismatchError, match="has a `shape`, by which pipeline pipeline loads it"):
            attempt()
    assert sorted(any_mirror.rows("SELECT id, secret FROM shop.people")) == [(id, "***") for id in (1, 2, 3)]


def test_a_row_is_found_by_its_key_upstream(shaped_mirror: MirrorRig, artifacts: Path) -> None:
    shaped_mirror.load(windows(artifacts)[0])
    shape = shape_of(read_section(shaped_mirror.section), shaped_mirror.connections, PEOPLE.name)
    assert shape is not None
    key = shape.key({"id": written_cell("2", INT, "UTC")})
    found = open_target(read_section(shaped_mirror.section), shaped_mirror.connections).find_row(
        "pipeline", PEOPLE.name, key
    )
    assert found.version == 10 or found.not_looked


def test_tables_have_names_by_pattern(any_mirror: MirrorRig, artifacts: Path) -> None:
    any_mirror.section |= {"schema": "raw_{schema}", "table": "{schema}__{table}"}
    any_mirror.load(Changelog(artifacts, 0, 100).rows(PEOPLE, [person(10, 1, "1")]))
    any_mirror.load(Changelog(artifacts, 100, 200).rows(PEOPLE, [person(110, 1, "2")]))
    assert any_mirror.rows("SELECT id, age FROM raw_shop.shop__people") == [(1, "2")]


def test_two_tables_of_one_name_are_refused(any_mirror: MirrorRig, artifacts: Path) -> None:
    any_mirror.section |= {"schema": "raw", "table": "all_{table}"}
    other = table("store.people", COLUMNS)
    any_mirror.load(Changelog(artifacts, 0, 100).rows(PEOPLE, [person(10, 1, "1")]))
    with pytest.raises(TargetMismatchError):
        any_mirror.load(Changelog(artifacts, 100, 200).rows(other, [person(110, 1, "2")]))


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_history_is_shaped(kind: str, lake_spark: SparkSession, artifacts: Path, tmp_path: Path) -> None:
    rig = LakeRig(kind, lake_spark, tmp_path, mode="history", shape=[SHAPE], table="{schema}__{table}")
    rig.connections = Connections({"salts": Connection("salts", "generic", password=SALT)})
    for window in windows(artifacts):
        rig.load(window)
    found = rig.rows("SELECT contact, age, _op, _window, _ddl FROM shop.shop__people")
    assert "plain" not in str(found)
    assert [row[:4] for row in found if row[1] == 11] == [(hashed("plain-1"), 11, "insert", "200-300")]
    assert [row[4] for row in found if row[2] == "ddl"]
