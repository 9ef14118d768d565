"""A shape that does not know a new name: no window of the pipeline goes on, in whatever order they come."""

import pytest

from tests.integration.snapshot.feed import at
from tests.support.feeding import Feeding
from tests.support.mirror_rig import OLD
from tests.support.open_protocol import columns, ddl, row
from ticdc_replay.domain.errors import PolicyStopError

pytestmark = pytest.mark.integration

MASKED = {"tables": ["s.t"], "mask": {"v*": {"fixed": "***"}}}
UNLIKE = "`shape` .*treats in another way"


@pytest.mark.parametrize("kind", ["postgres", "mysql"], indirect=True)
@pytest.mark.parametrize("name", ["column", "table"])
def test_no_window_after_a_rename_brings_plain_values(fed: Feeding, name: str) -> None:
    fed.shape(MASKED)
    fed.replay(0, 1, 2)
    if name == "column":
        later = {"id": columns(5)["id"], "private": {"t": 15, "f": 64, "v": "five"}, **OLD}
        fed.rig.send(32, ddl(at(32), "ALTER TABLE t RENAME COLUMN v TO private", kind=3))
        fed.rig.send(43, row(at(43), new=later))
    else:
        fed.rig.send(32, ddl(at(32), "RENAME TABLE t TO people", table="people", kind=14))
        fed.rig.send(43, row(at(43), new=columns(5, "five", **OLD), table="people"))
    fed.rig.resolved(40, 41, 50, 51)
    for first, end in ((40, 50), (30, 40), (40, 50)):  # the one with the RENAME is the second
        with pytest.raises(PolicyStopError, match=UNLIKE):
            fed.rig.replay(at(first), at(end))
    fed.shape({**MASKED, "tables": ["s.*"], "mask": {**MASKED["mask"], "priv*": {"fixed": "***"}}})
    if name == "table":
        fed.rig.replay(at(40), at(50))
        assert fed.database.rows("SELECT id, v FROM s.people") == [(5, "***")]
    else:
        with pytest.raises(PolicyStopError, match="Load the windows between them first"):
            fed.rig.replay(at(40), at(50))


@pytest.mark.parametrize("kind", ["postgres", "mysql"], indirect=True)
def test_a_mirror_that_begins_after_a_rename_has_the_new_name_as_it_likes(fed: Feeding) -> None:
    fed.rig.send(32, ddl(at(32), "ALTER TABLE t RENAME COLUMN v TO private", kind=3))
    later = {"id": columns(5)["id"], "private": {"t": 15, "f": 64, "v": "five"}, **OLD}
    fed.rig.send(43, row(at(43), new=later))
    fed.rig.resolved(40, 41, 50, 51)
    fed.rig.decode(at(30), at(40))
    fed.shape({"exclude": ["private"]})
    fed.rig.replay(at(40), at(50))
    assert fed.database.rows("SELECT id, w FROM s.t") == [(5, "x")]


@pytest.mark.parametrize("kind", ["postgres", "mysql"], indirect=True)
@pytest.mark.parametrize("shape", [None, {"mask": {"w*": "null"}}], ids=["none", "another"])
def test_a_record_counts_also_if_nothing_is_shaped_any_more(fed: Feeding, shape: dict[str, object] | None) -> None:
    """A history, as a mirror asks for the windows between."""
    fed.rig._declared["targets"][0]["mode"] = "history"
    fed.shape({"mask": {"v*": {"fixed": "***"}, **({"w*": "null"} if shape else {})}})
    fed.replay(0, 1, 2)
    fed.rig.send(32, ddl(at(32), "ALTER TABLE t RENAME COLUMN v TO private", kind=3))
    later = {"id": columns(5)["id"], "private": {"t": 15, "f": 64, "v": "five"}, **OLD}
    fed.rig.send(43, row(at(43), new=later))
    fed.rig.resolved(40, 41, 50, 51)
    fed.shape(shape)
    with pytest.raises(PolicyStopError, match=UNLIKE):
        fed.rig.replay(at(40), at(50))
