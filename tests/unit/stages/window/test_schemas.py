"""What is known of tables at a commitTs, by the DDL that the state store holds and where it was searched."""

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest
from sqlalchemy import insert

from tests.support.schema_histories import schema_at
from tests.support.topics import identity
from ticdc_replay.decode.plan.schema_pass import Unread
from ticdc_replay.domain import tso
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.schemas.epochs import Epoch
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.schemas import all_schemas, recorded_schemas
from ticdc_replay.stages.window.searched_ddl import Reach, reaches, without
from ticdc_replay.state import tables
from ticdc_replay.state.database import Database
from ticdc_replay.state.ddl import DdlScan, KnownDdl

RULES = "[sink]\ndispatchers = [{matcher = ['s.b'], topic = 'b'}]\n"


def create(names: str, table: str = "t") -> str:
    return f"CREATE TABLE `{table}` (`id` BIGINT PRIMARY KEY,`e` ENUM({names}))"


def swap(names: str, table: str = "t") -> str:
    return f"ALTER TABLE `{table}` MODIFY COLUMN `e` ENUM({names})"


def record(context: ReplayContext, commit_ts: int, query: str, table: str = "t", made: str = "first") -> None:
    context.state.ddl.record("shop", [KnownDdl(identity("t", made=made), DdlEvent(0, commit_ts, "s", table, query, 3))])


def scanned(
    context: ReplayContext, start: int, end: int, known_from: int = 0, *, topic: str = "t", resolved_ts: int = 0
) -> None:
    scan = DdlScan(
        topic=identity(topic),
        partition=0,
        start=start,
        end=end,
        known_from=known_from,
        resolved_ts=resolved_ts,
    )
    context.state.ddl.record_scans("shop", [scan])


def names_at(context: ReplayContext, window: Window, table: str = "t") -> tuple[str, ...] | None:
    """The names of the enum at the window's end; None where they are not known."""
    return names_of(recorded_schemas(context, window), window.to_ts - 1, table)


def names_of(history: SchemaHistory, commit_ts: int, table: str = "t") -> tuple[str, ...] | None:
    schema = schema_at(history, TableName("s", table), commit_ts)
    column = schema.column("e") if schema is not None else None
    return column.type.elements if column is not None else None


def test_ddl_that_is_found_late_changes_what_follows_from_it(context: ReplayContext) -> None:
    scanned(context, 0, 50)
    record(context, 10, create("'x','y'"))
    record(context, 30, "ALTER TABLE `t` ADD COLUMN `n` INT")
    assert names_at(context, Window(40, 50)) == ("x", "y")
    record(context, 20, swap("'y','x'"))
    assert names_at(context, Window(40, 50)) == ("y", "x")
    assert names_at(context, Window(12, 15)) == ("x", "y")


def test_ddl_before_a_gap_does_not_count(context: ReplayContext) -> None:
    record(context, 10, create("'x','y'"))
    scanned(context, 0, 50)
    scanned(context, 60, 90, known_from=100)
    assert names_at(context, Window(40, 50)) == ("x", "y")
    assert names_at(context, Window(120, 130)) is None
    scanned(context, 50, 60, known_from=70)  # somebody has searched what lay between
    assert names_at(context, Window(120, 130)) == ("x", "y")


def test_ddl_before_a_gap_in_the_window_itself_does_not_count(context: ReplayContext) -> None:
    record(context, 10, create("'x','y'"))
    scanned(context, 0, 50)
    scanned(context, 60, 90, known_from=100)
    assert names_at(context, Window(40, 130)) is None
    assert names_at(context, Window(40, 100)) == ("x", "y")


def test_ddl_before_a_gap_that_was_recorded_after_rows_of_the_window_does_not_count(context: ReplayContext) -> None:
    """With a lag: what the gap holds was committed before row 40 and sent after it, before the resolved-ts 55."""
    record(context, 10, create("'x','y'"))
    scanned(context, 0, 30, resolved_ts=35)
    scanned(context, 31, 60, known_from=100, resolved_ts=55)
    window = Window(40, 50)
    assert names_of(recorded_schemas(context, window, ()), 40) is None
    assert names_of(recorded_schemas(context, window), 40) is None
    earlier = Window(30, 35)
    assert names_of(recorded_schemas(context, earlier, ()), 34) == ("x", "y")


def test_a_definition_is_known_again_from_the_next_create_table_on(context: ReplayContext) -> None:
    record(context, 10, create("'x','y'"))
    scanned(context, 0, 50)
    scanned(context, 60, 90, known_from=100)
    record(context, 110, swap("'y','x'"))
    assert names_at(context, Window(120, 130)) is None
    record(context, 115, create("'p','q'"))
    assert names_at(context, Window(120, 130)) == ("p", "q")


def test_a_table_that_came_from_another_topic_is_unknown_after_a_gap_in_its_own(
    make_context: Callable[[str], ReplayContext],
) -> None:
    context = make_context(RULES)
    scanned(context, 0, 90)
    record(context, 10, create("'x','y'"))
    record(context, 20, "RENAME TABLE `s`.`t` TO `s`.`b`", table="b")
    scanned(context, 0, 50, topic="b")
    assert names_at(context, Window(40, 50), "b") == ("x", "y")
    scanned(context, 70, 90, known_from=100, topic="b")
    assert names_at(context, Window(40, 50), "b") == ("x", "y")
    assert names_at(context, Window(120, 130), "b") is None


def test_ddl_of_a_topic_that_was_made_again_does_not_count(context: ReplayContext) -> None:
    record(context, 10, create("'x','y'"))
    scanned(context, 0, 50, resolved_ts=40)
    assert names_at(context, Window(60, 70)) == ("x", "y")
    context.state.ddl.record_scans(
        "shop",
        [DdlScan(topic=identity("t", made="again"), partition=0, start=0, end=9, known_from=0, resolved_ts=60)],
    )
    assert names_at(context, Window(60, 70)) is None


def test_a_topic_of_another_cluster_with_the_same_id_was_not_searched() -> None:
    one, other = identity("t"), identity("t", cluster="other")
    scan = DdlScan(topic=one, partition=0, start=0, end=9, known_from=0, resolved_ts=60)
    assert reaches([scan], [], 50, {one: 9}) == {one: Reach(0, 0)}
    assert reaches([scan], [], 50, {other: 9}) == {other: Reach(50, 50)}


def recorded_by_an_earlier_version(
    context: ReplayContext, epochs: Mapping[int, str], scans: Sequence[tuple[int, int]]
) -> None:
    """Definitions of ``s.t`` by the commitTs after which they hold, and the offsets that were searched."""
    _ = context.state
    database = Database(f"sqlite:///{context.artifacts_uri.removeprefix('file://').rsplit('/', 1)[0]}/state.db")
    with database.writing() as connection:
        for after, names in epochs.items():
            definition = definition_from_sql(TableName("s", "t"), create(names))
            epoch = Epoch(definition.name, after, definition)
            connection.execute(
                insert(tables.schema_history).values(
                    pipeline="shop", schema="s", table="t", after=after,
                    epoch=msgspec.json.encode(epoch).decode(), source="ddl",
                )
            )  # fmt: skip
        for start, end in scans:
            connection.execute(
                insert(tables.schema_scan).values(
                    pipeline="shop",
                    topic_id=identity("t").topic_id,
                    partition=0,
                    start_offset=start,
                    end_offset=end,
                )
            )
    database.close()


def test_what_an_earlier_version_recorded_counts_before_the_first_search(context: ReplayContext) -> None:
    recorded_by_an_earlier_version(context, {10: "'x','y'", 120: "'x','y','z'"}, [(0, 80)])
    assert names_at(context, Window(60, 70)) == ("x", "y")
    # The search of this version reads what that one had read last: what follows from it counts, not what had been made of it.
    scanned(context, 70, 90, known_from=100)
    record(context, 110, swap("'y','x'"))
    record(context, 120, "ALTER TABLE `t` ADD COLUMN `n` INT")
    assert names_at(context, Window(130, 140)) == ("y", "x")
    # After a gap nothing of it counts.
    scanned(context, 95, 99, known_from=200)
    assert names_at(context, Window(230, 240)) is None
    assert all_schemas(context).epochs


def test_what_an_earlier_version_recorded_before_a_gap_of_its_own_does_not_count(context: ReplayContext) -> None:
    recorded_by_an_earlier_version(context, {10: "'x','y'"}, [(0, 50), (60, 80)])
    scanned(context, 70, 90, known_from=100)
    assert names_at(context, Window(130, 140)) is None
    scanned(context, 50, 60, known_from=50)  # somebody has searched what lay between
    assert names_at(context, Window(130, 140)) == ("x", "y")


def test_what_an_earlier_version_recorded_does_not_close_a_gap_before_it(context: ReplayContext) -> None:
    recorded_by_an_earlier_version(context, {70: "'p','q'"}, [(60, 80)])
    record(context, 10, create("'x','y'"))
    scanned(context, 0, 50)
    scanned(context, 70, 90, known_from=100)
    assert names_at(context, Window(130, 140)) is None


def test_a_message_that_can_not_be_read_is_a_gap_of_one_offset() -> None:
    scan = DdlScan(topic=identity("t"), partition=0, start=5, end=9, known_from=3, resolved_ts=7)

    def parts(*offsets: int) -> list[tuple[int, int, int, int]]:
        unread = [Unread("t", 0, offset, 1_000 * offset) for offset in offsets]
        return [(part.start, part.end, part.known_from, part.resolved_ts) for part in without(unread, scan, 10)]

    def after(offset: int) -> int:
        return tso.from_ms(1_000 * offset + 11)

    assert parts() == [(5, 9, 3, 7)]
    assert parts(7) == [(5, 7, 3, 0), (8, 9, after(7), 7)]
    assert parts(5) == [(6, 9, after(5), 7)]
    assert parts(8) == [(5, 8, 3, 0), (9, 9, after(8), 7)]
    assert parts(7, 6) == [(5, 6, 3, 0), (8, 9, after(7), 7)]
    assert [each.known_from for each in without([Unread("t", 0, 7, 7_000, commit_ts=44)], scan, 10)] == [3, 45]


@pytest.mark.parametrize("timestamp_ms", [-1, -(1 << 63), 1 << 45, (1 << 63) - 1])
def test_a_message_that_can_not_be_read_and_has_no_time_hides_what_was_committed_up_to_now(timestamp_ms: int) -> None:
    scan = DdlScan(topic=identity("t"), partition=0, start=5, end=9, known_from=3, resolved_ts=7)
    before = tso.from_ms(int(time.time() * 1000))
    _, rest = without([Unread("t", 0, 7, timestamp_ms)], scan, 10)
    assert before < rest.known_from <= tso.from_ms(int(time.time() * 1000) + 11)
