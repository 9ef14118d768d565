"""``ticdc-replay trace``: the fate of each version of a row, from a real topic to a real mirror."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.integration.snapshot.feed import at
from tests.support.mirror_rig import OBJECT, OLD, TABLE, Rig
from tests.support.open_protocol import columns, ddl, row
from ticdc_replay.cli.main import app
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.quarantine.entries import Selection, accept
from ticdc_replay.stages.trace.trace import Trace, trace

pytestmark = pytest.mark.integration

MISSING = "00000000-0000-0000-0000-0000000000ff.json"


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """Three windows, of which the last is loaded before the second; see the tests for what happens to each row."""
    made = make_rig(target_value="quarantine")
    made.send(11, row(at(11), new=columns(1, "one", **OLD)))
    for second in (12, 12.5):  # the second message is a repeated copy
        made.send(second, row(at(12), new=columns(1, "uno", **OLD), old=columns(1, "one", **OLD)))
    made.send(13, row(at(13), new=columns(1, "eins", **OLD), old=columns(1, "uno", **OLD)))
    made.send(14, row(at(14), new=columns(2, "tw\0", **OLD)))
    made.resolved(15)
    made.send(16, row(at(16), new=columns(1, "ichi", **OLD), old=columns(1, "eins", **OLD)))
    for number, name, second in ((3, OBJECT, 17), (3, OBJECT, 17.1), (4, MISSING, 18)):
        only_key: dict[str, Any] = {"new": {"id": columns(number)["id"]}, "ccl": f"s3://bucket/{name}"}
        made.send(second, row(at(int(second)), **only_key))
    made.send(19, (b'{"ts":1,"scm":"s","tbl":"t","t":1', b"{"))
    made.resolved(20)
    made.send(26, row(at(26), old=columns(1, "ichi", **OLD)))
    made.resolved(30, 31)
    whole = row(at(17), new=columns(3, "three", **OLD))
    made.put_object(OBJECT, whole)
    return made


@pytest.fixture
def loaded(rig: Rig) -> Rig:
    rig.replay(at(9), at(15))
    rig.replay(at(20), at(30))
    rig.replay(at(15), at(20))
    return rig


def traced(rig: Rig, **key: str) -> Trace:
    return trace(rig.context, TABLE, key)


def fates(found: Trace) -> list[tuple[str, int | None, str]]:
    return [(each.operation, each.commit_ts, fate.fate) for each in found.versions for fate in each.fates]


def test_a_row_that_was_inserted_updated_and_deleted(loaded: Rig) -> None:
    found = traced(loaded, id="1")
    assert fates(found) == [
        ("insert", at(11), "folded"),
        ("update", at(12), "folded"),
        ("update", at(13), "replaced"),
        ("update", at(16), "superseded"),
        ("delete", at(26), "current"),
    ]
    (target,) = found.targets
    assert (target.target, target.row.where) == ("warehouse", '"s"."t"')
    assert (target.row.version, target.row.is_deleted, target.row.not_looked) == (at(26), True, "")
    (first,), (twice,) = (version.changelogs for version in found.versions[:2])
    assert (first.window.from_ts, first.window.to_ts, first.dropped_copies) == (at(9), at(15), 1)
    assert first.place == EventPlace(loaded.topic, 0, twice.place.offset - 1, 0)
    assert loaded.context.artifacts.info(first.file) is not None
    assert first.file.startswith(f"runs/{first.run_hash}/data/schema=s/table=t/")
    assert not found.is_missing


def test_a_row_with_a_value_that_the_target_can_not_hold(loaded: Rig) -> None:
    found = traced(loaded, id="2")
    assert fates(found) == [("insert", at(14), "set_aside")]
    assert "column v: the character NUL" in found.versions[0].fates[0].detail
    assert found.targets[0].row.version is None


def test_a_row_in_a_claim_check_object_that_was_sent_twice(loaded: Rig) -> None:
    found = traced(loaded, id="3")
    assert fates(found) == [("insert", at(17), "current")]
    ((place,),) = (version.changelogs for version in found.versions)
    assert place.claim_check is not None
    assert (place.claim_check.object_name, place.claim_check.status) == (OBJECT, "used")
    (copy,) = place.other_references
    assert copy.place.offset == place.place.offset + 1


def test_a_row_in_quarantine_until_it_comes_back(loaded: Rig) -> None:
    found = traced(loaded, id="4")
    assert (found.versions, found.targets[0].row.version) == ((), None)
    (aside,) = found.set_aside
    assert (aside.commit_ts, aside.reason, aside.status) == (at(18), "claim_check_missing", "open")
    assert aside.object_name == MISSING
    # The ranges of neighbouring windows overlap, and a message that can't be read may be of each.
    assert {unknown.window.from_ts for unknown in found.unknown} >= {at(15)}
    assert {(unknown.of_table, unknown.of_unknown_table) for unknown in found.unknown} == {(0, 1)}
    assert traced(loaded, id="2").set_aside == ()  # of another row

    loaded.put_object(MISSING, row(at(18), new=columns(4, "four", **OLD)))
    loaded.redrive(Window(at(15), at(20)))
    found = traced(loaded, id="4")
    assert fates(found) == [("insert", at(18), "current")]
    (aside,) = found.set_aside
    assert aside.status == "redriven"


def test_a_row_whose_loss_was_accepted(loaded: Rig) -> None:
    (aside,) = traced(loaded, id="4").set_aside
    accept(loaded.context, Selection(places=(str(aside.place),)), "Ada Berg", "see ticket 88")
    (aside,) = traced(loaded, id="4").set_aside
    assert (aside.status, aside.accepted_by, aside.accepted_why) == ("accepted", "Ada Berg", "see ticket 88")


def test_rows_below_the_floor_and_windows_that_are_not_loaded(rig: Rig) -> None:
    check(rig.context, rig.decode(at(20), at(30)), None)
    assert [fate for *_, fate in fates(traced(rig, id="1"))] == ["not_loaded"]
    rig.raise_floor(at(15), holds_all_rows=True)
    rig.replay(at(9), at(15))
    found = traced(rig, id="1")
    assert [fate for *_, fate in fates(found)] == ["folded", "folded", "below_floor", "not_loaded"]
    assert found.targets[0].row.floor_ts == at(15)


def test_what_somebody_did_to_the_mirror_by_hand(loaded: Rig) -> None:
    loaded.execute("DELETE FROM s.t WHERE id = 3")
    found = traced(loaded, id="3")
    assert [fate for *_, fate in fates(found)] == ["missing"]
    assert found.is_missing
    loaded.execute("INSERT INTO s.t VALUES (3, 'x', 'y', 9223372036854775807)")
    found = traced(loaded, id="3")
    assert [fate for *_, fate in fates(found)] == ["replaced"]
    assert "in no changelog" in found.versions[0].fates[0].detail


def test_a_hashed_key_that_no_calendar_has(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.connections = Connections({**rig.connections.by_id, "salts": Connection("salts", "generic", password="s" * 32)})
    shape = {"tables": ["s.times"], "mask": {"at": "hash"}, "salt_connection": "salts"}
    rig._declared["targets"][0]["shape"] = [shape]
    rig.context.__exit__()
    rig.context = rig._context()
    rig.send(10, ddl(at(10), "CREATE TABLE times (at DATETIME(3) PRIMARY KEY, v VARCHAR(9))", table="times"))
    for text in ("0000-00-00 00:00:00.000", "2026-03-01 10:00:00.500"):
        cells = {"at": {"t": 12, "h": True, "f": 11, "v": text}, "v": {"t": 15, "f": 64, "v": "x"}}
        rig.send(11, row(at(11), new=cells, table="times"))
    rig.resolved(15, 16)
    rig.replay(at(9), at(15))
    for text in ("0000-00-00 00:00:00", "0000-00-00 00:00:00.0", "2026-03-01 10:00:00.5"):
        found = trace(rig.context, TableName("s", "times"), {"at": text})
        assert fates(found) == [("insert", at(11), "current")]
        assert found.targets[0].row.version == at(11)


@pytest.mark.parametrize(
    ("table", "key", "message"),
    [
        ("s.t", {"v": "one"}, "not identified by v: give --key id="),
        ("s.t", {"id": "1", "v": "one"}, "give --key id="),
        ("s.t", {"id": "one"}, "id is bigint: 'one' is not an integer"),
        ("s.t", {"id": "9223372036854775808"}, "out of its range"),
        ("s.T", {"id": "1"}, "did you mean s.t?"),
        ("s.other", {"id": "1"}, "no changelog has rows of s.other"),
        ("other.t", {"id": "1"}, "not a table of pipeline shop: tables are s"),
    ],
)
def test_what_can_not_be_traced(rig: Rig, table: str, key: dict[str, str], message: str) -> None:
    check(rig.context, rig.decode(at(9), at(15)), None)
    schema, _, name = table.partition(".")
    with pytest.raises(ConfigError) as refused:
        trace(rig.context, TableName(schema, name), key)
    assert message in str(refused.value)


def command(rig: Rig, *options: str) -> Result:
    connections = rig.folder / "connections.yaml"
    connections.touch(mode=0o600)
    declared = {
        conn_id: {
            "conn_type": known.conn_type,
            "host": known.host,
            "port": known.port,
            "login": known.login,
            "password": known.password,
            "schema": known.schema,
            "extra": dict(known.extra),
        }
        for conn_id, known in ((conn_id, rig.connections[conn_id]) for conn_id in ("kafka", "warehouse"))
    }
    connections.write_text(yaml.safe_dump(declared))
    arguments = ["trace", str(rig.folder / "shop.yaml"), "s.t", *options, "--connections", str(connections)]
    return CliRunner().invoke(app, arguments)


def test_the_command(loaded: Rig) -> None:
    shown = command(loaded, "--key", "ID=1")
    assert shown.exit_code == 0, shown.output
    for text in ("warehouse", "folded", "superseded", f"{loaded.topic}[0]@", "may hold versions of the row: 0 entries"):
        assert text in shown.output
    found = json.loads(command(loaded, "--key", "id=1", "--json").output)
    assert [version["fates"][0]["fate"] for version in found["versions"]] == [
        *("folded", "folded", "replaced", "superseded", "current")
    ]
    assert found["versions"][0]["commit_ts"] == at(11)
    refused = command(loaded, "--key", "1")
    assert refused.exit_code == 2
    assert "'1' is not of the form column=value" in refused.output
    loaded.execute("DELETE FROM s.t WHERE id = 3")
    assert command(loaded, "--key", "id=3").exit_code == 1
