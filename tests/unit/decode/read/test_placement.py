"""Rows that stand elsewhere than the dispatcher rules say."""

import pytest

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.rules import Dispatch, DispatchRule
from ticdc_replay.changefeed.table_filter import TableFilter
from ticdc_replay.changefeed.topic_expression import TopicExpression
from ticdc_replay.decode.plan.splits import sampled_of
from ticdc_replay.decode.read.placement import PlacementCheck
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.events import Image, Operation, RowEvent, Shape, WatermarkEvent, WireColumn
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.history import SchemaHistory

SHAPE = Shape((WireColumn("id", ColumnType("int"), True, list),))
BY_KEY = Dispatch((DispatchRule(TableFilter(("test.*",)), partition="index-value"),))


def feed(dispatch: Dispatch = BY_KEY, **fields: object) -> Changefeed:
    return Changefeed(protocol="open-protocol", topic="main", timezone="UTC", dispatch=dispatch, **fields)  # type: ignore[arg-type]


def row(number: int) -> RowEvent:
    insert, image, nothing = Operation.INSERT, Image(SHAPE, (number,)), None
    return RowEvent(0, 7, "test", "t", nothing, insert, image, nothing, False, nothing, nothing, (), b"")


def message(partition: int, topic: str = "main", offset: int = 64) -> RawMessage:
    return RawMessage(topic, partition, offset, 0, b"", b"")


def test_of_few_messages_all_are_looked_at_and_of_many_a_few_thousand() -> None:
    assert [sampled_of(messages) for messages in (0, 1, 2047, 4095)] == [1, 1, 1, 1]
    assert [sampled_of(messages) for messages in (4096, 100_000, 1_000_000, 100_000_000)] == [2, 32, 256, 4096]


def test_the_same_offsets_are_sampled_however_a_range_is_divided() -> None:
    check = PlacementCheck(feed(), {"main": 3}, 64, SchemaHistory())
    offsets = [offset for offset in range(10, 500) if not 200 <= offset < 300]  # compaction took some
    messages = [message(0, offset=offset) for offset in offsets]
    for cut in (0, 54, 55, 190, 250, len(messages)):
        parts = (messages[:cut], messages[cut:])
        sampled = [part[at].offset for part in parts for at in check.sample(part)]
        assert sampled == [offset for offset in offsets if offset % 64 == 0]
    assert not PlacementCheck(feed(), {}, 1, SchemaHistory()).sample(messages)


def test_rows_elsewhere_are_counted_per_table_with_an_example() -> None:
    check = PlacementCheck(feed(), {"main": 3}, 64, SchemaHistory())
    check.look_at(message(0), [row(1), WatermarkEvent(1, 7)])
    check.look_at(message(2, offset=128), [row(1)])
    check.look_at(message(2, offset=192), [row(1)])
    check.look_at(message(2, offset=64), [row(1)])
    check.look_at(message(2, offset=65), [row(1)])
    (found,) = check.found()
    assert (check.checked, found.table, found.rows) == (4, "test.t", 3)
    assert found.example == "main[2]@64, not main[0]", "the first in Kafka, whoever looked when"


def test_the_default_topic_has_as_many_partitions_as_the_sink_uri_says() -> None:
    check = PlacementCheck(feed(partition_num=3), {"main": 8}, 1, SchemaHistory())
    check.look_at(message(0), [row(1)])
    assert (check.checked, check.found()) == (1, ())


def test_a_row_in_a_topic_of_another_table_is_elsewhere() -> None:
    dispatch = Dispatch((DispatchRule(TableFilter(("test.*",)), topic=TopicExpression("cdc_{table}")),))
    check = PlacementCheck(feed(dispatch), {"cdc_t": 1, "cdc_u": 1}, 1, SchemaHistory())
    check.look_at(message(0, "cdc_t"), [row(1)])
    check.look_at(message(0, "cdc_u"), [row(1)])
    (found,) = check.found()
    assert (check.checked, found.rows, found.example) == (2, 1, "cdc_u[0]@64, not cdc_t[0]")


def test_without_the_number_of_partitions_nothing_is_looked_at() -> None:
    check = PlacementCheck(feed(), {}, 1, SchemaHistory())
    check.look_at(message(9), [row(1)])
    assert (check.checked, check.found()) == (0, ())


@pytest.mark.parametrize("error", [KeyError("x"), StopIteration(), RecursionError()])
def test_a_row_that_can_not_be_judged_stops_nothing(error: Exception) -> None:
    check = PlacementCheck(feed(), {"main": 3}, 1, SchemaHistory())
    check.look_at(message(0), [row(1), failing(error), failing(error), row(1)])
    assert (check.checked, check.found()) == (2, ())
    with pytest.raises(TransientError):
        check.look_at(message(0), [failing(TransientError("away"))])


def failing(error: Exception) -> RowEvent:
    def raising(values: object) -> list[object]:
        raise error

    shape = Shape((WireColumn("id", ColumnType("int"), True, raising),))
    return row(1)._replace(after=Image(shape, (1,)))
