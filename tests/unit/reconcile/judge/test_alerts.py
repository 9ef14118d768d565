"""What of a reconciliation somebody is told, and in which words."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ticdc_replay.domain import tso
from ticdc_replay.reconcile.judge.alerts import (
    altered_alerts,
    evidence_alerts,
    lifecycle_alerts,
    lifecycle_notes,
    malformed_alerts,
    missing_alerts,
    oldest_ms,
)
from ticdc_replay.reconcile.judge.lost_rows import LaterVersion, LostRow, later_versions, lost_rows
from ticdc_replay.reconcile.judge.records import CLASSIFIED_REFERENCES
from ticdc_replay.reconcile.judge.rules import Evidence, ObjectClass, PartitionBounds, ReferenceClass, ReplayableRange
from ticdc_replay.reconcile.judge.summary import ObjectsOfTable, ReferencesOfTable, Summary
from ticdc_replay.storage import ObjectStore, open_store
from ticdc_replay.storage.facts import Archival, Expiration, StoreFacts

DAY_MS = 86_400_000
HASH, OTHER_HASH = bytes(16), bytes(15) + b"1"
LOST = LostRow("t", 1, 5, 0, "id", "shop", "x.json", tso.from_ms(1_000), "s", "orders", HASH, '{"id":7}', None)
EVIDENCE = Evidence(
    bounds_ms=100 * DAY_MS,
    listed_ms=100 * DAY_MS,
    partitions=(PartitionBounds("t", "id", 0, 0, 10),),
    young_ms=DAY_MS,
    skew_ms=300_000,
    grace_ms=7 * DAY_MS,
    owners_complete=True,
    unread_offsets=0,
)


def reference(**changes: Any) -> dict[str, Any]:
    row = dict.fromkeys(CLASSIFIED_REFERENCES.names)
    row |= {**LOST._asdict(), "status": "seen", "source": "scan"}
    return row | {"class": "missing", "protecting": True} | changes


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


def written(store: ObjectStore, *files: list[dict[str, Any]]) -> list[str]:
    filesystem, root = store.arrow_filesystem()
    names = []
    for number, rows in enumerate(files):
        names.append(f"{number}.parquet")
        table = pa.Table.from_pylist(rows, CLASSIFIED_REFERENCES)
        pq.write_table(table, f"{root}/{names[-1]}", filesystem=filesystem, row_group_size=2)
    return names


def test_a_row_is_lost_where_its_message_can_be_read_and_its_object_is_missing(store: ObjectStore) -> None:
    files = written(
        store,
        [reference(), reference(offset=6, protecting=False), reference(offset=7, **{"class": "present"})],
        [reference(topic="a"), reference(offset=8, **{"class": "too_young"})],
    )
    assert lost_rows(store, files, 10) == [LOST._replace(topic="a"), LOST]


def test_a_lost_row_that_several_met_is_one_with_the_key_that_one_of_them_knew(store: ObjectStore) -> None:
    files = written(
        store, [reference(key_hash=None, key=None)], [reference(source="decode")], [reference(key_hash=None)]
    )
    assert lost_rows(store, files, 10) == [LOST]
    elsewhere = written(store, [reference()], [reference(topic_id="of a topic of that name in another cluster")])
    assert len(lost_rows(store, elsewhere, 10)) == 2


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 5))
def test_the_first_lost_rows_are_told_whatever_order_the_files_have(
    tmp_path_factory: pytest.TempPathFactory, offsets: list[int], most: int
) -> None:
    store = open_store(tmp_path_factory.mktemp("lost").as_uri())
    files = written(store, *([reference(offset=offset)] for offset in offsets))
    assert [row.offset for row in lost_rows(store, files, most)] == sorted({*offsets})[:most]


def test_the_next_version_whose_object_is_there_is_where_a_row_can_be_had(store: ObjectStore) -> None:
    def version(ms: int, kind: str, **changes: Any) -> dict[str, Any]:
        return reference(commit_ts=tso.from_ms(ms), object_name=f"{ms}.json", **{"class": kind}, **changes)

    files = written(
        store,
        [version(900, "present"), version(1_500, "missing"), version(3_000, "duplicate")],
        [
            version(2_000, "present"),
            version(1_100, "present", key_hash=OTHER_HASH),
            version(1_200, "present", table="u"),
        ],
        [version(1_300, "altered"), version(1_400, "present", key_hash=None), version(1_250, "too_young")],
    )
    unknown = LOST._replace(key_hash=None, key=None)
    assert later_versions(store, files, [LOST, unknown]) == {LOST: LaterVersion(tso.from_ms(2_000), "2000.json")}


def test_a_missing_object_is_told_with_all_its_coordinates_and_the_best_place_to_have_its_row_from_first() -> None:
    row = LOST._replace(other_object="copy.json")
    later = {row: LaterVersion(tso.from_ms(2_000), "later.json")}
    (alert,) = missing_alerts([row], later, {"shop": "tidb"})
    assert alert.kind == "missing"
    for part in ("t[1]@5", "x.json", "s.orders", '{"id":7}', str(row.commit_ts)):
        assert part in alert.text
    copy, source, version = alert.still_from
    assert "copy.json" in copy
    assert "tidb" in source
    assert str(row.commit_ts) in source
    assert "later.json" in version
    assert (alert.topic, alert.partition, alert.offset, alert.table, alert.key) == ("t", 1, 5, "orders", '{"id":7}')


def test_of_a_message_of_which_nothing_could_be_read_the_alert_says_so() -> None:
    row = LostRow("t", 0, 1, -1, "id", "shop", "", None, "", "", None, None, None)
    (alert,) = missing_alerts([row], {}, {})
    assert "t[0]@1: the message names no object" in alert.text
    assert "an unknown table" in alert.text
    assert alert.still_from == ()


def test_altered_objects_are_told_by_table_where_a_message_needs_them() -> None:
    def of(kind: ReferenceClass, table: str, protecting: int) -> ReferencesOfTable:
        return ReferencesOfTable(kind, "s", table, 9, protecting)

    counted = (
        of(ReferenceClass.ALTERED, "a", 2),
        of(ReferenceClass.ALTERED, "b", 0),
        of(ReferenceClass.PRESENT, "c", 9),
    )
    (alert,) = altered_alerts(Summary(by_day=(), objects_by_table=(), references_by_table=counted))
    assert (alert.kind, alert.table) == ("altered", "a")
    assert "s.a: 2 references" in alert.text


def test_objects_that_messages_need_and_that_cannot_be_read_are_told_by_table() -> None:
    counted = (
        ObjectsOfTable(ObjectClass.MALFORMED, "s", "a", 3, 0, needed=1),
        ObjectsOfTable(ObjectClass.MALFORMED, "s", "b", 3, 0, needed=0),
        ObjectsOfTable(ObjectClass.REFERENCED, "s", "c", 3, 9, needed=3),
    )
    (alert,) = malformed_alerts(Summary(by_day=(), objects_by_table=counted, references_by_table=()))
    assert (alert.kind, alert.table) == ("malformed", "a")
    assert "s.a: 1 objects" in alert.text


def rule(days: int | None, date: str | None = None, conditional: bool = False) -> Expiration:
    return Expiration("tidy", "claim-check/", days, date, conditional)


@pytest.mark.parametrize(
    ("expiration", "retention_ms", "told"),
    [
        (rule(3), 7 * DAY_MS, "after 3 days, but Kafka keeps messages of t for 7 days"),
        (rule(7), 7 * DAY_MS, "for 7 days"),
        (rule(8), 7 * DAY_MS, None),
        (rule(3650), -1, "without end"),
        (rule(None, "2027-01-01T00:00:00+00:00"), DAY_MS, "of any age from 2027-01-01"),
        (rule(3, conditional=True), 7 * DAY_MS, "of some size or with some tag"),
        (rule(3), None, None),
    ],
)
def test_a_rule_that_deletes_before_kafka_does_is_an_alert(
    expiration: Expiration, retention_ms: int | None, told: str | None
) -> None:
    alerts = list(lifecycle_alerts(StoreFacts(expirations=(expiration,)), {"t": retention_ms}, {}))
    if told is None:
        assert alerts == []
    else:
        (alert,) = alerts
        assert (alert.kind, alert.topic) == ("lifecycle", "t")
        assert told in alert.text


@pytest.mark.parametrize("retention_ms", [DAY_MS, None])
def test_a_message_that_kafka_keeps_longer_than_its_retention_counts(retention_ms: int | None) -> None:
    partitions = [
        PartitionBounds("t", "id", number, 0, 9, 10 * DAY_MS - age * DAY_MS) for number, age in ((0, 1), (1, 5))
    ]
    held = oldest_ms([*partitions, PartitionBounds("t", "id", 2, 0, 0, None)], 10 * DAY_MS)
    facts = StoreFacts(expirations=(rule(5),))
    (alert,) = lifecycle_alerts(facts, {"t": retention_ms}, held)
    assert "for 5 days" in alert.text
    assert list(lifecycle_alerts(StoreFacts(expirations=(rule(6),)), {"t": retention_ms}, held)) == []


def test_a_rule_that_archives_before_kafka_expires_is_an_alert() -> None:
    moving = Archival("cold", "", 3, None, False, "DEEP_ARCHIVE")
    (alert,) = lifecycle_alerts(StoreFacts(archivals=(moving,)), {"t": 7 * DAY_MS}, {})
    assert "moves objects to DEEP_ARCHIVE after 3 days, but Kafka keeps messages of t for 7 days" in alert.text
    assert list(lifecycle_alerts(StoreFacts(archivals=(moving,)), {"t": DAY_MS}, {})) == []


def test_what_could_not_be_asked_is_a_note_and_no_alert() -> None:
    facts = StoreFacts(expirations=None, unknown=("lifecycle rules: denied",))
    assert list(lifecycle_alerts(facts, {"t": -1}, {})) == []
    notes = list(lifecycle_notes(facts, {"t": None, "u": 5}))
    assert "denied" in notes[0]
    assert "messages of t:" in notes[1]


def test_unread_offsets_are_told_with_their_places() -> None:
    unread = (ReplayableRange("t", "id", 0, 4, 5), ReplayableRange("t", "id", 2, 7, 9))
    (alert,) = evidence_alerts(replace(EVIDENCE, unread_offsets=3, unread=unread))
    assert alert.kind == "unread"
    assert "t[0]@4, t[2]@7..8" in alert.text


def test_owners_that_a_survey_does_not_see_are_alerts() -> None:
    (alert,) = evidence_alerts(replace(EVIDENCE, objections=("another cluster",)))
    assert (alert.kind, alert.text) == ("owners", "another cluster; nothing may be deleted meanwhile")


def test_a_clock_that_differs_is_an_alert_and_owners_that_nobody_vouched_for_are_none() -> None:
    (alert,) = evidence_alerts(replace(EVIDENCE, clock_ahead_ms=-400_000, owners_complete=False))
    assert (alert.kind, "400 s behind" in alert.text) == ("clock", True)
    assert list(evidence_alerts(replace(EVIDENCE, owners_complete=False))) == []
    assert list(evidence_alerts(EVIDENCE)) == []
