"""What has become of the entries of a quarantine: by re-drives, by target, and by people."""

from pathlib import Path

import pytest

from tests.support.quarantine_files import TOPIC, index_with, quarantine
from ticdc_replay.changelog.files.set_aside import Entry, EntryPlace, read_entries
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.quarantine.entries import Listed, RunQuarantine, Selection, grouped
from ticdc_replay.stages.set_aside import RedriveResult, SetAside
from ticdc_replay.state.quarantine import AcceptedLoss
from ticdc_replay.storage import open_store

LAKE = frozenset({"lake"})


def entry(offset: int, ordinal: int | None, reason: str = "bad_value") -> Entry:
    row = quarantine(offset, ordinal, reason)
    values = {name: row[name] for name in row if name not in ("key", "value")}
    return Entry(run_hash="a", topic_id=TOPIC.topic_id, cluster_id=TOPIC.cluster_id, **values)


def place(offset: int, ordinal: int = -1) -> EntryPlace:
    return EntryPlace(TOPIC, 0, offset, ordinal)


def held(*entries: Entry, redrives: tuple[RedriveResult, ...] = (), accepted: tuple[Entry, ...] = ()) -> SetAside:
    losses = {
        (each.place, each.reason): AcceptedLoss("p", *each.place, each.reason, "a", "Ada", "why", "r", 0)
        for each in accepted
    }
    return SetAside(index_with(None, "a"), entries, redrives, losses)


def redriven(
    selected: set[EntryPlace], left: frozenset[EntryPlace] = frozenset(), targets: frozenset[str] = frozenset()
) -> RedriveResult:
    return RedriveResult(index_with(None, "d"), frozenset(selected), left, targets)


def test_an_entry_is_open_until_a_re_drive_of_it_is_in_every_target_that_holds_the_window() -> None:
    one = entry(1, 0)
    state = held(one, redrives=(redriven({one.place}, targets=LAKE),))
    assert state.status(one, ["lake"]) == "redriven"
    assert state.status(one, ["lake", "warehouse"]) == "open"
    assert state.status(one, []) == "redriven", "of the changelogs, whatever holds them"
    both = held(
        one, redrives=(redriven({one.place}, targets=LAKE), redriven({one.place}, targets=frozenset({"warehouse"})))
    )
    assert both.status(one, ["lake", "warehouse"]) == "redriven"


def test_what_a_re_drive_leaves_of_a_message_stays_open_and_the_rest_of_it_is_settled() -> None:
    whole, event = entry(1, None), entry(1, 2)
    state = held(whole, event, redrives=(redriven({place(1)}, left=frozenset({place(1, 2)})),))
    assert state.open() == [event]
    again = held(whole, event, redrives=(*state.redrives, redriven({place(1, 2)})))
    assert again.open() == []
    failed = held(whole, redrives=(redriven({place(1)}, left=frozenset({place(1)})),))
    assert failed.open() == [whole]


def test_a_loss_is_accepted_for_one_reason_and_no_other() -> None:
    missing, other = entry(1, 0, "claim_check_missing"), entry(1, 0, "claim_check_altered")
    assert held(missing, accepted=(missing,)).status(missing, ["lake"]) == "accepted"
    assert held(other, accepted=(missing,)).status(other, ["lake"]) == "open"


@pytest.mark.parametrize(
    ("selection", "picked"),
    [
        (Selection(), [1, 2, 3]),
        (Selection(reasons=("bad_key",)), [2]),
        (Selection(tables=("s.*",)), [1, 2]),
        (Selection(tables=("other.*",)), []),
        (Selection(places=("topic[0]@3",)), [3]),
        (Selection(places=("topic[0]@1#0", "topic[0]@2#1")), [1]),
        (Selection(places=("topic[0]@1",), reasons=("bad_key",)), []),
    ],
)
def test_a_selection_picks_what_fits_all_that_it_says(selection: Selection, picked: list[int]) -> None:
    entries = [entry(1, 0), entry(2, 0, "bad_key"), entry(3, None)]
    assert [each.offset for each in entries if selection.picks(each)] == picked


@pytest.mark.parametrize("text", ["topic", "topic[0]", "topic[0]@x", "topic[0]@1#", "[0]@1"])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a place"):
        Selection(places=(text,)).checked()


def test_groups_are_of_reason_table_and_status() -> None:
    listed = [
        Listed(entry(1, 0), "open", None),
        Listed(entry(2, 0), "open", None),
        Listed(entry(3, None), "open", None),
    ]
    groups = grouped(RunQuarantine("a", Window(1, 2), (), tuple(listed)))
    assert [(group.table, group.entries, group.example) for group in groups] == [
        ("", 1, "topic[0]@3"),
        ("s.t", 2, "topic[0]@1#0"),
    ]


def test_quarantine_files_become_entries(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    index = index_with(store, "a", quarantine(1, 0, "bad_value"), quarantine(2, None, "bad_value"))
    assert read_entries(store, index) == [entry(1, 0), entry(2, None)]
