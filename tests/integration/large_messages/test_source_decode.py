"""A split makes rows whole of which only the handle key was sent, and a replay reads the record in place of the source."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.support import mariadb
from tests.support.decoded_captures import LIMITS
from tests.support.open_protocol import columns, message, row
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.decode.plan.changelog_store import ChangelogStore
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext, SplitResult
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.large_messages import source_statements
from ticdc_replay.large_messages.source import RowRequest, RowUnreadable, SourceReader
from ticdc_replay.large_messages.source_images import SourceRow
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.schemas.history import SchemaHistory

pytestmark = pytest.mark.integration

WINDOW = Window(100, 200)


@pytest.fixture
def database(source: Connection, monkeypatch: pytest.MonkeyPatch) -> str:
    """A schema with the table ``t``; MariaDB has no ``tidb_snapshot``, so a user variable takes its place."""
    monkeypatch.setattr(source_statements, "at_snapshot", lambda tso: Statement("SET @tidb_snapshot = %s", (str(tso),)))
    name = f"s_{uuid4().hex[:8]}"
    mariadb.execute(
        source,
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (id bigint PRIMARY KEY, v varchar(20))",
        f"INSERT INTO {name}.t VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    )
    return name


@pytest.fixture
def job(tmp_path: Path) -> DecodeJob:
    return DecodeJob(
        library_version="1",
        pipeline="p",
        artifacts=(tmp_path / "artifacts").as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        source_connection="source",
        manifest="manifests/m.json",
        input_hash="i" * 64,
        changefeed=Changefeed(protocol="open-protocol", topic="topic", timezone="UTC"),
        tables=("*.*",),
        limits=LIMITS,
    )


def messages(database: str) -> list[RawMessage]:
    """An insert, an update and a delete of which only the key was sent, an insert of a row that is not there, a whole row."""

    def key(number: int) -> dict[str, Any]:
        return {"id": columns(number)["id"]}

    small: dict[str, Any] = {"schema": database, "ohk": True}
    events = [
        row(150, new=key(1), **small),
        row(151, new=key(2), old=key(2), **small),
        row(152, old=key(3), **small),
        row(153, new=key(4), **small),
        row(154, new=columns(5, "whole"), schema=database),
    ]
    return [message([event], offset) for offset, event in enumerate(events)]


def decode(job: DecodeJob, source: Connection, database: str, sent: list[RawMessage] | None = None) -> SplitResult:
    connections = Connections({"source": source})
    attempt = Attempt("attempt", known_rows=ChangelogStore.open(job, connections).known_rows())
    split = Split(0, (OffsetRange("topic", 0, 0, 10),))
    decoder = SplitDecoder(split, SplitContext(attempt, job, WINDOW, SchemaHistory(), connections))
    decoder.add(messages(database) if sent is None else sent)
    return decoder.finish()


def changes(job: DecodeJob, result: SplitResult) -> dict[int, tuple[Any, Any]]:
    """By commitTs: the value column before and after, None without image."""
    root = Path(job.artifacts.removeprefix("file://")) / changelog_root(job.run_hash)
    found = {}
    for version in result.files:
        for each in pq.read_table(root / version.file.name, partitioning=None).to_pylist():
            found[each["_commit_ts"]] = tuple(each[side] and each[side]["v"] for side in ("before", "after"))
    return found


WHOLE = {150: (None, "one"), 151: ("two", "two"), 152: ("three", None), 154: (None, "whole")}


def test_rows_are_read_again_and_a_missing_one_goes_to_quarantine(
    job: DecodeJob, source: Connection, database: str
) -> None:
    result = decode(job, source, database)
    assert changes(job, result) == WHOLE
    assert result.quarantine_reasons == {"source_row_missing": 1}
    assert (result.events.reread, result.events.handle_key_only) == (3, 3)


def test_a_replay_reads_the_record_even_where_the_source_is_gone_or_has_other_rows(
    job: DecodeJob, source: Connection, database: str
) -> None:
    first = decode(job, source, database)
    mariadb.execute(source, f"DROP DATABASE {database}")
    later = msgspec.structs.replace(job, library_version="2")
    again = decode(later, Connection("source", "mysql", "127.0.0.1", 1, "nobody", "x"), database)
    assert changes(later, again) == changes(job, first) == WHOLE
    assert again.quarantine_reasons == first.quarantine_reasons
    files = list(Path(job.artifacts.removeprefix("file://")).glob("used_rows/*/*.parquet"))
    assert len(files) == 1  # the replay had nothing to add


def test_a_right_that_was_granted_since_counts(job: DecodeJob, source: Connection, database: str) -> None:
    mariadb.execute(source, f"CREATE USER {database}@'127.0.0.1' IDENTIFIED BY 'x'")
    login = Connection("source", "mysql", source.host, source.port, database, "x")
    refused = decode(job, login, database)
    assert refused.quarantine_reasons == {"source_refused": 3}
    mariadb.execute(source, f"GRANT SELECT ON {database}.* TO {database}@'127.0.0.1'")
    later = msgspec.structs.replace(job, library_version="2")
    assert changes(later, decode(later, login, database)) == WHOLE


def test_an_error_of_one_row_names_its_message(
    job: DecodeJob, source: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    select = source_statements.select_rows

    def failing(definition: Any, key: Any, values: Any) -> Statement:
        if (2,) in values:
            return Statement("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1105, MESSAGE_TEXT = 'no one knows'")
        return select(definition, key, values)

    monkeypatch.setattr(source_statements, "select_rows", failing)
    sent = [message([row(150, new={"id": columns(at)["id"]}, schema=database, ohk=True)], at) for at in (1, 2, 3)]
    with pytest.raises(PermanentError, match=r"topic\[0\]@2, event 0: .*error 1105: no one knows"):
        decode(job, source, database, sent)


def test_new_images_are_read_at_the_commit_and_old_ones_before_it(
    job: DecodeJob, source: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def recorded(tso: int) -> Statement:
        seen.append(tso)
        return Statement("SET @tidb_snapshot = %s", (str(tso),))

    monkeypatch.setattr(source_statements, "at_snapshot", recorded)
    decode(job, source, database)
    # Insert 150 and update 151 (old image); update 151 (new) and delete 152 (old); insert 153: asked for together.
    assert sorted(seen) == [150, 151, 153]


def test_many_copies_of_a_row_are_read_once(
    job: DecodeJob, source: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[RowRequest] = []
    rows = SourceReader.rows

    def recorded(reader: SourceReader, requests: Sequence[RowRequest]) -> list[SourceRow | RowUnreadable]:
        asked.extend(requests)
        return rows(reader, requests)

    monkeypatch.setattr(SourceReader, "rows", recorded)
    copies = [row(150, new={"id": columns(1)["id"]}, schema=database, ohk=True)] * 100
    result = decode(job, source, database, [message(copies, 0)])
    assert ([request.key for request in asked], result.events.reread) == ([(1,)], 100)
    assert changes(job, result) == {150: (None, "one")}


@pytest.mark.parametrize("keys", [(1, 1.0), (1.0, 1)])
def test_keys_that_equal_each_other_and_are_of_other_types_do_not_share_an_answer(
    job: DecodeJob, source: Connection, database: str, keys: tuple[Any, ...]
) -> None:
    floating = {"t": 5, "h": True, "f": 11, "v": 1.0}
    cells = [floating if isinstance(key, float) else columns(1)["id"] for key in keys]
    events = [row(150, new={"id": cell}, schema=database, ohk=True) for cell in cells]
    result = decode(job, source, database, [message(events, 0)])
    assert (result.events.reread, result.quarantine_reasons) == (1, {"source_row_missing": 1})


def test_a_row_without_commit_ts_is_set_aside(job: DecodeJob) -> None:
    """Canal-JSON without the TiDB extension has none, and yet a message may have a part of the extension."""
    row = {
        "id": 0, "database": "s", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1, "ts": 1,
        "sql": "", "sqlType": {"id": -5}, "mysqlType": {"id": "bigint"}, "old": None, "data": [{"id": "1"}],
        "_tidb": {"onlyHandleKey": True},
    }  # fmt: skip
    canal = msgspec.structs.replace(job, changefeed=Changefeed(protocol="canal-json", topic="topic", timezone="UTC"))
    nobody = Connections({"source": Connection("source", "mysql", "127.0.0.1", 1, "nobody", "x")})
    split = Split(0, (OffsetRange("topic", 0, 0, 10),))
    decoder = SplitDecoder(split, SplitContext(Attempt("attempt"), canal, None, SchemaHistory(), nobody))
    decoder.add([RawMessage("topic", 0, 0, 1, None, msgspec.json.encode(row))])
    assert decoder.finish().quarantine_reasons == {"handle_key_only": 1}


def test_the_policy_names_another_changelog(job: DecodeJob) -> None:
    assert job.run_hash != msgspec.structs.replace(job, source_connection=None).run_hash
