"""Messages that no TiCDC sends stop no window: good rows come to the target, and the state store in PostgreSQL takes the rest."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from confluent_kafka import Producer

from demo.embedded_stack.kafka import Kafka
from tests.support import canal_json, open_protocol
from tests.support.in_process import in_process
from tests.support.replayed_windows import decode
from tests.support.waiting import PATIENCE_S
from ticdc_replay import jobspec
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.set_aside import Entry, read_entries
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical, tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import TargetMismatchError, UnprovenWindowError
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.publish import publish
from ticdc_replay.stages.quarantine.entries import Selection, accept
from ticdc_replay.stages.window.jobs import write_load_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration

START_MS = 1_760_000_000_000
RECORDED = (None, 1 << 62, 1 << 45)
OLD = (None, 1, -1, -2, -3, -4, -(1 << 62))
"""Record times before all commits. Not 0: the client sends the time of day for it."""
FOREVER = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
LONG = "n" * 9_000
CREATE = "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(100))"
ODD_DDL = (
    "ALTER TABLE `t` COMMENT 'a\0b'",
    f"CREATE TABLE `{LONG}` (`id` INT)",
    f"CREATE TABLE `w` (`id` INT, {', '.join(f'`c{at}` INT' for at in range(5_000))})",
    "CREATE TABLE `\0` (`` INT)",
    "\0" * 1_000,
)


def at(second: float) -> int:
    return tso.from_ms(START_MS + round(second * 1000))


class Feed:
    """Sends messages with the record time of *second*, or another one."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.topic, self._producer = topic, producer

    def send(self, second: float, message: RawMessage, timestamp_ms: int | None = None) -> None:
        time = START_MS + round(second * 1000) + 100 if timestamp_ms is None else timestamp_ms
        self._producer.produce(self.topic, message.value, message.key, partition=0, timestamp=time)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0


@pytest.fixture
def make_context(kafka: Kafka, make_database: Callable[[], str], tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def make(feed: Feed, options: str, **policies: str) -> Iterator[tuple[ReplayContext, str]]:
        state, target = make_database(), make_database()
        declared = {
            "name": "shop",
            "changefeed": {"sink_uri": f"kafka://b:9092/{feed.topic}?{options}", "timezone": "UTC"},
            "connections": {"kafka": "kafka", "state": "state"},
            "artifacts": (tmp_path / "artifacts").as_uri(),
            "tables": ["s.*"],
            "schedule": {"start": "2020-01-01T00:00:00Z"},
            "policies": {"quarantine": "continue", **policies},
            "targets": [{"name": "mirror", "type": "postgres", "connection": "target"}],
        }
        (tmp_path / "shop.yaml").write_text(yaml.safe_dump(declared))
        connections = {
            "kafka": Connection(conn_id="kafka", conn_type="kafka", extra={"bootstrap.servers": kafka.bootstrap}),
            "state": postgres("state", state),
            "target": postgres("target", target),
        }
        with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections(connections)) as context:
            yield context, target

    return make


def postgres(conn_id: str, dsn: str) -> Connection:
    parts = urlsplit(dsn)
    return Connection(
        conn_id, "postgres", parts.hostname, parts.port, parts.username, parts.password, parts.path.lstrip("/")
    )


def replay(context: ReplayContext, first: float, end: float) -> ChangelogIndex:
    """A window from Kafka to the mirror, as a run does it, and once more. DDL of other tables waits for a person."""
    index = decode(context, pin(context, Window(at(first), at(end))))
    for _ in range(2):
        written = write_load_job(context, index.run_hash, "mirror", ("s.t",))
        job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(f"{context.artifacts_uri}/")))
        assert isinstance(job, jobspec.LoadJob)
        report = load(job, context.connections, in_process)
        context.artifacts.put_once(report.name, canonical.encode(report))
        publish(context, index.run_hash, ["mirror"])
    return index


def mirrored(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT id, v FROM s.t ORDER BY id").fetchall()


@pytest.mark.parametrize(("recorded_ms", "unproven"), [(RECORDED, "stop"), (OLD, "allow")], ids=["proven", "unproven"])
def test_a_window_of_open_protocol(
    producer: Producer,
    make_topic: Callable[..., str],
    make_context: Callable[..., Any],
    recorded_ms: Sequence[int | None],
    unproven: str,
) -> None:
    feed = Feed(producer, make_topic(1, FOREVER))
    odd: dict[str, Any] = {"t": 3, "f": 0, "v": 1}
    row, columns = open_protocol.row, open_protocol.columns
    hostile = [
        *(row(at(20), new=columns(99), ptn=number) for number in (1 << 63, -1, True, 1.5, 10**4_000)),
        *(row(number, new=columns(99)) for number in (1 << 63, -1, 10**400)),
        *(row(at(20), new=columns(99) | {name: odd}) for name in ("", "a\0", LONG, "n" * 100_000)),
        row(at(20), new=columns(99) | {f"c{number}": odd for number in range(5_000)}),
        *(row(at(20), new=columns(99), table=name) for name in (LONG, "a\0")),
        *(row(at(20), new=columns(99), table="t" * count) for count in (65, 250)),
        row(at(20), new=columns(99) | {"v": {"t": 3, "f": 0, "v": 10**400}}),
        row(at(20), new=columns(1 << 70)),
        *(open_protocol.ddl(at(20), "q", table="u", kind=kind) for kind in (1 << 63, -1)),
        *(open_protocol.ddl(at(20), "q", table=name) for name in (LONG, "a\0")),
        open_protocol.ddl(at(20), "q", schema=LONG),
    ]
    send(feed, hostile, lambda event: open_protocol.message([event], 0), recorded_ms)
    with make_context(feed, "protocol=open-protocol", unproven=unproven) as (context, dsn):
        judge(context, dsn, len(hostile))


def test_a_window_of_canal_json(
    producer: Producer, make_topic: Callable[..., str], make_context: Callable[..., Any]
) -> None:
    feed = Feed(producer, make_topic(1, FOREVER))
    ts = at(20)

    def row(**more: Any) -> bytes:
        return canal_json.row(**{"ts": ts, "data": {"id": "99", "v": "x", **more.pop("cells", {})}, **more})

    hostile = [
        *(row(cells={name: "1"}) for name in ("", "a\0", LONG, "n" * 100_000)),
        row(cells={f"c{number}": "1" for number in range(5_000)}),
        *(row(table=name) for name in (LONG, "a\0", "t" * 65)),
        row(data={"id": "1" * 400, "v": "x"}),
        *(row().replace(b'"commitTs":%d' % ts, b'"commitTs":%b' % number) for number in (b"-1", b"true", b"1" * 400)),
        *(canal_json.ddl("q", ts=ts, table=name) for name in (LONG, "a\0")),
        canal_json.ddl("q", ts=ts, schema=LONG),
    ]
    send(feed, hostile, canal_json.message)
    with make_context(feed, "protocol=canal-json&enable-tidb-extension=true") as (context, dsn):
        judge(context, dsn, len(hostile))


def send(
    feed: Feed,
    hostile: list[Any],
    message: Callable[[Any], RawMessage],
    recorded_ms: Sequence[int | None] = RECORDED,
) -> None:
    """Good rows of two windows, [10, 40) and [40, 70), with *hostile* events, recorded at *recorded_ms* in turn, and odd DDL
    between them."""
    is_open = isinstance(hostile[0], tuple)

    def row(second: float, key: int) -> Any:
        if is_open:
            return open_protocol.row(at(second), new=open_protocol.columns(key, "x"))
        return canal_json.row(ts=at(second), data={"id": str(key), "v": "x"}, types={"id": "bigint"})

    def ddl(second: float, query: str) -> Any:
        table = "t" if "`t`" in query else "u"
        if is_open:
            return open_protocol.ddl(at(second), query, table=table)
        return canal_json.ddl(query, ts=at(second), table=table)

    def resolved(second: float) -> Any:
        return open_protocol.resolved(at(second)) if is_open else canal_json.watermark(at(second))

    feed.send(0, message(resolved(0)))
    feed.send(1, message(ddl(1, CREATE)))
    feed.send(5, message(resolved(5)))
    for number, (second, event) in enumerate([(20.0, event) for event in hostile]):
        feed.send(second, message(row(12 + number / 10, number)))
        feed.send(second, message(event), recorded_ms[number % len(recorded_ms)])
    for number, query in enumerate(ODD_DDL):
        feed.send(25, message(ddl(25 + number, query)))
    feed.send(40, message(resolved(40)))
    feed.send(50, message(row(50, 1_000)))
    feed.send(70, message(resolved(70)))
    feed.flush()


def judge(context: ReplayContext, dsn: str, hostile: int, unwanted: int = 1) -> list[Entry]:
    """What became of the windows of ``send``; the first one's quarantine. *unwanted* are DDLs of a schema that nobody wants."""
    first = replay(context, 10, 40)
    entries = read_entries(context.artifacts, first)
    assert "decoder_failed" not in {entry.reason for entry in entries}
    assert first.report.messages.consumed
    assert mirrored(dsn) == [(number, "x") for number in range(hostile)]
    replay(context, 40, 70)
    assert mirrored(dsn) == [*((number, "x") for number in range(hostile)), (1_000, "x")]
    assert len(entries) == hostile - unwanted
    return entries


@pytest.mark.parametrize("is_open", [True, False], ids=["open-protocol", "canal-json"])
def test_times_of_commits_that_can_not_be(
    producer: Producer, make_topic: Callable[..., str], make_context: Callable[..., Any], is_open: bool
) -> None:
    feed = Feed(producer, make_topic(1, FOREVER))
    far = tso.MAX_TSO - 1
    hostile: list[Any]
    if is_open:
        new = open_protocol.columns(99, "x")
        hostile = [
            open_protocol.row(far, new=new),
            open_protocol.ddl(far, "DROP TABLE `t`"),
            open_protocol.resolved(far),
        ]
        message, options = (lambda event: open_protocol.message([event], 0)), "protocol=open-protocol"
    else:
        row = canal_json.row(ts=far, data={"id": "99", "v": "x"}, types={"id": "bigint"})
        hostile = [row, canal_json.ddl("DROP TABLE `t`", ts=far, table="t"), canal_json.watermark(far)]
        message, options = canal_json.message, "protocol=canal-json&enable-tidb-extension=true"
    send(feed, hostile, message, [None])
    with make_context(feed, options) as (context, dsn):
        entries = judge(context, dsn, len(hostile), unwanted=0)
        assert {entry.reason for entry in entries} == {"bad_value", "bad_ddl", "bad_watermark"}


@pytest.mark.parametrize("recorded_ms", [-1, START_MS - 60_000])
def test_a_record_that_is_older_than_its_commit_leaves_the_windows_that_begin_near_it_unproven(
    producer: Producer, make_topic: Callable[..., str], make_context: Callable[..., Any], recorded_ms: int
) -> None:
    """Rows of a clock that is so late may lie before the range: that only one record shows it proves nothing."""
    feed = Feed(producer, make_topic(1, FOREVER))

    def message(event: Any) -> RawMessage:
        return open_protocol.message([event], 0)

    for second in (0, 5, 40, 80, 140, 200, 260):
        feed.send(second, message(open_protocol.resolved(at(second))))
        if second == 5:
            feed.send(6, message(open_protocol.ddl(at(6), CREATE, table="t")))
            old = open_protocol.row(at(12), new=open_protocol.columns(1, "x"))
            feed.send(12, message(old), recorded_ms)
    feed.flush()
    with make_context(feed, "protocol=open-protocol", unproven="stop") as (context, _):
        with pytest.raises(UnprovenWindowError, match=rf"{feed.topic}\[0\]@3: commitTs .* of its record"):
            pin(context, Window(at(10), at(40)))
        later = pin(context, Window(at(140), at(200)))
        assert later.manifest.grade == "proven"
    with make_context(feed, "protocol=open-protocol", unproven="allow") as (context, dsn):
        replay(context, 10, 40)
        assert mirrored(dsn) == [(1, "x")]


def test_rows_of_open_protocol_that_their_table_can_not_have(
    producer: Producer, make_topic: Callable[..., str], make_context: Callable[..., Any]
) -> None:
    feed = Feed(producer, make_topic(1, FOREVER))
    usual = open_protocol.columns(99, "x")
    key, value, number = usual["id"], usual["v"], {"t": 3, "f": 65, "v": 1}
    layouts = [
        usual | {"w": number},
        {"id": key, "v": number},
        *({"id": key | other, "v": value} for other in ({"t": 15, "f": 10, "v": "5"}, {"t": 246, "v": "1"}, {"t": 3})),
        {"id": {"t": 8, "f": 1, "v": 99}, "v": value},
        {"id": key, "v": value | {"f": 66, "h": True}},
        {"v": value},
        {"id": key},
        {"ID": key, "v": value},
        {"id": key, "V": value},
    ]
    rows = [open_protocol.row(at(20 + second / 10), new=layout) for second, layout in enumerate(layouts)]
    send(feed, rows, lambda event: open_protocol.message([event], 0), [None])
    with make_context(feed, "protocol=open-protocol") as (context, dsn):
        entries = judge(context, dsn, len(rows), unwanted=0)
        assert {entry.reason for entry in entries} == {"row_unlike_definition"}


def test_rows_of_canal_json_that_their_table_can_not_have(
    producer: Producer, make_topic: Callable[..., str], make_context: Callable[..., Any]
) -> None:
    feed = Feed(producer, make_topic(1, FOREVER))
    usual, types = {"id": "99", "v": "x"}, {"id": "bigint"}
    layouts: list[dict[str, Any]] = [
        {"data": usual | {"w": "1"}},
        {"data": usual, "types": types | {"v": "json"}},
        *({"data": usual | {"id": "1"}, "types": {"id": other}} for other in ("int", "decimal", "varchar", "bigint unsigned")),
        *({"data": data} for data in ({"v": "x"}, {"id": "99"}, {"ID": "99", "v": "x"}, {"id": "99", "V": "x"})),
        *({"data": usual, "pk": key} for key in (["v"], ["id", "v"])),
    ]  # fmt: skip
    rows = [
        canal_json.row(ts=at(20 + second / 10), **{"types": types, **layout}) for second, layout in enumerate(layouts)
    ]
    send(feed, rows, canal_json.message, [None])
    with make_context(feed, "protocol=canal-json&enable-tidb-extension=true") as (context, dsn):
        entries = judge(context, dsn, len(rows), unwanted=0)
        assert {entry.reason for entry in entries} == {"row_unlike_definition"}


def test_a_row_that_stops_a_load_is_set_aside_by_name_and_the_window_is_complete_once_it_is_accepted(
    producer: Producer, make_topic: Callable[..., str], make_context: Callable[..., Any]
) -> None:
    """Without DDL nothing tells which of two layouts is the table's."""
    feed = Feed(producer, make_topic(1, FOREVER))
    odd = open_protocol.columns(99, "x") | {"v": {"t": 3, "f": 65, "v": 1}}
    rows = [open_protocol.row(at(12 + key), new=open_protocol.columns(key, "x")) for key in range(3)]
    rows.insert(2, open_protocol.row(at(20), new=odd))
    for event in (open_protocol.resolved(at(5)), *rows, open_protocol.resolved(at(40))):
        feed.send(40, open_protocol.message([event], 0))
    feed.flush()
    place = f"{feed.topic}[0]@3"
    with make_context(feed, "protocol=open-protocol") as (context, dsn):
        with pytest.raises(
            TargetMismatchError, match="name their messages in set_aside of the pipeline file"
        ) as caught:
            replay(context, 10, 40)
        assert f"- 1, with v int; such as {place}, event 0" in str(caught.value)
        loaded = context.loaded
        named = loaded._replace(pipeline=loaded.pipeline.model_copy(update={"set_aside": (place, "other[0]@3")}))
        with ReplayContext(named, context.connections) as again:
            index = replay(again, 10, 40)
            assert mirrored(dsn) == [(key, "x") for key in range(3)]
            (entry,) = read_entries(again.artifacts, index)
            assert (entry.coordinates, entry.reason) == (f"{place}#0", "set_aside")
            assert coverages(again) == ["quarantine"]
            accept(again, Selection(), "Ada Berg", "another program's row, see ticket 88")
            assert coverages(again) == ["complete"]


def coverages(context: ReplayContext) -> list[str]:
    return [table.quality for record in context.state.coverage.all(context.pipeline.name) for table in record.tables]
