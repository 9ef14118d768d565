"""Rows that no row of their table can look like are told, and no row that TiCDC sends is."""

import pytest

from tests.support.capture_sets import COMMITTED, CaptureSets, Committed
from tests.support.schema_histories import history_of
from tests.unit.schemas.test_resolve import wire
from ticdc_replay.captures import Capture
from ticdc_replay.codecs.registry import carried_by, codec_for
from ticdc_replay.decode.plan.schema_pass import lookup_in
from ticdc_replay.domain.events import DdlEvent, Image, Operation, RowEvent, Shape
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.layout_check import LayoutCheck
from ticdc_replay.schemas.resolve import SchemaResolver

CREATE = "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `s` VARCHAR(9), `d` DOUBLE, `g` INT AS (1) VIRTUAL)"
ID, S, D = wire("id", "bigint", key=True), wire("s", "varchar"), wire("d", "double")
ALL = LayoutCheck(complete=True)
NAME = TableName("shop", "t")


def history(*queries: str, base: SchemaHistory | None = None) -> SchemaHistory:
    ddls = [DdlEvent(0, ts, "shop", "t", query, 0) for ts, query in enumerate(queries, 10)]
    return (base or SchemaHistory()).with_ddls(ddls)


def difference(
    known: SchemaHistory,
    *columns,
    before=None,
    commit_ts: int | None = 50,
    partial: bool = False,
    check: LayoutCheck | None = ALL,
) -> str:
    """Why no row of the table has *columns* and, in its old image, *before*."""
    images = [None if each is None else Image(Shape(each), (None,) * len(each)) for each in (columns, before)]
    row = RowEvent(0, commit_ts, "shop", "t", None, Operation.UPDATE, *images, partial, None, None, (), b"")
    return SchemaResolver(known, check).resolve(row).unlike


IMPOSSIBLE = {
    "a column too many": ((ID, S, D, wire("w", "int")), "it has no column w"),
    "a column lacks": ((ID, D), "its column s is lacking"),
    "another letter case": ((ID, wire("S", "varchar"), D), "its column s is not spelled S"),
    "two letter cases": ((ID, S, wire("S", "varchar"), D), "its column s is not spelled S"),
    "a number for a text": ((ID, wire("s", "int"), D), "its column s is varchar(9), not int"),
    "a text for a number": ((wire("id", "varchar", key=True), S, D), "its column id is bigint, not varchar"),
    "another integer": ((wire("id", "int", key=True), S, D), "its column id is bigint, not int"),
    "another sign": (
        (wire("id", "bigint", key=True, unsigned=True), S, D),
        "its column id is bigint, not bigint unsigned",
    ),
    "no key": ((wire("id", "bigint"), S, D), "its rows are identified by id, not by nothing"),
    "a key column lacks": (
        (S, D),
        "its column id is lacking; its rows are identified by id, not by nothing",
    ),
    "another key": ((ID, wire("s", "varchar", key=True), D), "its rows are identified by id, not by id, s"),
}


@pytest.mark.parametrize(("columns", "why"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_the_definition_rules_out_is_told(columns, why: str) -> None:
    told = f"shop.t, as its DDL up to {describe(10)} defines it, has no such row: {why}"
    assert difference(history(CREATE), *columns) == told


def test_an_old_image_is_judged_too_but_for_columns_that_it_lacks() -> None:
    assert "it has no column w" in difference(history(CREATE), ID, S, D, before=(ID, wire("w", "int")))
    assert difference(history(CREATE), ID, S, D, before=(ID, S)) == ""


def test_a_part_of_a_row_is_judged_but_for_columns_that_it_lacks() -> None:
    assert difference(history(CREATE), ID, partial=True) == ""
    assert "not int" in difference(history(CREATE), wire("id", "int", key=True), partial=True)


def test_of_many_differences_some_are_shown() -> None:
    many = [wire(f"c{number}", "int") for number in range(9)]
    assert difference(history(CREATE), ID, S, D, *many).endswith("it has no column c4; and 4 more")


POSSIBLE = {
    "whole": (ID, S, D),
    "a virtual column": (ID, S, D, wire("g", "int")),
    "REAL as FLOAT": (ID, S, wire("d", "float")),
    "bytes by the charset of the database": (ID, wire("s", "varbinary"), D),
    "a long VARCHAR that became a TEXT": (ID, wire("s", "mediumtext"), D),
    "columns that TiDB adds by itself": (ID, S, D, wire("_tidb_softdelete_time", "timestamp"), wire("_V$_e_0", "int")),
}


@pytest.mark.parametrize("columns", POSSIBLE.values(), ids=POSSIBLE)
def test_what_the_definition_leaves_open_is_not_judged(columns) -> None:
    assert difference(history(CREATE), *columns) == ""


def test_the_definition_that_holds_at_a_row_s_commit_ts_judges_it() -> None:
    known = history(CREATE, "ALTER TABLE `t` ADD COLUMN `w` INT", "ALTER TABLE `t` MODIFY COLUMN `s` BIGINT")
    wide = (ID, S, D, wire("w", "int"))
    assert "it has no column w" in difference(known, *wide, commit_ts=11)
    assert difference(known, *wide, commit_ts=12) == ""
    assert "its column w is lacking" in difference(known, ID, S, D, commit_ts=12)
    assert "not varchar" in difference(known, *wide, commit_ts=13)
    assert difference(known, *wide, commit_ts=10) == "", "before the table was created nothing is known"


def test_a_table_without_primary_key_may_be_identified_otherwise() -> None:
    known = history("CREATE TABLE `t` (`id` BIGINT NOT NULL UNIQUE, `s` VARCHAR(9) NOT NULL UNIQUE)")
    assert difference(known, wire("id", "bigint"), wire("s", "varchar", key=True)) == ""


def test_column_selectors_may_drop_columns_also_of_the_key() -> None:
    selecting = LayoutCheck(complete=False)
    assert difference(history(CREATE), S, check=selecting) == ""
    assert "it has no column w" in difference(history(CREATE), S, wire("w", "int"), check=selecting)


def test_what_a_selector_leaves_of_a_primary_key_identifies_no_row() -> None:
    selecting = LayoutCheck(complete=False)
    known = history("CREATE TABLE `t` (`id` BIGINT, `s` VARCHAR(9), `u` INT NOT NULL UNIQUE, PRIMARY KEY (`id`, `s`))")
    u, s = wire("u", "int"), wire("s", "varchar", key=True)
    assert "its rows are identified by id, s, not by id" in difference(known, ID, u, check=selecting)
    assert difference(known, ID, s, check=selecting) == ""
    assert difference(known, u, check=selecting) == "", "such rows have no key"
    without = history("CREATE TABLE `t` (`id` BIGINT NOT NULL, `s` VARCHAR(9) NOT NULL, UNIQUE (`id`, `s`))")
    assert difference(without, ID, check=selecting) == "", "another unique key may be the one"


def test_only_what_ddl_tells_from_the_beginning_is_held_against_rows() -> None:
    odd = (ID, S, wire("w", "int"))
    declared = history_of([definition_from_sql(NAME, CREATE)])
    assert difference(declared, *odd) == ""
    assert difference(history("ALTER TABLE `t` ADD COLUMN `x` INT", base=declared), *odd) == ""
    assert difference(history("CREATE TABLE `u` LIKE `t`", "RENAME TABLE `u` TO `t`", base=declared), *odd) == ""
    assert difference(history("ALTER TABLE `t` ADD COLUMN `x` INT"), *odd) == ""
    assert difference(history(CREATE), *odd, commit_ts=None) == "", "without commitTs no definition is the row's"
    assert difference(history(CREATE), *odd, check=None) == ""


@pytest.mark.parametrize(
    "contradiction",
    [
        "ALTER TABLE `t` ADD COLUMN `s` VARCHAR(10)",
        "ALTER TABLE `t` DROP COLUMN `x`",
        "ALTER TABLE `t` RENAME COLUMN `x` TO `s`",
        "ALTER TABLE `t` CHANGE COLUMN `x` `s` VARCHAR(10)",
        "ALTER TABLE `t` MODIFY COLUMN `x` INT",
        "ALTER TABLE `t` SOMETHING NEW",
    ],
)
def test_ddl_that_was_run_on_another_definition_shows_that_some_was_not_sent(contradiction: str) -> None:
    odd = (ID, S, wire("w", "int"))
    assert difference(history(CREATE, contradiction), *odd) == ""
    assert difference(history(CREATE, contradiction, "DROP TABLE `t`", CREATE), *odd), "it is known anew"


@pytest.mark.parametrize(
    "queries",
    [
        ("ALTER TABLE `t` ADD PRIMARY KEY (`s`)",),
        ("ALTER TABLE `t` ADD UNIQUE (`s`)",),
        ("CREATE UNIQUE INDEX `u` ON `t` (`s`)",),
        ("ALTER TABLE `t` ADD COLUMN `x` INT UNIQUE",),
        ("RENAME TABLE `t` TO `x`", "CREATE TABLE `t` LIKE `x`"),
        ("RENAME TABLE `t` TO `x`", "RENAME TABLE `x` TO `t`"),
    ],
)
def test_ddl_behind_which_some_may_not_have_been_sent_ends_the_judgement(queries: tuple[str, ...]) -> None:
    odd = (ID, S, D, wire("w", "int"))
    assert difference(history(CREATE, *queries), *odd) == ""
    assert difference(history(CREATE, "CREATE INDEX `i` ON `t` (`s`)"), *odd), (
        "TiCDC sends DDL of a table without a new key"
    )
    assert difference(history(CREATE, *queries, "DROP TABLE `t`", CREATE), *odd), "it is known anew"


DROP = "DROP TABLE `T`"
DROPPED = f"shop.t was dropped at {describe(11)}, and has no rows since: "


@pytest.mark.parametrize("create", [CREATE, "ALTER TABLE `t` ADD COLUMN `x` INT"], ids=["known", "unknown"])
@pytest.mark.parametrize("drop", [DROP, "DROP DATABASE `shop`"])
def test_a_table_that_was_dropped_and_not_made_again_has_no_rows(create: str, drop: str) -> None:
    known = history(create, drop)
    if create == CREATE or drop == DROP:
        assert difference(known, ID, S, D, commit_ts=12).startswith(DROPPED)
        assert difference(SchemaHistory.decode(known.since(40).encode()), ID, S, D).startswith(DROPPED)
        assert difference(known.since(40).with_ddls([]), ID, partial=True).startswith(DROPPED)
    assert difference(known, ID, S, D, commit_ts=11) == "", "rows of the DROP's commitTs are from before it"
    assert difference(known, ID, S, D, check=None) == ""


@pytest.mark.parametrize(
    "back",
    [
        CREATE,
        "CREATE TABLE `T` LIKE `x`",
        "RENAME TABLE `x` TO `T`",
        "ALTER TABLE `x` RENAME TO `t`",
        "RECOVER TABLE `t`",
        "FLASHBACK TABLE `x` TO `t`",
        "CREATE TABLE `t` SOMETHING NEW",
        "ALTER TABLE `t` ADD PRIMARY KEY (`id`)",
        "ALTER TABLE `t` COMMENT = 'c'",
        "TRUNCATE TABLE `t`",
        "CREATE UNIQUE INDEX `u` ON `t` (`id`)",
    ],
)
def test_any_other_ddl_shows_that_it_is_there_again(back: str) -> None:
    """Also where its CREATE TABLE was not sent, because it had no key."""
    known = history(CREATE, DROP, back)
    assert difference(known, ID, S, D, commit_ts=12), "not before it"
    assert difference(known, ID, S, D, commit_ts=13) == ""
    assert difference(SchemaHistory(known.epochs), ID, S, D, commit_ts=13) == ""
    later = SchemaHistory.decode(history(CREATE, DROP).since(40).encode())
    later = later.with_ddls([DdlEvent(0, 60, "shop", "t", back, 0)])
    assert difference(later, ID, S, D, commit_ts=60)
    assert difference(later, ID, S, D, commit_ts=61) == ""


def test_a_table_is_dropped_by_the_ddl_of_its_own_event() -> None:
    other = DdlEvent(0, 11, "shop", "u", "DROP TABLE `u`, `t`", 0)
    assert difference(history(CREATE).with_ddls([other]), ID, S, D) == ""
    own = DdlEvent(0, 12, "shop", "t", "DROP TABLE `u`, `t`", 0)
    assert difference(history(CREATE).with_ddls([other, own]), ID, S, D)


def test_a_history_that_was_written_and_read_judges_alike() -> None:
    known = history(CREATE, "ALTER TABLE `t` ADD COLUMN `x` INT")
    read = SchemaHistory.decode(known.since(40).encode())
    assert difference(read, ID, wire("w", "int")) == difference(known, ID, wire("w", "int")) != ""


@pytest.mark.slow
@pytest.mark.parametrize("capture", COMMITTED, ids=str)
def test_no_row_that_ticdc_sends_is_called_impossible(capture: Committed, captures: CaptureSets) -> None:
    read = Capture(captures(capture.archive) / capture.architecture / capture.variant)
    feed, lookup = read.changefeed(), lookup_in(read, 1 << 28)
    codec, check = codec_for(feed, 1 << 28, lookup), LayoutCheck.of(feed)
    resolver, judged = SchemaResolver(lookup.history, check), 0
    for event in (event for message in read.messages() for event in codec.decode(message)):
        if isinstance(event, RowEvent):
            assert resolver.resolve(event).unlike == "", event
            if event.commit_ts is not None:
                known = lookup.history.known_at(event.schema, event.table, event.commit_ts)
                judged += known is not None and known.from_ddl
    carried = carried_by(feed)
    assert judged > 70 or check is None or carried.commit_ts != "rows" or carried.ddl == "nowhere"
