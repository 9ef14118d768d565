"""Names of the upstream that PostgreSQL or the mirror needs for itself."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, delete, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import ConfigError, PermanentError, TargetMismatchError
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tso import describe
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.targets.postgres.section import PostgresTarget

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
CREATE = "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20))"
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})


def orders(artifacts: Path, start: int, rows: list[Any]) -> Changelog:
    return Changelog(artifacts, start, start + 100, f"r{start}").rows(ORDERS, rows)


def test_an_upstream_table_is_never_the_tombstones_of_another_mirror(mirror: Mirror, artifacts: Path) -> None:
    """Its rows were deletes of the other: the next load of an older window then lost rows, or brought deleted ones back."""
    mirror.load(orders(artifacts, 100, [put(110, id=1, v="kept"), put(110, id=2, v="gone"), delete(120, id=2)]))
    ((tombstones,),) = mirror.rows("SELECT tombstones FROM _ticdc_replay.tables")
    before = mirror.rows(f'SELECT * FROM _ticdc_replay."{tombstones}"')
    attack = table(f"_ticdc_replay.{tombstones}", {"id": INT})
    hostile = Changelog(artifacts, 300, 400, "hostile").rows(attack, [put(310, id=1), delete(320, id=2)])
    report = mirror.load_table(hostile)
    assert (report.outcome, report.events, report.destination) == ("reserved_name", 2, "")
    assert mirror.rows(f'SELECT * FROM _ticdc_replay."{tombstones}"') == before
    mirror.load(orders(artifacts, 0, [put(50, id=2, v="old")]))
    mirror.load(
        orders(artifacts, 100, [put(110, id=1, v="kept"), put(110, id=2, v="gone"), delete(120, id=2)]), reload=True
    )
    assert mirror.rows("SELECT id, v FROM shop.orders") == [(1, "kept")]


@pytest.mark.parametrize("schema", ["_ticdc_replay", "pg_catalog", "pg_stats", "information_schema"])
def test_tables_of_a_reserved_schema_are_left_out_and_the_others_are_loaded(
    mirror: Mirror, artifacts: Path, schema: str
) -> None:
    reserved = table(f"{schema}.tables", {"id": INT})
    changelog = orders(artifacts, 0, [put(10, id=1, v="x")]).rows(reserved, [put(11, id=7)])
    report = mirror.load(changelog)
    assert {str(each.table): each.outcome for each in report.tables} == {
        f"{schema}.tables": "reserved_name",
        "shop.orders": "loaded",
    }
    with pytest.raises(PermanentError, match="reserved in PostgreSQL; name another `schema`"):
        mirror.load(changelog, tables=(f"{schema}.tables",))
    with pytest.raises(PermanentError, match="is reserved in PostgreSQL"):
        mirror.raise_floor(f"{schema}.tables", 100)
    with pytest.raises(PermanentError, match="is reserved in PostgreSQL"):
        mirror.forget(f"{schema}.tables")
    mirror.load(Changelog(artifacts, 0, 100, "elsewhere").rows(reserved, [put(11, id=7)]), {"schema": "other"})
    assert mirror.rows("SELECT id FROM other.tables") == [(7,)]


def test_a_table_whose_ddl_names_no_schema_stops_no_other(mirror: Mirror, artifacts: Path) -> None:
    changelog = orders(artifacts, 0, [put(10, id=1, v="x")]).ddl(
        5, "CREATE TABLE t (id BIGINT PRIMARY KEY)", table=".t"
    )
    report = mirror.load(changelog)
    assert {str(each.table): each.outcome for each in report.tables} == {".t": "reserved_name", "shop.orders": "loaded"}


def test_columns_that_every_table_of_postgresql_has_get_another_name(mirror: Mirror, artifacts: Path) -> None:
    names = sorted(PostgresTarget.system_columns)
    odd = table("shop.odd", {"id": INT, **dict.fromkeys([*names, "oid"], TEXT)})
    values = {name: f"value of {name}" for name in [*names, "oid"]}
    report = mirror.load_table(Changelog(artifacts, 0, 100).rows(odd, [put(10, id=1, **values)]))
    targets = [field.name for field in report.fields if field.name not in ("id", "_commit_ts")]
    assert all(
        any(target.startswith(f"{name}_") and len(target) == len(name) + 9 for target in targets) for name in names
    )
    assert "oid" in targets
    assert set(targets).isdisjoint(names)
    selected = ", ".join(f'"{target}"' for target in targets)
    ((*found,),) = mirror.rows(f"SELECT {selected} FROM shop.odd")
    assert sorted(found) == sorted(values.values())
    again = mirror.load_table(Changelog(artifacts, 100, 200, "later").rows(odd, [put(110, id=1, **values)]))
    assert again.upserted == 1
    upper = table("shop.upper", {"id": INT, "XMIN": TEXT})
    mirror.load_table(Changelog(artifacts, 0, 100, "upper").rows(upper, [put(10, id=1, XMIN="x")]))
    assert mirror.rows('SELECT "XMIN" FROM shop.upper') == [("x",)]


def test_a_key_that_postgresql_has_in_every_table_identifies_rows(mirror: Mirror, artifacts: Path) -> None:
    odd = table("shop.odd", {"ctid": INT, "v": TEXT}, key=("ctid",))
    mirror.load(
        Changelog(artifacts, 0, 100).rows(odd, [put(10, ctid=1, v="a"), put(10, ctid=2, v="b"), delete(20, ctid=2)])
    )
    assert mirror.rows("SELECT v FROM shop.odd") == [("a",)]


def test_names_beyond_63_bytes_stay_apart(mirror: Mirror, artifacts: Path) -> None:
    long = "ü" * 40
    odd = table(f"{long}.{long}", {"id": INT, f"{long}1": TEXT, f"{long}2": TEXT})
    values = {f"{long}1": "one", f"{long}2": "two"}
    report = mirror.load_table(Changelog(artifacts, 0, 100).rows(odd, [put(10, id=1, **values)]))
    assert all(len(field.name.encode()) <= 63 for field in report.fields)
    assert mirror.rows(f"SELECT * FROM {report.destination}") == [(1, "one", "two", 10)]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_column_that_no_table_has_stops_before_anything_is_written_and_says_what_to_do(
    mirror: Mirror, artifacts: Path, name: str
) -> None:
    odd = table("shop.odd", {"id": INT, name: TEXT})
    changelog = orders(artifacts, 0, [put(10, id=1, v="x")]).rows(odd, [put(10, **{"id": 1, name: "x"})])
    with pytest.raises(TargetMismatchError, match="pin the window again"):
        mirror.load(changelog)


@pytest.mark.parametrize("count", [1598, 1599, 4096])
def test_a_table_with_more_columns_than_postgresql_has_room_for_stops_and_says_what_to_do(
    mirror: Mirror, artifacts: Path, count: int
) -> None:
    names = [f"c{at}" for at in range(count - 1)]
    wide = table("shop.wide", {"id": INT, **dict.fromkeys(names, INT)})
    changelog = Changelog(artifacts, 0, 100).rows(wide, [put(10, id=1, **dict.fromkeys(names[:9], 7))])
    if count == 1598:
        assert mirror.load_table(changelog).upserted == 1
        return
    with pytest.raises(TargetMismatchError, match=rf"{count} columns, and a mirror .* column selector"):
        mirror.load(changelog)


def test_ddl_that_adds_more_columns_than_postgresql_has_room_for_stops(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(orders(artifacts, 0, [put(10, id=1, v="x")]))
    more = ", ".join(f"c{at} INT" for at in range(1_600))
    known = SchemaHistory().with_ddls([DdlEvent(0, 1, "shop", "orders", CREATE, 3)]).definition_at("shop", "orders", 50)
    assert known is not None
    changelog = Changelog(artifacts, 100, 200, "later").knows(known)
    changelog.ddl(120, f"ALTER TABLE orders ADD COLUMN ({more})")
    with pytest.raises(TargetMismatchError, match="1600 columns, and a mirror"):
        mirror.load(changelog)


def test_a_table_called_as_the_index_of_another_stops_and_says_so(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(orders(artifacts, 0, [put(10, id=1, v="x")]))
    named = table("shop.orders_pkey", {"id": INT})
    changelog = Changelog(artifacts, 100, 200, "named").rows(named, [put(110, id=7)])
    with pytest.raises(TargetMismatchError, match="an index, a view or the like has its name: rename that"):
        mirror.load(changelog)
    mirror.execute("ALTER INDEX shop.orders_pkey RENAME TO orders_key")
    assert mirror.load_table(changelog).outcome == "loaded"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"schema": "_ticdc_replay"}, "_ticdc_replay is reserved"),
        ({"schema": "pg_temp"}, "pg_temp is reserved"),
        ({"schema": "information_schema"}, "information_schema is reserved"),
        ({"commit_ts_column": "xmin"}, "PostgreSQL has a column xmin"),
        ({"place_column": "ctid"}, "PostgreSQL has a column ctid"),
    ],
)
def test_reserved_names_in_the_targets_section_are_refused(
    mirror: Mirror, artifacts: Path, section: dict[str, object], said: str
) -> None:
    with pytest.raises((ConfigError, ValueError), match=said):
        mirror.load(orders(artifacts, 0, []), section)


OTHER_SCHEMAS = {
    "letters": (
        table("shop.orders", {"ID": INT, "V": TEXT}, ["ID"], valid_from=15, unique=[["id"], ["v"]]),
        put(20, ID=2, V="y"),
        [
            "rows are identified by ID and id",
            "column ID is spelled id in older rows",
            "column V is spelled v in older rows",
        ],
    ),
    "key": (
        table("shop.orders", {"v": TEXT}, ["v"], valid_from=15, unique=[["id"]]),
        delete(20, v="y"),
        ["rows are identified by id and v"],
    ),
}


@pytest.mark.parametrize("case", OTHER_SCHEMAS)
def test_rows_with_the_columns_of_another_definition_are_refused_by_name(
    mirror: Mirror, artifacts: Path, case: str
) -> None:
    schema, row, told = OTHER_SCHEMAS[case]
    window = orders(artifacts, 0, [put(10, id=1, v="x")]).rows(schema, [row])
    with pytest.raises(TargetMismatchError, match=r"does not fit shop\.orders") as caught:
        mirror.load(window)
    assert all(f"- {'within the window ' if 'identified' in line else ''}{line}" in str(caught.value) for line in told)
    assert "give the table's definition in the pipeline (definitions)" in str(caught.value)
    assert "the rows of shop.orders in this window, the rarest first:" in str(caught.value)
    assert f"such as topic[0]@2, event 0 at {describe(20)}" in str(caught.value)


def test_rows_of_other_layouts_are_told_the_rarest_first_with_a_place_of_each(mirror: Mirror, artifacts: Path) -> None:
    number = table("shop.orders", {"id": INT, "v": INT, "w": INT})
    without = table("shop.orders", {"id": INT})
    window = orders(artifacts, 0, [put(10, id=1, v="x"), put(11, id=2, v="x"), put(12, id=3, v="x")])
    window.rows(number, [put(20, id=4, v=1, w=1)]).rows(without, [put(30, id=5), put(31, id=6)])
    with pytest.raises(TargetMismatchError) as caught:
        mirror.load(window)
    assert str(caught.value).splitlines()[-5:-1] == [
        "the rows of shop.orders in this window, the rarest first:",
        f"- 1, with v bigint, with w bigint; such as topic[0]@4, event 0 at {describe(20)}",
        f"- 2, without v; such as topic[0]@5, event 0 at {describe(30)}",
        f"- 3, the usual ones; such as topic[0]@1, event 0 at {describe(10)}",
    ]


def test_rows_that_lack_a_column_without_reason_are_told_with_those_that_have_it(
    mirror: Mirror, artifacts: Path
) -> None:
    wide = table("shop.orders", {"id": INT, "v": TEXT, "w": INT})
    window = orders(artifacts, 0, [put(10, id=1, v="x"), put(11, id=2, v="x")]).rows(wide, [put(20, id=3, v="x", w=1)])
    with pytest.raises(TargetMismatchError, match=r"rows of shop\.orders lack w") as caught:
        mirror.load(window)
    assert f"- 1, with w bigint; such as topic[0]@3, event 0 at {describe(20)}" in str(caught.value)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_rows_without_key_beside_others_do_not_leave_the_table_out(
    mirror: Mirror, artifacts: Path, named: bool, last: bool
) -> None:
    """A pattern leaves tables without key out of a mirror: one such row left out all rows of the window."""
    keyless = table("shop.orders", {"id": INT, "v": TEXT}, [], valid_from=15 if last else 0)
    usual = table("shop.orders", {"id": INT, "v": TEXT}, valid_from=0 if last else 15)
    window = Changelog(artifacts, 0, 100).rows(usual, [put(10, id=1, v="x"), put(20, id=2, v="x")])
    window.rows(keyless, [put(12, id=9, v="x")])
    tables = ("shop.orders",) if named else ("shop.*",)
    with pytest.raises(TargetMismatchError, match="rows are identified by no key and id") as caught:
        mirror.load(window, tables=tables)
    assert f"- 1, identified by nothing; such as topic[0]@3, event 0 at {describe(12)}" in str(caught.value)


def test_a_definition_may_spell_columns_of_a_unique_key_in_other_letter_case(mirror: Mirror, artifacts: Path) -> None:
    schema = table("shop.orders", {"id": INT, "N": INT}, unique=[["ID"], ["n"]])
    mirror.load(Changelog(artifacts, 0, 100).rows(schema, [put(10, id=1, N=2)]))
    indexes = mirror.rows("SELECT indexdef FROM pg_indexes WHERE tablename = 'orders' AND schemaname = 'shop'")
    assert sorted(text.partition("(")[2] for (text,) in indexes) == ['"N")', "id)"]
