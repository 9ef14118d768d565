"""``ticdc-replay mirror follow``: from Kafka to a mirror that a DDL stopped, and on."""

import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.integration.snapshot.feed import at
from tests.support.mirror_rig import DROPPED, OLD, TABLE, Rig
from tests.support.open_protocol import columns, ddl, row
from tests.support.target_rigs import LakeRig, MirrorRig, MysqlRig, PostgresRig
from ticdc_replay.domain.errors import ConfigError, PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.stages.upkeep.follow import follow, how_to_follow, stopping_ddl
from ticdc_replay.stages.upkeep.mirrors import opened_mirror
from ticdc_replay.targets.mirror.comparison import ComparableMirror

pytestmark = pytest.mark.integration


@pytest.fixture
def fed(make_rig: Callable[..., Rig]) -> Rig:
    """Rows before the DROP COLUMN, at its commitTs and after it."""
    rig = make_rig()
    rig.send(11, row(at(11), new=columns(1, "one", **OLD)))
    rig.resolved(15)
    rig.send(16, row(at(16), new=columns(2, "two", **OLD)))
    rig.send(24, row(DROPPED, new=columns(3, "three", **OLD)))
    rig.send(25, ddl(DROPPED, "ALTER TABLE t DROP COLUMN w", kind=6))
    rig.send(26, row(at(26), new=columns(4, "four")))
    rig.resolved(30, 31)
    return rig


def test_a_stopped_mirror_follows_and_goes_on(fed: Rig) -> None:
    fed.replay(at(9), at(15))
    run = fed.decode(at(15), DROPPED + 1)
    with pytest.raises(
        PolicyStopError, match=r"`ticdc-replay mirror follow <pipeline> <table>` does this and the next step"
    ):
        fed.load(run)
    found = stopping_ddl(fed.context, fed.target, TABLE)
    assert found == stopping_ddl(fed.context, fed.target, TABLE, DROPPED)
    planned = how_to_follow(fed.context, fed.target, found)
    assert [step.rpartition(": ")[2] for step in planned.steps] == ["DROP COLUMN w"]
    assert follow(fed.context, fed.target, found) == planned
    assert follow(fed.context, fed.target, found).steps == ()
    fed.load(run)
    fed.replay(DROPPED + 1, at(30))
    assert (fed.ids, fed.held) == ([1, 2, 3, 4], ["complete"])
    with pytest.raises(ConfigError, match="no load into its mirror was stopped"):
        stopping_ddl(fed.context, fed.target, TABLE)
    with pytest.raises(ConfigError, match="it is followed already"):
        stopping_ddl(fed.context, fed.target, TABLE, at(20))


def test_a_mirror_follows_the_drop_of_its_database(make_rig: Callable[..., Rig]) -> None:
    """The DDL has no table. Whether a mirror may go is a person's decision, as ``policies.drop`` is ``stop``."""
    rig = make_rig()
    rig.send(11, row(at(11), new=columns(1, "one", **OLD)))
    rig.send(25, ddl(DROPPED, "DROP DATABASE `s`", table="", kind=2))
    rig.resolved(30, 31)
    rig.replay(at(9), at(15))
    run = rig.decode(at(15), DROPPED + 1)
    with pytest.raises(PolicyStopError, match="dropped with its database"):
        rig.load(run)
    found = stopping_ddl(rig.context, rig.target, TABLE)
    assert [step.split()[:2] for step in how_to_follow(rig.context, rig.target, found).steps] == [["DROP", "TABLE"]]
    follow(rig.context, rig.target, found)
    rig.load(run)
    rig.replay(DROPPED + 1, at(30))
    with pytest.raises(psycopg.errors.UndefinedTable):
        assert rig.ids


def test_a_mirror_in_a_lake_follows_in_a_job(fed: Rig, lake_spark: SparkSession, tmp_path: Path) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    fed.use_lake(lake)
    fed.replay(at(9), at(15))
    run = fed.decode(at(15), DROPPED + 1)
    with pytest.raises(PolicyStopError, match=r"`ticdc-replay mirror follow <pipeline> <table>` does this"):
        fed.load(run)
    found = stopping_ddl(fed.context, fed.target, TABLE)
    with pytest.raises(ConfigError, match="needs Spark"):
        follow(fed.context, fed.target, found)
    planned = how_to_follow(fed.context, fed.target, found, fed._load)
    assert planned.steps == ('"s"."t": DROP COLUMN w',)
    assert follow(fed.context, fed.target, found, fed._load) == planned
    assert follow(fed.context, fed.target, found, fed._load).steps == ()
    fed.load(run)
    fed.replay(DROPPED + 1, at(30))
    assert lake.rows("SELECT * EXCEPT (_commit_ts) FROM s.t ORDER BY id") == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
        (4, "four"),
    ]


def test_rows_from_before_the_ddl_come_first(fed: Rig) -> None:
    fed.replay(at(9), at(15))
    with pytest.raises(ConfigError, match=rf"--from {DROPPED} --to {DROPPED + 1}, which stops"):
        stopping_ddl(fed.context, fed.target, TABLE, DROPPED)
    run = fed.decode(DROPPED, DROPPED + 1)
    with pytest.raises(PolicyStopError, match="end the window"):
        fed.load(run)
    found = stopping_ddl(fed.context, fed.target, TABLE)
    for refused in (how_to_follow, follow):
        with pytest.raises(PolicyStopError, match="is not loaded: load it"):
            refused(fed.context, fed.target, found)
    fed.replay(at(15), DROPPED)
    follow(fed.context, fed.target, found)
    fed.load(run)
    assert fed.ids == [1, 2, 3]


@pytest.mark.parametrize("server", ["postgres", "mysql"])
def test_a_ddl_in_the_middle_of_a_window_is_led_over(fed: Rig, server: str, request: pytest.FixtureRequest) -> None:
    """By the commands that it is refused with. Kafka may have expired the window by then."""
    database: MirrorRig = PostgresRig(fed.dsn)
    if server == "mysql":
        database = MysqlRig(request.getfixturevalue("mysql_server"))
        fed.use_mysql(database)
    fed.replay(at(9), at(15))
    wide = fed.decode(at(15), at(30))
    with pytest.raises(PolicyStopError, match=rf"{DROPPED} .*(?s:.*)mirror follow <pipeline> <table>. does this"):
        fed.load(wide)
    with pytest.raises(ConfigError) as refused:
        stopping_ddl(fed.context, fed.target, TABLE, DROPPED)
    windows = [tuple(map(int, each)) for each in re.findall(r"run \S+ --from (\d+) --to (\d+)", str(refused.value))]
    assert windows == [(at(15), DROPPED), (DROPPED, DROPPED + 1)]
    before, of_ddl = (fed.decode(*window, from_changelog=True) for window in windows)
    fed.load(before)
    with pytest.raises(PolicyStopError, match="end the window"):
        fed.load(of_ddl)
    follow(fed.context, fed.target, stopping_ddl(fed.context, fed.target, TABLE))
    fed.load(wide)
    assert database.rows("SELECT id, v FROM s.t ORDER BY id") == [(1, "one"), (2, "two"), (3, "three"), (4, "four")]
    assert fed.held == ["complete"]


def test_a_shaped_mirror_follows_by_its_own_names(fed: Rig) -> None:
    shape = [{"tables": ["*.*"], "rename": {"w": "width"}}]
    fed._declared["targets"] = [{**target, "shape": shape} for target in fed._declared["targets"]]
    fed.context.__exit__()
    fed.context = fed._context()
    fed.replay(at(9), at(15))
    run = fed.decode(at(15), DROPPED + 1)
    with pytest.raises(PolicyStopError, match="mirror follow"):
        fed.load(run)
    found = stopping_ddl(fed.context, fed.target, TABLE)
    planned = how_to_follow(fed.context, fed.target, found)
    assert [step.rpartition(": ")[2] for step in planned.steps] == ["DROP COLUMN width"]
    follow(fed.context, fed.target, found)
    fed.load(run)
    fed.replay(DROPPED + 1, at(30))
    assert fed.ids == [1, 2, 3, 4]


@pytest.mark.parametrize("step", ["follow_in", "forget_shape"])
def test_a_renamed_mirror_keeps_its_shape_whatever_breaks(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    rig = make_rig()
    declared = rig._declared["targets"]
    rig._declared["targets"] = [{**each, "shape": [{"tables": ["s.*"], "mask": {"v": "null"}}]} for each in declared]
    rig.context.__exit__()
    rig.context = rig._context()
    rig.send(11, row(at(11), new=columns(1, "one", **OLD)))
    rig.send(25, ddl(DROPPED, "RENAME TABLE `s`.`t` TO `s`.`u`", table="u", kind=14))
    rig.send(26, row(at(26), new=columns(4, "four", **OLD), table="u"))
    rig.resolved(30, 31)
    rig.replay(at(9), at(15))
    run = rig.decode(at(15), DROPPED + 1)
    with pytest.raises(PolicyStopError):
        rig.load(run)
    found = stopping_ddl(rig.context, rig.target, TABLE)
    module = "stages.upkeep.follow" if step == "follow_in" else "targets.shaped_load"
    with monkeypatch.context() as patch:
        patch.setattr(f"ticdc_replay.{module}.{step}", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            follow(rig.context, rig.target, found)
    if step == "follow_in":
        follow(rig.context, rig.target, stopping_ddl(rig.context, rig.target, TABLE))
    else:
        with pytest.raises(ConfigError, match="it is followed already"):
            stopping_ddl(rig.context, rig.target, TABLE)
    mirror = opened_mirror(rig.context, rig.target)
    assert isinstance(mirror, ComparableMirror)
    renamed = mirror.mirror_of(TableName("s", "u"))
    assert renamed is not None
    assert renamed.state.shaped_by == rig.context.pipeline.name
    rig.load(run)
    rig._declared["targets"] = declared
    rig.context.__exit__()
    rig.context = rig._context()
    with pytest.raises(TargetMismatchError, match=r"s\.u: target .* was loaded with another `shape`"):
        rig.replay(DROPPED + 1, at(30))
