"""``ticdc-replay mirror rebuild``: a mirror out of changelogs alone, beside the old one, in every kind of database."""

import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
import pymysql
import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.integration.snapshot.feed import at
from tests.support.deaths import die_at_statements
from tests.support.dying_loads import watch_writes
from tests.support.feeding import EXPECTED, WINDOWS, Feeding, KilledError, dumped
from tests.support.in_process import in_process
from tests.support.mirror_rig import OLD, TABLE
from tests.support.open_protocol import columns, ddl, row
from tests.support.seeds import read_dump, request_of
from tests.support.spark_versions import lake_jars
from tests.support.target_rigs import LakeRig
from tests.support.waiting import wait_for
from ticdc_replay import jobspec
from ticdc_replay.cli.main import app
from ticdc_replay.domain.errors import ConfigError, PolicyStopError, TargetMismatchError, TransientError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.trace.trace import trace
from ticdc_replay.stages.upkeep.begun_rebuilds import begun
from ticdc_replay.stages.upkeep.follow import follow, stopping_ddl
from ticdc_replay.stages.upkeep.mirrors import forget, opened_target
from ticdc_replay.stages.upkeep.prune import prune
from ticdc_replay.stages.upkeep.rebuild import abandon, rebuild
from ticdc_replay.stages.upkeep.rebuild_plan import plan_rebuild
from ticdc_replay.stages.upkeep.verification import Verification
from ticdc_replay.stages.upkeep.verify_changelogs import verify_changelogs
from ticdc_replay.stages.window.jobs import write_load_job
from ticdc_replay.targets.base import ReplaceableMirror
from ticdc_replay.targets.load import load as load_into
from ticdc_replay.targets.mirror import verify_beside
from ticdc_replay.verify.compare import Pace

pytestmark = pytest.mark.integration


def test_what_is_known_of_loads_is_of_the_new_mirror(fed: Feeding) -> None:
    """So a comparison that was interrupted begins anew (``stages.upkeep.verify``)."""
    fed.replay(0, 1, 2)
    before = fed.rig.context.state.coverage.all("shop")
    fed.rebuild()
    after = fed.rig.context.state.coverage.all("shop")
    assert [record.run_hash for record in after] == [record.run_hash for record in before]
    assert not {record.attempt for record in after} & {record.attempt for record in before}


def test_a_mirror_that_somebody_spoilt_is_as_before(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    ledger = fed.ledger
    fed.database.execute("UPDATE s.t SET v = 'spoilt'")
    fed.database.execute("DELETE FROM s.t WHERE id = 3")
    done = fed.rebuild()
    assert (done.windows, done.end_ts, done.lost_indexes) == (3, at(30), ())
    assert fed.rows == EXPECTED
    assert (fed.side, fed.ledger) == ([], ledger)
    assert fed.rig.held == ["complete"]
    fed.replay(0)  # done before; and reloaded, it brings no deleted row back
    fed.rig.load(fed.rig.decode(*WINDOWS[0]), reload=True)
    assert fed.rows == EXPECTED


def test_a_mirror_begins_and_ends_to_keep_deleted_rows(fed: Feeding) -> None:
    if fed.is_lake:
        pytest.skip("a mirror in a lake begins to keep deleted rows when it gets the column")
    fed.replay(0, 1, 2)
    for deletes in ("soft", "hard"):
        fed.rig._declared["targets"][0]["deletes"] = deletes
        fed.rig.context.__exit__()
        fed.rig.context = fed.rig._context()
        index = fed.rig.decode(*WINDOWS[2])
        with pytest.raises(TargetMismatchError, match=r"mirror rebuild <pipeline> s\.t"):
            fed.rig.load(index, reload=True)
        fed.rebuild()
        fed.rig.load(index, reload=True)
        if deletes == "soft":
            rows = fed.database.rows("SELECT id, v, _is_deleted FROM s.t ORDER BY id")
            assert rows == [(1, "uno", False), (2, "two", True), (3, "three", False), (4, "four", False)]
    assert fed.rows == EXPECTED
    fed.rig.load(fed.rig.decode(*WINDOWS[0]), reload=True)
    assert fed.rows == EXPECTED, "the rebuilt mirror remembers the delete"


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_lake_table_that_was_rolled_back_is_as_before(fed: Feeding) -> None:
    """A TRUNCATE came since. A reload of its window does not follow it again: the floor in the ledger lies above it."""
    assert isinstance(fed.database, LakeRig)
    fed.replay(0, 1)
    version = fed.database.version("s.t")
    fed.rig.send(32, ddl(at(32), "TRUNCATE TABLE t", kind=11))
    fed.rig.send(33, row(at(33), new=columns(5, "five", **OLD)))
    fed.rig.resolved(35, 36)
    fed.replay(2)
    fed.rig.replay(at(30), at(35))
    fed.database.roll_back("s.t", version)
    fed.rebuild()
    assert fed.rows == [(5, "five")]


def test_a_lost_mirror_comes_back(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    fed.drop()
    fed.rebuild()
    assert fed.rows == EXPECTED


def test_a_mirror_that_was_forgotten_is_covered_again(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    fed.drop()
    forget(fed.rig.context, "warehouse", TABLE)
    fed.rebuild()
    assert fed.rows == EXPECTED
    qualities = {covered.quality for record in fed.rig.context.state.coverage.all("shop") for covered in record.tables}
    assert qualities == {"complete"}
    assert not trace(fed.rig.context, TABLE, {"id": "1"}).is_missing


def test_what_is_loaded_meanwhile_is_neither_lost_nor_doubled(fed: Feeding) -> None:
    fed.replay(0, 1)
    loaded: list[str] = []

    def submit(uri: str) -> None:
        fed.rig._load(uri)
        loaded.extend(runs := fed.loads(uri))
        if runs and len(loaded) == 2:
            fed.replay(2)

    fed.rebuild(submit)
    assert len(loaded) == 3
    assert fed.rows == EXPECTED
    assert [each for _, _, each in fed.ledger] == [from_ts for from_ts, _ in WINDOWS]


def test_a_window_that_only_the_old_mirror_has_is_named(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    with pytest.raises(PolicyStopError, match="windows that the new one lacks") as refused:
        fed.rebuild(to_ts=at(20))
    assert str(at(20)) in str(refused.value)
    assert fed.rows == EXPECTED
    fed.rebuild()
    assert fed.rows == EXPECTED


def test_a_window_that_was_not_loaded_is_named(fed: Feeding) -> None:
    fed.replay(0, 2)
    with pytest.raises(PolicyStopError, match="no run of") as refused:
        fed.rebuild()
    assert str(at(15)) in str(refused.value)
    assert str(at(20)) in str(refused.value)
    assert fed.side == []


def test_a_changelog_that_was_removed_is_named(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    run_hash = fed.remove_changelog(1)
    with pytest.raises(PolicyStopError, match=f"changelog of run {run_hash[:12]} .* was removed"):
        fed.rebuild()


def test_without_base_and_creation_nothing_begins(fed: Feeding) -> None:
    fed.replay(1, 2)
    with pytest.raises(PolicyStopError, match="no base of it is kept") as refused:
        fed.rebuild()
    assert str(at(15)) in str(refused.value)


def test_an_abandoned_rebuild_leaves_nothing(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    ledger = fed.ledger
    with pytest.raises(PolicyStopError):
        fed.rebuild(to_ts=at(20))
    assert fed.side != []
    assert abandon(fed.rig.context, "warehouse", TABLE, fed.rig._load)
    assert (fed.side, fed.ledger) == ([], ledger)
    assert not abandon(fed.rig.context, "warehouse", TABLE, fed.rig._load)
    if fed.is_lake:
        return
    tombstones = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'tombstones%'"
    assert fed.database.rows(tombstones) == [(1,)]


def test_a_table_that_was_never_a_mirror_keeps_its_rows(fed: Feeding, kind: str) -> None:
    fed.replay(0, 1, 2)
    fed.drop()
    forget(fed.rig.context, "warehouse", TABLE)
    using = f" USING {kind}" if fed.is_lake else ""
    fed.database.execute(f"CREATE TABLE s.t (id int, v varchar(20)){using}")
    fed.database.execute("INSERT INTO s.t VALUES (7, 'mine')")
    with pytest.raises(TargetMismatchError, match="is no mirror"):
        fed.rebuild()
    assert fed.rows == [(7, "mine")]
    fed.drop()
    fed.rebuild()
    assert fed.rows == EXPECTED


def test_a_base_is_the_beginning_and_older_windows_change_nothing(fed: Feeding, tmp_path: Path) -> None:
    fed.replay(0, 1, 2)
    rows = [(b"1", b"uno", None), (b"2", b"two", None), (b"3", b"three", None)]
    base = read_dump(fed.rig.context, request_of(dumped(tmp_path / "dump", at(18), *rows)))
    fed.remove_changelog(0)
    plan = plan_rebuild(fed.rig.context, "warehouse", TABLE)
    assert [source.window for source in plan.sources] == [base.window, *[Window(*each) for each in WINDOWS[1:]]]
    fed.rebuild()
    assert fed.rows == EXPECTED
    if fed.is_lake:
        return
    found = {version.version: version for version in trace(fed.rig.context, TABLE, {"id": "3"}).versions}
    assert [fate.fate for fate in found[at(18)].fates] == ["current"]
    fed.database.execute("DELETE FROM s.t WHERE id = 3")
    lost = trace(fed.rig.context, TABLE, {"id": "3"})
    assert lost.is_missing


def test_a_dump_that_is_kept_alone_replaces_a_mirror_after_a_ddl_that_only_it_can_follow(
    fed: Feeding, tmp_path: Path
) -> None:
    fed.replay(0, 1, 2)
    fed.rig.send(32, ddl(at(32), "ALTER TABLE t ADD c DATETIME DEFAULT CURRENT_TIMESTAMP", kind=5))
    fed.rig.send(36, row(at(36), old=columns(4, "four", **OLD)))
    fed.rig.resolved(40, 41)
    stopped = fed.rig.decode(at(30), at(32) + 1)
    with pytest.raises(PolicyStopError):
        fed.rig.load(stopped)
    with pytest.raises(PolicyStopError, match="only the upstream has its values"):
        follow(fed.rig.context, fed.rig.target, stopping_ddl(fed.rig.context, fed.rig.target, TABLE), fed.rig._load)
    rows = [(b"1", b"uno", None), (b"3", b"three", None), (b"4", b"four", None)]
    base = read_dump(fed.rig.context, request_of(dumped(tmp_path / "dump", at(34), *rows)))
    assert fed.rows == EXPECTED
    fed.rebuild(base=base.run_hash[:8])
    fed.rig.load(stopped)
    fed.replay_from(32, 40)
    assert fed.rows == EXPECTED[:-1]


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_table_that_can_not_be_renamed_gets_its_new_name_by_the_commands_of_the_refusal(
    fed: Feeding, tmp_path: Path
) -> None:
    fed.replay(0, 1, 2)
    fed.rig.send(32, ddl(at(32), "RENAME TABLE `s`.`t` TO `s`.`u`", table="u", kind=14))
    fed.rig.send(36, row(at(36), new=columns(5, "five", **OLD), table="u"))
    fed.rig.resolved(40, 41)
    stopped = fed.rig.decode(at(30), at(32) + 1)
    with pytest.raises(PolicyStopError):
        fed.rig.load(stopped)
    context, target = fed.rig.context, fed.rig.target
    with pytest.raises(PolicyStopError, match=r"can't (rename a table|be renamed)") as refused:
        follow(context, target, stopping_ddl(context, target, TABLE), fed.rig._load)
    commands = str(refused.value).split("\n")[1:]
    rows = [(b"1", b"uno", None), (b"3", b"three", None), (b"4", b"four", None)]
    base = read_dump(context, request_of(dumped(tmp_path / "dump", at(34), *rows, name="u")))
    assert commands[2].startswith("3. ticdc-replay mirror rebuild <pipeline> s.u --dump-base ")
    rebuild(context, target, TableName("s", "u"), fed.rig._load, lambda _: None, base.run_hash[:12])
    assert commands[3] == '4. Drop the table "s"."t"'
    fed.drop()
    assert commands[4] == f"5. ticdc-replay mirror floor <pipeline> s.t --at {at(32) + 1}"
    fed.rig.raise_floor(at(32) + 1)
    fed.rig.load(stopped)
    fed.replay_from(32, 40)
    assert fed.database.rows("SELECT id, v FROM s.u ORDER BY id") == [*EXPECTED, (5, "five")]
    assert not fed.database.has_table("s.t")
    assert fed.rig.held == ["complete"]


def test_a_rename_that_later_windows_came_before_is_led_over_by_the_commands_of_the_refusal(
    fed: Feeding, tmp_path: Path
) -> None:
    """A schedule goes on after the window of the RENAME stopped, and rows under the new name fit: they make another mirror."""
    fed.replay(0, 1, 2)
    fed.rig.send(32, ddl(at(32), "RENAME TABLE `s`.`t` TO `s`.`u`", table="u", kind=14))
    fed.rig.send(36, row(at(36), new=columns(5, "five", **OLD), table="u"))
    fed.rig.resolved(40, 41)
    wide = fed.rig.decode(at(30), at(35))
    with pytest.raises(PolicyStopError):
        fed.rig.load(wide)
    fed.rig.replay(at(35), at(40))
    fed.rig.replay(at(30), at(32))
    with pytest.raises(PolicyStopError):
        fed.rig.replay(at(32), at(32) + 1)
    context, target = fed.rig.context, fed.rig.target
    with pytest.raises(PolicyStopError, match="has rows from after the DDL") as refused:
        follow(context, target, stopping_ddl(context, target, TABLE), fed.rig._load)
    commands = str(refused.value).split("\n")[1:]
    assert commands[0].startswith(f"1. Dump the upstream at or after {at(36)} ")
    rows = [(b"1", b"uno", None), (b"3", b"three", None), (b"4", b"four", None), (b"5", b"five", None)]
    base = read_dump(context, request_of(dumped(tmp_path / "dump", at(38), *rows, name="u")))
    assert commands[2].startswith("3. ticdc-replay mirror rebuild <pipeline> s.u --dump-base ")
    rebuild(context, target, TableName("s", "u"), fed.rig._load, lambda _: None, base.run_hash[:12])
    assert commands[3] == '4. Drop the table "s"."t"'
    fed.drop()
    assert commands[4] == f"5. ticdc-replay mirror floor <pipeline> s.t --at {at(32) + 1}"
    fed.rig.raise_floor(at(32) + 1)
    fed.rig.load(wide)
    assert fed.database.rows("SELECT id, v FROM s.u ORDER BY id") == [*EXPECTED, (5, "five")]
    assert not fed.database.has_table("s.t")
    assert fed.rig.held == ["complete"]


def test_another_base_than_begun_is_refused(fed: Feeding, tmp_path: Path) -> None:
    fed.replay(0, 1, 2)
    with pytest.raises(PolicyStopError):
        fed.rebuild(to_ts=at(20))
    base = read_dump(fed.rig.context, request_of(dumped(tmp_path / "dump", at(29), (b"1", b"uno", None))))
    with pytest.raises(ConfigError, match="another base"):
        fed.rebuild(base=base.run_hash[:8])
    abandon(fed.rig.context, "warehouse", TABLE, fed.rig._load)
    fed.rebuild(base=base.run_hash[:8])
    assert fed.rows == [(1, "uno")]


def test_ddl_that_stops_leaves_the_old_mirror(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    fed.rig.send(32, ddl(at(32), "ALTER TABLE t MODIFY COLUMN v VARCHAR(2)", kind=12))
    fed.rig.send(33, row(at(33), new=columns(5, "v", **OLD)))
    fed.rig.resolved(40, 41)
    with pytest.raises(PolicyStopError):
        fed.rig.replay(at(30), at(40))
    assert fed.rows == EXPECTED
    fed.rebuild()
    assert fed.rows == EXPECTED


@pytest.mark.parametrize("kind", ["postgres", "mysql", "iceberg", "delta"], indirect=True)
def test_a_rebuild_follows_the_ddl_that_the_mirror_has_followed(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    fed.rig.send(32, row(at(32), new=columns(5, "five", **OLD)))
    fed.rig.send(32, ddl(at(32), "ALTER TABLE t MODIFY COLUMN v VARCHAR(5)", kind=12))
    fed.rig.send(33, row(at(33), new=columns(6, "six", **OLD)))
    fed.rig.resolved(40, 41)
    whole = fed.rig.decode(at(30), at(40))
    with pytest.raises(PolicyStopError):
        fed.rig.load(whole)
    stopped = fed.rig.decode(at(30), at(32) + 1)
    with pytest.raises(PolicyStopError, match="mirror follow"):
        fed.rig.load(stopped)
    context = fed.rig.context
    follow(context, fed.rig.target, stopping_ddl(context, fed.rig.target, TABLE), fed.rig._load)
    fed.rig.load(stopped)
    fed.rig.load(whole)
    expected = [*EXPECTED, (5, "five"), (6, "six")]
    assert fed.rows == expected
    fed.database.execute("UPDATE s.t SET v = 'x'")
    fed.rebuild()
    assert (fed.rows, fed.side, fed.rig.held) == (expected, [], ["complete"])


def test_what_people_added_stays_or_is_named(fed: Feeding) -> None:
    if fed.is_lake:
        pytest.skip("a lake has no indexes, and the table itself stays")
    fed.replay(0, 1, 2)
    fed.database.execute("CREATE INDEX by_v ON s.t (v)" if fed.is_postgres else "CREATE INDEX by_v ON s.t (v(20))")
    if fed.is_postgres:
        fed.database.execute("DROP ROLE IF EXISTS rebuild_reader")
        fed.database.execute("CREATE ROLE rebuild_reader")
        fed.database.execute("GRANT SELECT ON s.t TO rebuild_reader")
    fed.rebuild()
    if fed.is_postgres:
        indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = 's' AND indexname = 'by_v'"
        assert fed.database.rows("SELECT has_table_privilege('rebuild_reader', 's.t', 'SELECT')") == [(True,)]
        fed.database.execute("DROP OWNED BY rebuild_reader")
        fed.database.execute("DROP ROLE rebuild_reader")
        fed.database.execute("CREATE VIEW s.w AS SELECT id FROM s.t")
        named = r"view s\.w"
    else:
        indexes = "SELECT count(*) FROM information_schema.statistics WHERE table_schema = 's' AND column_name = 'v'"
        fed.database.execute("CREATE TABLE s.child (id bigint PRIMARY KEY, FOREIGN KEY (id) REFERENCES s.t (id))")
        named = r"foreign key .* of s\.child"
    assert fed.database.rows(indexes) == [(1,)]
    with pytest.raises(TargetMismatchError, match=named):
        fed.rebuild()
    assert fed.rows == EXPECTED


@pytest.mark.parametrize("after", [False, True])
def test_a_swap_that_is_killed_anywhere_leaves_one_whole_mirror(
    fed: Feeding, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    fed.replay(0, 1, 2)
    original = [(1, "spoilt"), (4, "spoilt")]
    first = fed.rig.decode(*WINDOWS[0])

    def attempt(number: int) -> int:
        fed.database.execute("UPDATE s.t SET v = 'spoilt'")
        fed.database.execute("DELETE FROM s.t WHERE id = 3")
        seen = _swap_killed(fed, monkeypatch, number, after=after)
        assert fed.rows in (EXPECTED, original)
        # Whoever loads next finds the mirror with its own ledger, and brings no deleted row back.
        fed.rig.load(first, reload=True)
        assert [row[0] for row in fed.rows] in ([1, 3, 4], [1, 4])
        fed.rebuild()
        assert (fed.rows, fed.side) == (EXPECTED, [])
        return seen

    assert die_at_statements(attempt, few=1 if fed.is_lake else 3) > (14 if fed.is_lake else 39)


@pytest.mark.parametrize("kind", ["mysql", "tidb"])
@pytest.mark.parametrize("step", ["swap.rename", "ledger.MysqlLedger.replace"])
def test_a_load_after_a_swap_that_was_killed_finds_the_new_form(
    fed: Feeding, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The rebuilt mirror keeps deleted rows, and the old one lacks a column: once the swap is decided nobody looks at that."""
    fed.replay(0, 1)
    fed.database.execute("ALTER TABLE s.t DROP COLUMN v")
    fed.rig._declared["targets"][0]["deletes"] = "soft"
    fed.rig.context.__exit__()
    fed.rig.context = fed.rig._context()

    def dying(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(f"ticdc_replay.targets.mysql.{step}", dying)
        with pytest.raises(KilledError):
            fed.rebuild()
    fed.replay(2)
    rows = fed.database.rows("SELECT id, v, _is_deleted FROM s.t ORDER BY id")
    assert rows == [(1, "uno", 0), (2, "two", 1), (3, "three", 0), (4, "four", 0)]


def _swap_killed(fed: Feeding, monkeypatch: pytest.MonkeyPatch, number: int, *, after: bool) -> int:
    """Rebuild, and die at the *number*-th statement or commit of the swap; how many it came to."""
    seen = 0

    def strike(do: Callable[[], Any]) -> Any:
        nonlocal seen
        seen += 1
        if seen == number and not after:
            raise KilledError
        done = do()
        if seen == number:
            raise KilledError
        return done

    mirror = opened_target(fed.rig.context, "warehouse")
    assert isinstance(mirror, ReplaceableMirror)
    replace = type(mirror).replace

    def dying(self: Any, *given: Any) -> Any:
        with monkeypatch.context() as patch:
            query, commit = pymysql.connections.Connection.query, pymysql.connections.Connection.commit
            execute, pg_commit = psycopg.Connection.execute, psycopg.Connection.commit
            patch.setattr(pymysql.connections.Connection, "query", lambda own, *each: strike(lambda: query(own, *each)))
            patch.setattr(pymysql.connections.Connection, "commit", lambda own: strike(lambda: commit(own)))
            patch.setattr(psycopg.Connection, "execute", lambda own, *each: strike(lambda: execute(own, *each)))
            patch.setattr(psycopg.Connection, "commit", lambda own: strike(lambda: pg_commit(own)))
            watch_writes(patch, lambda _, do: strike(do), ("put", "update", "delete"))
            return replace(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(type(mirror), "replace", dying)
        with contextlib.suppress(KilledError):
            fed.rebuild()
    return seen


def test_prune_keeps_what_a_rebuild_needs_until_it_has_ended(fed: Feeding, tmp_path: Path) -> None:
    """Windows from after its beginning, of which two hold the rows of other tables, too."""
    fed.replay(0, 1, 2)
    base = read_dump(fed.rig.context, request_of(dumped(tmp_path / "dump", at(16), (b"1", b"one", None))))
    read_at = datetime.now(UTC)
    wait_for("the store's clock, which has whole seconds", lambda: fed.rig.context.artifacts.now() > read_at)

    def needed() -> set[tuple[int, int]]:
        stored = prune(fed.rig.context, keep_days=0, even_if_last=True)
        kept = [each for each in stored if any("a rebuild of s.t in warehouse" in reason for reason in each.kept)]
        return {(each.window.from_ts, each.window.to_ts) for each in kept}

    def killed(uri: str) -> None:
        raise KilledError

    assert needed() == set()
    for end in (
        lambda: fed.rebuild(base=base.run_hash),
        lambda: abandon(fed.rig.context, "warehouse", TABLE, fed.rig._load),
    ):
        with pytest.raises(KilledError):
            fed.rebuild(killed, base=base.run_hash)
        assert needed() == set(WINDOWS[1:])
        end()
        assert needed() == set()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_rebuild_that_is_killed_goes_on_where_it_was(fed: Feeding, number: int) -> None:
    fed.replay(0, 1, 2)
    fed.database.execute("UPDATE s.t SET v = 'spoilt'")
    loaded: list[str] = []

    def submit(uri: str) -> None:
        fed.rig._load(uri)
        before = len(loaded)
        loaded.extend(fed.loads(uri))
        if before < number <= len(loaded):
            raise KilledError

    with pytest.raises(KilledError):
        fed.rebuild(submit)
    assert {row[1] for row in fed.rows} == {"spoilt"}
    fed.rebuild(submit)
    assert len(loaded) == 3
    assert fed.rows == EXPECTED


def test_the_command_rebuilds_and_abandons(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    fed.database.execute("UPDATE s.t SET v = 'spoilt'")
    if fed.is_lake:
        fed.rig._declared["spark"] = {"conf": {"spark.jars": ",".join(map(str, lake_jars()))}}
    else:
        fed.rig._declared["runner"] = "local"
    (fed.rig.folder / "shop.yaml").write_text(yaml.safe_dump(fed.rig._declared))
    ids = ("kafka",) if fed.is_lake else ("kafka", "warehouse")
    file = fed.rig.folder / "connections.yaml"
    file.touch(mode=0o600)
    known = {name: msgspec.to_builtins(fed.rig.connections[name]) for name in ids}
    wanted = ("conn_type", "host", "port", "login", "password", "schema", "extra")
    file.write_text(
        yaml.safe_dump({name: {key: each[key] for key in wanted if each.get(key)} for name, each in known.items()})
    )

    def run(*options: str) -> Result:
        arguments = ["mirror", "rebuild", str(fed.rig.folder / "shop.yaml"), "s.t", "--connections", str(file)]
        arguments += ["--master", "local[1]"] if fed.is_lake else []
        return CliRunner(env={"COLUMNS": "300"}).invoke(app, [*arguments, *options])

    refused = run("--to", str(at(20)))
    assert refused.exit_code == 2
    assert "windows that the new one lacks" in refused.output
    assert "s.t: removed what was built" in run("--abandon").output
    assert {row[1] for row in fed.rows} == {"spoilt"}
    done = run()
    assert done.exit_code == 0, done.output
    assert "s.t: 3 of 3" in done.output
    assert fed.rows == EXPECTED


def test_a_mirror_is_compared_with_what_its_changelogs_have(fed: Feeding) -> None:
    fed.replay(0, 1, 2)

    def verified() -> Verification:
        return verify_changelogs(fed.rig.context, "warehouse", fed.rig._load, pace=Pace(1.0))

    report = verified()
    (found,) = report.tables
    assert (report.against, found.outcome, found.at, found.findings.mirror_rows) == (
        "changelogs",
        "equal",
        at(30) - 1,
        3,
    )
    assert fed.side == []
    fed.database.execute("UPDATE s.t SET v = 'x' WHERE id = 1")
    fed.database.execute("DELETE FROM s.t WHERE id = 3")
    fed.database.execute("INSERT INTO s.t (id, v, _commit_ts) VALUES (9, 'nine', 1)")
    (found,) = verified().tables
    kinds = {(each.kind, each.key, each.columns) for each in found.findings.differences}
    assert kinds == {("changed", ("1",), ("v",)), ("missing", ("3",), ()), ("extra", ("9",), ())}
    assert fed.side != [], "for the rebuild"
    fed.rebuild()
    assert (fed.rows, fed.side) == (EXPECTED, [])
    assert verified().is_equal


def test_a_table_beside_that_a_false_alarm_left_is_removed_once_both_are_equal(
    fed: Feeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed.shape({"constants": {"_at": "loaded_at"}})
    fed.replay(0, 1, 2)

    def verified() -> Verification:
        return verify_changelogs(fed.rig.context, "warehouse", fed.rig._load, pace=Pace(1.0))

    with monkeypatch.context() as patched:
        patched.setattr(verify_beside, "_of_loads", lambda mirror, table: frozenset())
        assert verified().tables[0].findings.changed == 3
    assert fed.side != []
    assert verified().is_equal
    assert (fed.side, begun(fed.rig.context)) == ([], ())


def test_a_changed_shape_needs_a_rebuild(fed: Feeding) -> None:
    fed.replay(0, 1)
    rig = fed.rig
    rig._declared["targets"] = [
        {**target, "shape": [{"tables": ["s.t"], "exclude": ["w"], "mask": {"v": {"fixed": "hidden"}}}]}
        for target in rig._declared["targets"]
    ]
    rig.context.__exit__()
    rig.context = rig._context()
    with pytest.raises(TargetMismatchError, match="another `shape`"):
        fed.replay(2)
    fed.rebuild()
    fed.replay(2)
    assert fed.rows == [(1, "hidden"), (3, "hidden"), (4, "hidden")]
    (found,) = verify_changelogs(rig.context, "warehouse", rig._load, pace=Pace(1.0)).tables
    assert (found.outcome, found.columns) == ("equal", 2)


@pytest.mark.parametrize("kind", ["postgres", "mysql", "iceberg", "delta"], indirect=True)
@pytest.mark.parametrize("moment", ["decided", "swapped", "moved"])
def test_no_load_with_the_old_shape_meets_the_rows_of_the_new_one(
    fed: Feeding, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The rebuild is killed in the swap, or after it; a schedule still has the old pipeline file."""
    fed.replay(0, 1)
    rig, before = fed.rig, fed.rig._declared["targets"]
    masked = [{**each, "shape": [{"tables": ["s.t"], "mask": {"v": {"fixed": "hidden"}}}]} for each in before]

    def use(targets: list[dict[str, Any]]) -> None:
        rig._declared["targets"] = targets
        rig.context.__exit__()
        rig.context = rig._context()

    def dying(*_: object) -> None:
        raise KilledError

    use(masked)
    swaps = "lake.swap.SwappingLakeSession" if fed.is_lake else "mysql.session.MysqlSession"
    with monkeypatch.context() as patch:
        if moment != "decided":
            patch.setattr(f"ticdc_replay.stages.upkeep.rebuild.{'_record' if moment == 'moved' else '_end'}", dying)
        elif not fed.is_postgres:
            patch.setattr(f"ticdc_replay.targets.{swaps}._end", dying)
        else:
            pytest.skip("one transaction")
        with pytest.raises(KilledError):
            fed.rebuild()
    use(before)
    refusal = TargetMismatchError if moment == "moved" else TransientError
    with pytest.raises(refusal, match="mirror rebuild"):
        fed.replay(2)
    use(masked)
    if moment != "decided":
        with pytest.raises(PolicyStopError, match="has taken the place"):
            abandon(rig.context, "warehouse", TABLE, rig._load)
    loads: list[str] = []

    def submit(uri: str) -> None:
        loads.extend(fed.loads(uri))
        rig._load(uri)

    fed.rebuild(submit)
    assert loads == [], "nothing is built again"
    assert begun(rig.context) == ()
    fed.replay(2)
    assert fed.rows == [(1, "hidden"), (3, "hidden"), (4, "hidden")]
    use(before)
    with pytest.raises(TargetMismatchError, match="another `shape`"):
        rig.load(rig.decode(*WINDOWS[2]), reload=True)


def test_a_load_that_began_before_the_swap_brings_no_values_that_the_new_mirror_masks(
    fed: Feeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed.replay(0, 1)
    rig, before = fed.rig, fed.rig._declared["targets"]
    masked = [{**each, "shape": [{"tables": ["s.t"], "mask": {"v": {"fixed": "hidden"}}}]} for each in before]
    begin = type(opened_target(rig.context, "warehouse")).load

    def slow(*given: Any) -> Any:
        """Rebuild with the new pipeline file, between what the load looks at first and its commit."""
        patch.undo()
        rig._declared["targets"] = masked
        rig.context.__exit__()
        rig.context = rig._context()
        fed.rebuild()
        return begin(*given)

    with monkeypatch.context() as patch:
        patch.setattr(type(opened_target(rig.context, "warehouse")), "load", slow)
        with pytest.raises(TransientError, match="recorded `shape` was changed"):
            fed.replay(2)
    assert {v for _, v in fed.rows} == {"hidden"}


def test_a_swap_that_is_refused_leaves_the_old_shape(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    rig, before = fed.rig, fed.rig._declared["targets"]
    masked = [{**each, "shape": [{"tables": ["s.t"], "mask": {"v": {"fixed": "hidden"}}}]} for each in before]
    for targets in (masked, before):
        rig._declared["targets"] = targets
        rig.context.__exit__()
        rig.context = rig._context()
        if targets is masked:
            with pytest.raises(PolicyStopError, match="windows that the new one lacks"):
                fed.rebuild(to_ts=at(20))
    rig.load(rig.decode(*WINDOWS[2]), reload=True)
    assert fed.rows == EXPECTED


def test_a_ddl_under_another_spelling_is_part_of_a_rebuild(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    fed.rig.send(35, ddl(at(35), "TRUNCATE TABLE T", table="T", kind=11))
    fed.rig.send(36, row(at(36), new=columns(7, "seven", **OLD)))
    fed.rig.resolved(40, 41)
    fed.rig.replay(at(30), at(40))
    assert fed.rows == [(7, "seven")]
    fed.rebuild()
    assert fed.rows == [(7, "seven")]


def test_a_window_that_was_loaded_again_for_the_table_alone_counts_once(fed: Feeding) -> None:
    fed.replay(0, 1, 2)
    again = fed.rig.decode(*WINDOWS[0], repin=True, tables=("s.t",))
    fed.rig.load(again, ("s.t",))
    fed.rebuild()
    assert fed.rows == EXPECTED


def test_a_swap_takes_no_rights_from_defaults_and_no_names_of_others(fed: Feeding) -> None:
    if not fed.is_postgres:
        pytest.skip("PostgreSQL's default privileges, and its names of indexes")
    fed.replay(0, 1, 2)
    role = f"reader_{uuid4().hex[:8]}"
    for statement in (
        f"CREATE ROLE {role}",
        f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {role}",
        "ALTER TABLE s.t RENAME CONSTRAINT t_pkey TO other",
        "CREATE TABLE s.neighbour (id int CONSTRAINT t_pkey PRIMARY KEY)",
    ):
        fed.database.execute(statement)
    try:
        fed.rebuild()
        assert fed.rows == EXPECTED
        assert fed.database.rows(f"SELECT has_table_privilege('{role}', 's.t', 'SELECT')") == [(False,)]
    finally:
        fed.database.execute(f"ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM {role}")
        fed.database.execute(f"DROP OWNED BY {role}")
        fed.database.execute(f"DROP ROLE {role}")


PLAIN, HIDDEN = ({"exclude": ["nothing_*"]}, {"mask": {"v": {"fixed": "hidden"}}})


@pytest.mark.parametrize("first", [None, PLAIN], ids=["no shape", "a shape"])
def test_a_load_that_staged_before_a_rebuild_brings_nothing_of_another_shape(
    fed: Feeding, first: dict[str, Any] | None
) -> None:
    fed.shape(first)
    fed.replay(0, 1)
    rig = fed.rig
    uri = write_load_job(rig.context, rig.decode(*WINDOWS[2]), rig.target, None).uri
    job = jobspec.read(rig.context.artifacts, uri)
    assert isinstance(job, jobspec.LoadJob)
    staged: list[str] = []

    def execute(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name.startswith("stage into") and not staged:
            staged.append(name)
            fed.shape(HIDDEN)
            fed.rebuild()
        return results

    sql = fed.database.sql
    with pytest.raises(TransientError, match="`shape`"):
        load_into(job, rig.connections, execute, 1, sql)
    assert {each[1] for each in fed.rows} == {"hidden"}
    fed.replay(2)
    assert {each[1] for each in fed.rows} == {"hidden"}
