"""From a dump and a topic to mirrors that equal the upstream: killed, repeated, and with windows in any order."""

import os
import re
from collections.abc import Callable
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
import yaml
from mypy_boto3_s3 import S3Client
from typer.testing import CliRunner, Result

from demo.embedded_stack.s3 import MotoServer
from tests.integration.snapshot.feed import at
from tests.support.dumpling_files import Kind, Table, Variant, write_dump
from tests.support.in_process import InProcess
from tests.support.mirror_rig import TABLE, Rig
from tests.support.open_protocol import columns, ddl, row
from tests.support.seeds import read_dump, request_of, seed_job
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.cli.main import app
from ticdc_replay.domain.errors import (
    ArtifactCorruptError,
    ConfigError,
    NotCoveredError,
    ObjectAlteredError,
    TargetMismatchError,
    UnprovenWindowError,
)
from ticdc_replay.drivers.seed import run_seed
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.publish import publish
from ticdc_replay.stages.seed.continuation import require_continuation
from ticdc_replay.stages.seed.jobs import seed_targets
from ticdc_replay.stages.upkeep.mirrors import forget
from ticdc_replay.stages.upkeep.prune import prune
from ticdc_replay.stages.upkeep.rebuild import rebuild
from ticdc_replay.stages.window.bases import find_bases
from ticdc_replay.stages.window.jobs import write_load_job
from ticdc_replay.targets.mirror import load as mirror_load

pytestmark = pytest.mark.integration

TAKEN = at(20)
"""The TSO of the dump."""
CREATE = (
    "CREATE TABLE `{}` (\n  `id` bigint NOT NULL,\n  `v` varchar(100) DEFAULT NULL,\n  `price` decimal(10,2) DEFAULT NULL,\n"
    "  `state` enum('new','done') DEFAULT NULL,\n  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */\n) ENGINE=InnoDB"
)
KINDS: list[Kind] = ["number", "string", "number", "string"]
NAMES = ["id", "v", "price", "state"]


def dumped(name: str, *rows: tuple[bytes | None, ...]) -> Table:
    return Table("s", name, CREATE.format(name), NAMES, KINDS, rows)


DUMP = [
    dumped("t", (b"1", b"one", b"1.50", b"new"), (b"2", b"two", None, None), (b"3", b"three", b"3.00", b"done")),
    dumped("u", *[(str(number).encode(), b"u", b"0.01", b"new") for number in range(500)]),
    dumped("empty"),
]


def cells(price: str | None = None, state: int | None = None) -> dict[str, dict[str, Any]]:
    """Columns whose types Kafka does not say in full: digits of a decimal, names of an enum."""
    return {"price": {"t": 246, "f": 0, "v": price}, "state": {"t": 247, "f": 64, "v": state}}


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """Changes from before the changefeed sent any CREATE TABLE, around second 20."""
    made = make_rig()
    made.send(11, row(at(11), new=columns(1, "older", **cells("9.99", 2))))
    made.send(12, row(at(12), new=columns(9, "gone by the dump", **cells())))
    made.resolved(15)
    made.send(16, row(at(16), old=columns(9, "gone by the dump", **cells())))
    made.send(20, row(TAKEN, new=columns(2, "two", **cells())))
    made.send(25, row(at(25), new=columns(2, "newer", **cells("2.25", 2)), old=columns(2, "two", **cells())))
    made.send(26, row(at(26), new=columns(4, "four", **cells("0.10", 1))))
    made.resolved(30)
    made.send(35, row(at(35), old=columns(3, "three", **cells("3.00", 2))))
    made.send(36, row(at(36), new=columns(1, "u", **cells("7.00", 1)), table="empty"))
    made.resolved(40, 41)
    return made


@pytest.fixture
def make_rig(make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rig]:
    """As the others' has it, without the CREATE TABLE: the tables are older than the changefeed."""

    def made(**policies: str) -> Rig:
        with monkeypatch.context() as patch:
            patch.setattr(Rig, "send", lambda *_: None if _[2] == CREATED else SEND(*_))
            return make_rig(**policies)

    return made


SEND = Rig.send
CREATED = ddl(at(10), "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(100), w VARCHAR(10))")
WINDOWS = [(at(9), at(15)), (at(15), at(30)), (at(30), at(40))]
EXPECTED = [
    (1, "one", Decimal("1.50"), "new"),
    (2, "newer", Decimal("2.25"), "done"),
    (4, "four", Decimal("0.10"), "new"),
]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "dump", DUMP, TAKEN, Variant(file_rows=100))


def seed(rig: Rig, dump: Path, tables: tuple[str, ...] | None = None) -> ChangelogIndex:
    require_continuation(rig.context, TAKEN)
    index = read_dump(rig.context, request_of(dump), tables)
    load(rig, index, tables)
    return index


def load(rig: Rig, index: ChangelogIndex, tables: tuple[str, ...] | None = None) -> None:
    for name in seed_targets(rig.context):
        rig._load(write_load_job(rig.context, index.run_hash, name, tables).uri)
    publish(rig.context, index.run_hash, seed_targets(rig.context))


def found(rig: Rig, query: LiteralString = "SELECT id, v, price, state FROM s.t ORDER BY id") -> list[tuple[Any, ...]]:
    with psycopg.connect(rig.dsn) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_windows_in_any_order_continue_a_dump(rig: Rig, dump: Path, order: tuple[int, ...]) -> None:
    seed(rig, dump)
    for number in order:
        rig.replay(*WINDOWS[number])
    assert found(rig) == EXPECTED
    assert found(rig, "SELECT count(*), min(_commit_ts), max(_commit_ts) FROM s.u") == [(500, TAKEN, TAKEN)]
    assert found(rig, "SELECT id, price FROM s.empty") == [(1, Decimal("7.00"))]
    assert rig.held == ["complete"]


def test_a_seed_that_is_killed_twice_ends_as_one_that_is_not(
    rig: Rig, dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def dying(number: int) -> Callable[..., Any]:
        left = iter(range(number))

        def commit(*arguments: Any) -> Any:
            if next(left, None) is None:
                raise KilledError
            return COMMIT(*arguments)

        return commit

    for tables_done in (0, 2):  # of three
        with monkeypatch.context() as patch:
            patch.setattr(mirror_load, "commit_table", dying(tables_done))
            with pytest.raises(KilledError):
                seed(rig, dump)
    done = ("s.empty", "s.t")
    rig.load(rig.decode(*WINDOWS[2], tables=done), done)  # what is seeded goes on meanwhile
    index = seed(rig, dump)
    outcomes = {str(report.table): report.outcome for report in rig.report(index.run_hash).tables}
    assert outcomes == {"s.empty": "done_before", "s.t": "done_before", "s.u": "loaded"}
    for window in WINDOWS:
        rig.replay(*window)
    assert found(rig) == EXPECTED
    assert found(rig, "SELECT count(*) FROM s.u") == [(500,)]


COMMIT = mirror_load.commit_table


def test_a_dump_that_was_read_is_not_read_again(rig: Rig, dump: Path) -> None:
    request = request_of(dump)
    job, _ = seed_job(rig.context, request)
    first = run_seed(InProcess(), job, rig.connections)
    for file in dump.iterdir():
        file.unlink()
    assert run_seed(InProcess(), job, rig.connections) == first


def test_a_dump_that_changes_is_noticed(rig: Rig, dump: Path) -> None:
    first, _ = seed_job(rig.context, request_of(dump))
    (dump / "s.t.000000000.csv").write_bytes(b"changed")
    with pytest.raises(ObjectAlteredError, match="is not the file that the seed began with"):
        run_seed(InProcess(), first, rig.connections)
    second, _ = seed_job(rig.context, request_of(dump))
    assert second.run_hash != first.run_hash


def test_a_list_of_files_that_was_edited_is_refused(rig: Rig, dump: Path) -> None:
    job, _ = seed_job(rig.context, request_of(dump))
    (listed,) = rig.context.artifacts.list("dumps/")
    rig.context.artifacts.put(listed.name, b"{}")
    with pytest.raises(ArtifactCorruptError, match="does not have the hash in its name"):
        run_seed(InProcess(), job, rig.connections)


def test_a_base_is_kept_and_no_source_of_windows(rig: Rig, dump: Path) -> None:
    index = seed(rig, dump)
    for file in (rig.folder / "artifacts" / "shop" / "runs" / index.run_hash).rglob("*"):
        os.utime(file, (0, 0))
    (stored,) = prune(rig.context, keep_days=1, even_if_last=True)
    assert stored.run_hash == index.run_hash
    assert stored.kept == ("it is the base of mirrors",)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_seeded_mirror_that_was_dropped_is_built_again_with_its_base(
    rig: Rig, dump: Path, is_forgotten: bool
) -> None:
    """Its windows alone have no row that did not change since the dump."""
    seed(rig, dump)
    rig.replay(*WINDOWS[1])
    rig.execute("DROP TABLE s.t")
    with pytest.raises(
        TargetMismatchError, match=r"build the mirror again: `ticdc-replay mirror rebuild <pipeline> s.t`"
    ):
        rig.replay(*WINDOWS[2])
    if is_forgotten:
        forget(rig.context, rig.target, TABLE)
    rebuild(rig.context, rig.target, TABLE, rig._load, lambda _: None)
    rig.replay(*WINDOWS[2])
    assert found(rig) == EXPECTED


@pytest.mark.parametrize("first", ["base", "window"])
def test_a_window_of_the_very_tso_of_a_dump_takes_nothing_from_its_base(rig: Rig, dump: Path, first: str) -> None:
    """A stop at a DDL asks for such a window, and a person loads one again."""
    if first == "window":
        rig.replay(TAKEN, TAKEN + 1)
        read_dump(rig.context, request_of(dump))
    else:
        seed(rig, dump, ("s.t",))
        rig.load(rig.decode(TAKEN, TAKEN + 1), reload=True)
    seed(rig, dump, ("s.u", "s.empty"))
    rig.execute("DELETE FROM s.t WHERE id = 1")
    rebuild(rig.context, rig.target, TABLE, rig._load, lambda _: None)
    for window in (*WINDOWS, (TAKEN, TAKEN + 1)):
        rig.replay(*window)
    assert found(rig) == EXPECTED
    assert found(rig, "SELECT count(*) FROM s.u") == [(500,)]


@pytest.mark.parametrize("first", ["base", "window"])
def test_files_of_a_base_and_of_the_window_of_its_tso_do_not_replace_each_other(
    rig: Rig, dump: Path, tmp_path: Path, first: str
) -> None:
    """A target of files has one run of each window."""
    rig._declared["targets"] = [{"name": "files", "type": "parquet", "uri": (tmp_path / "files").as_uri()}]
    rig.target = "files"
    rig.context.__exit__()
    rig.context = rig._context()
    runs = [read_dump(rig.context, request_of(dump)).run_hash, rig.decode(TAKEN, TAKEN + 1)]
    if first == "window":
        runs.reverse()
    rig.load(runs[0])
    rig.load(runs[0], reload=True)
    with pytest.raises(ConfigError, match="one would replace the other"):
        rig.load(runs[1])


def test_mirrors_that_hold_rows_are_named(rig: Rig, dump: Path) -> None:
    rig.replay(*WINDOWS[0])
    with pytest.raises(TargetMismatchError, match=r'"s"."t" holds rows'):
        seed(rig, dump)
    seed(rig, dump, ("s.u", "s.empty"))
    assert found(rig, "SELECT count(*) FROM s.u") == [(500,)]


def test_a_seed_of_more_tables_and_by_a_newer_version_goes_on(
    rig: Rig, dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is another run. What the same files have filled is done; a table whose dump is another one is not."""
    seed(rig, dump, ("s.t",))
    for window in WINDOWS:
        rig.replay(*window)
    monkeypatch.setattr("ticdc_replay.stages.seed.jobs.__version__", "999")
    with pytest.raises(TargetMismatchError, match=r'"s"."empty" holds rows'):
        seed(rig, dump)
    index = seed(rig, dump, ("s.t", "s.u"))
    outcomes = {str(each.table): each.outcome for each in rig.report(index.run_hash).tables}
    assert outcomes == {"s.t": "done_before", "s.u": "loaded"}
    assert (found(rig), found(rig, "SELECT count(*) FROM s.u")) == (EXPECTED, [(500,)])
    (dump / "s.t.000000000.csv").write_bytes((dump / "s.t.000000000.csv").read_bytes() + b'4,"x",\\N,\\N\r\n')
    with pytest.raises(TargetMismatchError, match=r'"s"."t" holds rows'):
        seed(rig, dump, ("s.t",))


def test_a_dump_from_before_what_kafka_holds_is_refused(rig: Rig, dump: Path) -> None:
    delete_before(rig, 5)
    with pytest.raises(
        NotCoveredError, match="nothing can continue from there: Kafka holds what committed from"
    ) as refused:
        seed(rig, dump)
    assert "no changelog that can be used holds" in str(refused.value)


def test_changelogs_up_to_where_kafka_begins_continue_a_dump(rig: Rig, dump: Path) -> None:
    rig.resolved(70, 71)
    for window in (*WINDOWS[1:], (at(40), at(65))):  # clocks may differ by 30 s
        check(rig.context, rig.decode(*window))
    delete_before(rig, 7)
    require_continuation(rig.context, TAKEN)


def test_a_changefeed_that_began_after_the_dump_is_refused(make_rig: Callable[..., Rig], dump: Path) -> None:
    made = make_rig(unproven="stop")
    with pytest.raises(UnprovenWindowError, match="nothing shows that changes continue it"):
        require_continuation(made.context, at(0) - 1)
    require_continuation(made.context, at(0))


def test_a_topic_whose_messages_have_all_expired_shows_nothing(make_rig: Callable[..., Rig]) -> None:
    made = make_rig(unproven="stop")
    made._declared["changefeed"]["start_ts"] = at(0) - 1
    made.context.__exit__()
    made.context = made._context()
    require_continuation(made.context, TAKEN)
    delete_before(made, 0)
    with pytest.raises(
        UnprovenWindowError, match="have expired, and some may have been of what committed after the dump"
    ):
        require_continuation(made.context, TAKEN)


@pytest.mark.parametrize("consistency", ["flush", "lock", "none"])
def test_a_dump_of_another_consistency_is_refused(rig: Rig, dump: Path, consistency: str) -> None:
    with pytest.raises(ConfigError, match=f"--consistency {consistency}: such a dump has rows of several moments"):
        read_dump(rig.context, request_of(dump, consistency=consistency))


def test_a_base_of_a_lost_state_store_is_found_again_once_its_dump_is_read_again(rig: Rig, dump: Path) -> None:
    index = read_dump(rig.context, request_of(dump))
    rig.context.__exit__()
    (state,) = rig.folder.rglob("state.db")
    state.unlink()
    rig.context = rig._context()
    assert list(find_bases(rig.context)) == []
    assert read_dump(rig.context, request_of(dump)) == index
    assert list(find_bases(rig.context)) == [index]


def test_a_time_zone_that_does_not_exist_is_refused(rig: Rig, dump: Path) -> None:
    with pytest.raises(ConfigError, match="--timezone: 'Moon/Base'"):
        read_dump(rig.context, request_of(dump, zone="Moon/Base"))


def delete_before(rig: Rig, left: int) -> None:
    """Have Kafka remove all messages of the topic but the last *left*."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    options = dict(rig.connections["kafka"].extra)
    admin = AdminClient({"bootstrap.servers": str(options["bootstrap.servers"])})
    place = TopicPartition(rig.topic, 0)
    (answer,) = admin.list_offsets({place: OffsetSpec.latest()}).values()
    for future in admin.delete_records([TopicPartition(rig.topic, 0, answer.result().offset - left)]).values():
        future.result()


@pytest.fixture
def command(rig: Rig, s3: MotoServer) -> Callable[..., Result]:
    """``ticdc-replay mirror seed`` of the rig's pipeline, whose jobs run without Spark."""
    rig._declared["runner"] = "local"
    rig._declared["connections"] = {"kafka": "kafka", "dumps": "dumps"}
    (rig.folder / "shop.yaml").write_text(yaml.safe_dump(rig._declared))
    warehouse = rig.connections["warehouse"]
    connections = {
        "kafka": {"conn_type": "kafka", "extra": rig.connections["kafka"].extra},
        "warehouse": {
            "conn_type": "postgres",
            "host": warehouse.host,
            "port": warehouse.port,
            "login": warehouse.login,
            "password": warehouse.password,
            "schema": warehouse.schema,
        },
        "dumps": {
            "conn_type": "aws",
            "login": s3.access_key,
            "password": s3.secret_key,
            "extra": {"endpoint_url": s3.endpoint, "region_name": s3.region},
        },
    }
    file = rig.folder / "connections.yaml"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(connections))

    def run(*options: str) -> Result:
        arguments = ["mirror", "seed", str(rig.folder / "shop.yaml"), "--connections", str(file), *options]
        return CliRunner(env={"COLUMNS": "300"}).invoke(app, arguments)

    return run


def test_a_dump_can_be_kept_for_a_rebuild_alone(rig: Rig, dump: Path, command: Callable[..., Result]) -> None:
    rig.replay(*WINDOWS[0])
    before = found(rig)
    kept = command("--dump", str(dump), "--consistency", "snapshot", "--only-base", "--table", "s.t")
    assert kept.exit_code == 0, kept.output
    assert found(rig) == before
    (base,) = re.findall("--dump-base ([0-9a-f]+)", kept.output)
    rebuild(rig.context, rig.target, TABLE, rig._load, lambda _: None, base)
    assert found(rig, "SELECT id, v FROM s.t ORDER BY id") == [(1, "one"), (2, "two"), (3, "three")]
    for window in WINDOWS[1:]:
        rig.replay(*window)
    assert found(rig) == EXPECTED


def test_the_command_seeds_from_a_bucket(
    rig: Rig, dump: Path, command: Callable[..., Result], s3_client: S3Client, make_bucket: Callable[[], str]
) -> None:
    bucket = make_bucket()
    for file in dump.iterdir():
        s3_client.upload_file(str(file), bucket, f"dumps/march/{file.name}")
    place = ("--dump", f"s3://{bucket}/dumps/march/", "--consistency", "snapshot")
    first = command(*place)
    assert first.exit_code == 0, first.output
    assert "6 files, taken at" in first.output
    assert found(rig, "SELECT count(*) FROM s.u") == [(500,)]
    again = command(*place)
    assert again.exit_code == 0, again.output
    assert "done_before" in again.output
    for window in WINDOWS:
        rig.replay(*window)
    assert found(rig) == EXPECTED


def test_the_command_says_what_is_wrong(rig: Rig, dump: Path, command: Callable[..., Result]) -> None:
    place = ("--dump", str(dump), "--consistency")
    for options, message in (
        ((*place, "none"), "--consistency none: such a dump has rows of several moments"),
        ((*place, "auto", "--target", "lake"), "--target: lake is not in the pipeline; its targets: warehouse"),
        ((*place, "auto", "--csv-null-value", "0"), "--csv-null-value: '0' may be a number of a row, too"),
        ((*place, "auto", "--table", "other.*"), "which no pattern of pipeline shop covers"),
        (("--dump", str(dump.parent), "--consistency", "auto"), "there is no file metadata"),
    ):
        result = command(*options)
        assert result.exit_code == 2, result.output
        assert message in result.stderr.replace("\n", " ")
    assert command("--dump", str(dump)).exit_code == 2  # the consistency must be said
    (dump / "s.t.000000000.csv").write_bytes(b'"id","v","price","state"\r\n1,"one","1.2.3","new"\r\n')
    result = command(*place, "auto")
    assert result.exit_code == 2
    assert (
        "s.t.000000000.csv, row 1: price is decimal(10,2) in s.t: a text of 5 characters is not a decimal number"
        in result.stderr.replace("\n", " ")
    )
    assert not found(rig, "SELECT 1 FROM pg_tables WHERE tablename IN ('t', 'u', 'empty')")


def test_a_routed_table_is_seeded_under_the_name_of_its_events(rig: Rig, tmp_path: Path) -> None:
    rig._declared["changefeed"]["config"] += (  # type: ignore[index]
        "[[sink.dispatchers]]\nmatcher = ['up.t']\ntarget-schema = 's'\ntarget-table = 'routed_{table}'\n"
    )
    rig.context.__exit__()
    rig.context = rig._context()
    table = Table("up", "t", CREATE.format("t"), NAMES, KINDS, ((b"1", b"one", b"1.50", b"new"),))
    other = Table("up", "left_out", CREATE.format("left_out"), NAMES, KINDS, ())
    index = read_dump(rig.context, request_of(write_dump(tmp_path / "dump", [table, other], TAKEN, Variant())))
    load(rig, index)
    assert [str(name) for name in index.table_names()] == ["s.routed_t"]
    assert found(rig, "SELECT id, v FROM s.routed_t") == [(1, "one")]
