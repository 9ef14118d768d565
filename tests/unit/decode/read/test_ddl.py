"""DDL of a split, as it gets into the changelog's index."""

from pathlib import Path

import msgspec
import pytest

from tests.support import canal_json, open_protocol
from tests.support.decoded_captures import LIMITS
from tests.support.decoded_splits import decode, insert, quarantine
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.index import Ddl
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import schemas_in
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import from_ms, physical_ms
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.changes import kind_of
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.unread import UnreadDdl, forgetting

QUERY = "CREATE TABLE t (id int PRIMARY KEY)"


@pytest.mark.parametrize("extension", [True, False])
def test_it_is_told_where_only_the_time_of_a_ddl_is_known(tmp_path: Path, extension: bool) -> None:
    job = DecodeJob(
        library_version="1",
        pipeline="p",
        artifacts=tmp_path.as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest="manifests/m.json",
        input_hash="i" * 64,
        changefeed=Changefeed(protocol="canal-json", topic="topic", timezone="UTC", enable_tidb_extension=extension),
        tables=("s.*",),
        limits=LIMITS,
    )
    split = Split(0, (OffsetRange("topic", 0, 7, 8),))
    decoder = SplitDecoder(
        split, SplitContext(Attempt("attempt"), job, Window(100, 200), SchemaHistory(), Connections())
    )
    decoder.add([canal_json.message(canal_json.ddl(QUERY, ts=canal_json.TS if extension else None), 7)])
    (found,) = decoder.finish().ddl
    commit_ts = canal_json.TS if extension else from_ms(physical_ms(canal_json.TS))
    assert found == Ddl(commit_ts, "s", "t", QUERY, "CREATE", "topic", 0, 7, rounded=not extension)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Ddl) == found


CREATE = "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20))"


def history_of(messages: list[RawMessage]) -> SchemaHistory:
    codec = codec_for(Changefeed(protocol="open-protocol", topic="topic", timezone="UTC"), 1 << 20)
    return SchemaHistory().with_ddls(schemas_in([messages], codec).ddl)


def test_copies_of_a_ddl_in_every_partition_count_once_and_others_of_its_commit_ts_stay(tmp_path: Path) -> None:
    """One RENAME TABLE a TO b, c TO d comes as two DDL of one commitTs; each partition has both, and some again."""
    queries = {name: f"RENAME TABLE `s`.`{name}` TO `s`.`{name}2`" for name in ("a", "c")}
    splits = [
        [
            open_protocol.message(
                [open_protocol.ddl(150, queries[name], table=f"{name}2", kind=14)], at, partition=partition
            )
            for at, name in enumerate(order)
        ]
        for partition, order in enumerate(["ac", "acac", "ca"])
    ]
    index, _ = decode(tmp_path, splits)
    assert sorted(ddl.query for ddl in index.ddl) == sorted(queries.values())
    assert sorted(str(change.table) for change in index.changes) == ["s.a", "s.a2", "s.c", "s.c2"]


def test_a_table_that_is_renamed_into_another_topic_keeps_its_types_and_the_ddl_counts_for_both_names(
    tmp_path: Path,
) -> None:
    """The topic of the new name never carries the RENAME."""
    rename = open_protocol.ddl(150, "RENAME TABLE `s`.`t` TO `s`.`u`", table="u", kind=14)
    old = [
        open_protocol.message([event], at, topic="s_t")
        for at, event in enumerate([open_protocol.ddl(110, CREATE), insert(120, 1), rename])
    ]
    row = open_protocol.row(160, new=open_protocol.columns(1, "b"), table="u")
    new = [open_protocol.message([row], 0, topic="s_u")]
    index, _ = decode(tmp_path, [new, old], history=history_of([*new, *old]))
    assert {str(table.schema.name): (table.declared, table.schema.valid_from) for table in index.tables} == {
        "s.t": (True, 110),
        "s.u": (True, 150),
    }
    told = {
        change.table: [kind_of(each) for each in change.changes] for change in index.changes if change.commit_ts == 150
    }
    assert told == {TableName("s", "t"): ["renamed_away"], TableName("s", "u"): ["renamed_here"]}


def test_rows_that_depend_on_ddl_that_could_not_be_read_are_set_aside_once_whatever_decodes_them(
    tmp_path: Path,
) -> None:
    known = SchemaHistory().with_ddls([DdlEvent(0, 90, "s", "t", CREATE, 3)])
    gap = UnreadDdl("topic", 0, 9, after=150, until=155)
    history = forgetting(known, [gap], lambda _schema, _table: "topic")
    events = [insert(ts, ts) for ts in range(110, 190)]
    one = [open_protocol.message([event], at) for at, event in enumerate(events)]
    copies = [open_protocol.message([event], at, partition=1) for at, event in enumerate(events)]
    index, rows = decode(tmp_path, [one, copies], history=history)
    assert sorted(row["_commit_ts"] for row in rows) == list(range(110, 151))
    assert index.report.quarantine_reasons == {"ddl_unread": 39}
    assert {entry["commit_ts"] for entry in quarantine(tmp_path, index)} == {*range(151, 190)}
