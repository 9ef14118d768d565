"""A TiDB as the upstream, with snapshots of its own, and mirrors that are compared as of a TSO."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import mariadb, tidb
from tests.support.changelogs import delete, put
from tests.support.target_rigs import MirrorRig
from tests.support.verified import SAFE_POINT, Verified
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window

pytestmark = [pytest.mark.integration, pytest.mark.nightly]


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with tidb.running(tmp_path_factory.mktemp("tidb"), tidb.required()) as connection:
        mariadb.execute(connection, SAFE_POINT)
        yield connection


@pytest.fixture
def snapshot_of_the_present() -> None:
    """In place of that of other tests: this upstream has snapshots."""


@pytest.fixture
def verified(upstream: Connection, mirror: MirrorRig, tmp_path: Path) -> Iterator[Verified]:
    with Verified(upstream, mirror, tmp_path) as made:
        yield made


def test_a_mirror_is_compared_as_of_the_end_of_what_it_has(verified: Verified, upstream: Connection) -> None:
    schema = verified.create("id bigint PRIMARY KEY, v varchar(20), j json")
    verified.upstream(
        """INSERT INTO t VALUES (1, 'a', '{"b": 1, "a": [1.50, true]}'), (2, 'b', NULL), (3, 'c', NULL)"""
    )
    first = tidb.tso(upstream)
    verified.upstream("UPDATE t SET v = 'A' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    second = tidb.tso(upstream)
    document = '{"a": [1.5, true], "b": 1}'
    rows = [put(first, id=1, v="a", j=document), put(first, id=2, v="b", j=None), put(first, id=3, v="c", j=None)]
    verified.load_rows(schema, rows, Window(1, first + 1))
    assert verified.differing() == []
    later = [put(second, id=1, v="A", j=document), delete(second, id=2)]
    verified.load_rows(schema, later, Window(first + 1, second + 1))
    assert verified.differing() == []
    verified.upstream("UPDATE t SET v = 'later' WHERE id = 3")
    assert verified.differing() == []
    verified.mirror("UPDATE {t}.t SET v = 'wrong' WHERE id = 3")
    assert verified.differing() == [("changed", ("3",), ("v",))]


def test_tables_of_a_snapshot_are_those_of_its_time(verified: Verified, upstream: Connection) -> None:
    schema = verified.create("id bigint PRIMARY KEY")
    verified.create("id bigint PRIMARY KEY", "older")
    verified.upstream("INSERT INTO t VALUES (1)", "INSERT INTO older VALUES (1)")
    loaded = tidb.tso(upstream)
    verified.load_rows(schema, [put(loaded, id=1)], Window(1, loaded + 1))
    verified.create("id bigint PRIMARY KEY", "newer")
    verified.upstream("INSERT INTO newer VALUES (1)")
    assert verified.report().without_mirror == (TableName(verified.database, "older"),)
