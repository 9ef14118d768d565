"""DDL of a split, as it gets into the changelog's index."""

from pathlib import Path

import msgspec
import pytest

from tests import canal_json
from tests.decoded_captures import LIMITS
from ticdc_replay.changelog.index import Ddl
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.decode.split import SplitDecoder
from ticdc_replay.decode.tasks import Attempt, Split
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.tso import from_ms, physical_ms
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory

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
    decoder = SplitDecoder(split, Attempt("attempt"), job, Window(100, 200), SchemaHistory(), Connections())
    decoder.add([canal_json.message(canal_json.ddl(QUERY, ts=canal_json.TS if extension else None), 7)])
    (found,) = decoder.finish().ddl
    commit_ts = canal_json.TS if extension else from_ms(physical_ms(canal_json.TS))
    assert found == Ddl(commit_ts, "s", "t", QUERY, "CREATE", "topic", 0, 7, rounded=not extension)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Ddl) == found
