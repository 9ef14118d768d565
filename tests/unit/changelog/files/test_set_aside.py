"""The file of messages that are decoded once more: each message once, with the events that are wanted."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.quarantine_files import TOPIC, index_with, quarantine
from ticdc_replay.changelog.files import set_aside
from ticdc_replay.changelog.files.set_aside import (
    EntryPlace,
    message_of,
    pack_messages,
    read_entries,
    read_messages,
    selected_places,
)
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.storage import ObjectStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


def opened(content: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(content))


def test_a_message_comes_once_however_many_of_its_events_are_wanted(store: ObjectStore) -> None:
    index = index_with(store, "a", quarantine(1, 0, "x"), quarantine(1, 2, "y"), quarantine(2, None, "z"))
    wanted = {EntryPlace(TOPIC, 0, 1, -1): {2, 0}, EntryPlace(TOPIC, 0, 2, -1): None}
    content, count = pack_messages(store, wanted, [index])
    assert count == 2
    file = opened(content)
    assert [(message.offset, message.value, only) for message, only in read_messages(file, [0])] == [
        (1, b"value 1", frozenset({0, 2})),
        (2, b"value 2", None),
    ]
    assert {(place.offset, place.ordinal) for place in selected_places(file, index.identities)} == {
        (1, 0),
        (1, 2),
        (2, -1),
    }
    assert pack_messages(store, wanted, [index])[0] == content, "the same input has the same hash"


def test_files_from_before_entries_shared_bytes_are_read_alike(store: ObjectStore, tmp_path: Path) -> None:
    index = index_with(store, "a", quarantine(1, 0, "x"), quarantine(1, 2, "y"), quarantine(2, None, "z"))
    wanted = {EntryPlace(TOPIC, 0, 1, -1): {2, 0}, EntryPlace(TOPIC, 0, 2, -1): None}

    def told() -> tuple[object, ...]:
        entries = read_entries(store, index)
        return entries, [message_of(store, index, entry) for entry in entries], pack_messages(store, wanted, [index])

    shared = told()
    path = tmp_path / "runs/a" / index.quarantine_files[0]
    table = pq.read_table(path, partitioning=None)
    assert pa.types.is_dictionary(table.schema.field("value").type)
    for name in ("key", "value"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, pa.field(name, pa.binary()), table[name].cast(pa.binary()))
    pq.write_table(table, path)
    assert told() == shared


def test_a_row_group_ends_at_so_many_bytes(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "GROUP_BYTES", 30)
    index = index_with(store, "a", *(quarantine(offset, None, "x") for offset in range(5)))
    content, _ = pack_messages(store, {EntryPlace(TOPIC, 0, offset, -1): None for offset in range(5)}, [index])
    file = opened(content)
    assert [
        [message.offset for message, _ in read_messages(file, [group])] for group in range(file.num_row_groups)
    ] == [
        [0, 1, 2],
        [3, 4],
    ]


def test_what_is_gone_is_said_and_not_left_out(store: ObjectStore) -> None:
    index = index_with(store, "a", quarantine(1, 0, "x"))
    with pytest.raises(ArtifactNotFoundError, match="1 messages are in no quarantine file of runs a"):
        pack_messages(store, {EntryPlace(TOPIC, 0, 7, -1): None}, [index])
    store.delete(f"runs/a/{index.quarantine_files[0]}")
    with pytest.raises(ArtifactNotFoundError, match="while Kafka still holds it"):
        read_entries(store, index)


def test_entries_have_the_places_that_people_name(store: ObjectStore) -> None:
    index = index_with(store, "a", quarantine(2, None, "z"), quarantine(1, 0, "x"))
    assert [entry.coordinates for entry in read_entries(store, index)] == ["topic[0]@1#0", "topic[0]@2"]
