"""Row lines against the row events that happened.

A line is of an expected event where type, commitTs, names and every cell agree. Lines without commitTs are held against the
events of their table one after the other: the next that was not seen yet, or one that was (redelivery).
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.expected.cells import same_cell
from tests.expected.wire import Json, Wire

_HIDDEN = "_V_"
"""How the names of the hidden columns of expression indexes begin, sanitised."""


class MatchedRows(NamedTuple):
    """What is wrong with row lines, and which expected events each of them is of.

    ``seqs`` has, by (topic, partition, offset, index), one number, or that of a DELETE and of an INSERT for an UPDATE that
    TiCDC did not split. Lines that known deviations are about are not in it.
    """

    problems: list[str]
    seqs: dict[tuple[Any, ...], tuple[int, ...]]


def match_rows(
    lines: list[Json],
    expected: list[Json],
    deviations: Json,
    wire: Wire,
    unknown_old: Mapping[tuple[Any, ...], tuple[str, ...]],
) -> MatchedRows:
    """*lines*, all row lines of a capture, held against *expected* events."""
    events = [wire.on_wire(event) for event in expected if event["type"] != "ddl"]
    missing_allowed = set(deviations["expected_seq_not_on_wire"])
    history = _History(events, missing_allowed)
    problems = []
    seqs: dict[tuple[Any, ...], tuple[int, ...]] = {}
    for line in lines:
        place = (line["topic"], line["partition"], line["offset"], line["index"])
        possible = history.candidates(line)
        answers = [(event, row_difference(line, event, wire, unknown_old.get(place, ()))) for event in possible]
        matching = [event for event, difference in answers if difference is None]
        if matching:
            seq = history.saw_one_of(matching, ordered=line["commit_ts"] is None)
            if seq is None:
                problems.append(f"{place} {line['type']} of {line['table']}: before earlier versions of its row")
            else:
                seqs[place] = (seq,)
            continue
        pair = _split_pair(line, possible, wire) if wire.changefeed.output_raw_change_event else None
        if pair is not None:
            history.seen.update(pair)
            seqs[place] = tuple(pair)
            continue
        excused = _excused(line, possible, deviations["mismatch"])
        if excused is None:
            told = [(event["seq"], difference) for event, difference in answers]
            problems.append(f"{place} {line['type']} of {line['table']} at {line['commit_ts']}: {told}")
        else:
            history.seen.update(excused)
    missing_allowed |= {known["expected_seq"] for known in deviations["mismatch"] if "expected_seq" in known}
    missing = sorted({event["seq"] for event in events} - history.seen - missing_allowed)
    if missing:
        problems.append(f"expected events that were not decoded: {missing}")
    return MatchedRows(problems, seqs)


class _History:
    """The expected events, and which of them were seen."""

    def __init__(self, events: list[Json], never_sent: set[int]) -> None:
        self.seen: set[int] = set()
        self._timed: dict[tuple[str, str, int], list[Json]] = defaultdict(list)
        self._tables: dict[tuple[str, str], list[Json]] = defaultdict(list)
        self._versions: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for event in events:
            table = (event["schema"], event["table"])
            self._timed[(*table, event["commit_ts"])].append(event)
            self._tables[table].append(event)
            if event["seq"] not in never_sent:
                self._versions[_key(event)].append(event["seq"])

    def candidates(self, line: Json) -> list[Json]:
        """The events that *line* may be of, by its names and commitTs."""
        table = (line["schema"], line["table"])
        if line["commit_ts"] is not None:
            return self._timed[(*table, line["commit_ts"])]
        return self._tables[table]

    def saw_one_of(self, matching: list[Json], ordered: bool) -> int | None:
        """Mark the first of *matching* as seen that was not, and return its number.

        Lines that have to be *ordered* bring the versions of a row one after the other, or again; None where one comes early.
        """
        fresh = [event for event in matching if event["seq"] not in self.seen]
        if ordered:
            fresh = [event for event in fresh if self._seen_before(event)]
        known = [event for event in matching if event["seq"] in self.seen]
        found: int | None = next((event["seq"] for event in (*fresh, *known)), None)
        if found is not None:
            self.seen.add(found)
        return found

    def _seen_before(self, event: Json) -> bool:
        return self.seen.issuperset(seq for seq in self._versions[_key(event)] if seq < event["seq"])


def _key(event: Json) -> tuple[Any, ...]:
    image = event.get("columns") or event["pre"]
    if not event["handle_key"]:
        return (event["seq"],)
    return (event["schema"], event["table"], *(image[name]["value"] for name in event["handle_key"]))


def _split_pair(line: Json, possible: list[Json], wire: Wire) -> list[int] | None:
    """The delete and the insert that stand for the raw update *line*, by cells; the insert alone without old image."""
    if line["type"] not in ("update", "upsert"):
        return None
    halves = [event for event in possible if event.get("split_from_update")]
    old = [event for event in halves if event["type"] == "delete"]
    new = [event for event in halves if image_difference(line["columns"], event.get("columns"), wire) is None]
    if line["pre"] is None:
        return None if wire.old_values else [event["seq"] for event in new][:1] or None
    for insert in new:
        for delete in old:
            optional = _unchanged(delete["pre"], insert["columns"]) if wire.updated_columns else frozenset()
            if image_difference(line["pre"], delete["pre"], wire, optional) is None:
                return [delete["seq"], insert["seq"]]
    return None


def _excused(line: Json, possible: list[Json], mismatches: list[Json]) -> list[int] | None:
    """The events that *line* may stand for although it does not say what they say, by the list of known deviations."""
    for known in mismatches:
        if known["kind"] == "diff":
            for event in possible:
                if event["seq"] == known["expected_seq"] and line["type"] == known["type"]:
                    return [event["seq"]]
        elif known["kind"] == "row unmatched":
            head, image = ast.literal_eval(known["event"])
            names = (line["schema"], line["table"], line["type"], line["commit_ts"])
            if names != (head["schema"], head["table"], head["type"], head["ts"]):
                continue
            wanted = {name: cell and cell[1] for name, cell in ast.literal_eval(image).items()}
            if wanted == {name: cell["value"] for name, cell in (line["columns"] or line["pre"]).items()}:
                return []
    return None


def row_difference(line: Json, event: Json, wire: Wire, unknown: tuple[str, ...] = ()) -> str | None:
    """What tells *line* from *event*, None where nothing does. *unknown* names old values that the wire garbled."""
    type_, partial = event["type"], line["partial"]
    types = wire.types(event, partial)
    if line["type"] not in types:
        return f"type {line['type']} instead of {sorted(types)}"
    if (line["commit_ts"] is not None) not in wire.commit_ts(type_):
        return f"commitTs {line['commit_ts']}"
    tombstone = type_ == "delete" and wire.has_tombstones()
    if partial != tombstone if tombstone or not wire.may_be_partial(type_) else False:
        return "partial" if partial else "not partial"
    new, old = event.get("columns"), event.get("pre")
    if line["type"] == "upsert" or (type_ == "update" and not wire.old_values):
        old = None
    if partial:
        key = wire.key(event) if tombstone else event["handle_key"]
        new, old = _only(new, key), _only(old, key)
    if old is not None and unknown:
        if any(line["columns"][name]["value"] is not None for name in unknown):
            return f"old values of {unknown} can't be unknown: not NULL now"
        old = {name: cell for name, cell in old.items() if name not in unknown}
    difference = image_difference(line["columns"], new, wire)
    if difference is None:
        optional = _unchanged(old, new) if wire.updated_columns and type_ == "update" else frozenset()
        difference = image_difference(line["pre"], old, wire, optional)
        difference = difference and f"old: {difference}"
    return difference


def _only(image: Json | None, names: Iterable[str]) -> Json | None:
    wanted = set(names)
    return None if image is None else {name: cell for name, cell in image.items() if name in wanted}


def _unchanged(old: Json | None, new: Json | None) -> frozenset[str]:
    if old is None or new is None:
        return frozenset()
    return frozenset(name for name in old.keys() & new.keys() if old[name]["value"] == new[name]["value"])


def image_difference(
    got: Json | None, wanted: Json | None, wire: Wire, optional: frozenset[str] = frozenset()
) -> str | None:
    """What tells the image *got* from *wanted*, which may lack *optional* columns."""
    if got is None or wanted is None:
        return None if got is wanted else f"image {got and list(got)} instead of {wanted and list(wanted)}"
    if wire.changefeed.protocol == "debezium-avro" and not got.keys() <= wanted.keys():
        wanted = wire.spelled(wanted) or {}
    on_wire = {name: cell for name, cell in wanted.items() if not cell.get("virtual")}
    for name in got.keys() - on_wire.keys():
        derived = name in wanted or name.startswith(_HIDDEN)
        if not (wire.virtual_as_null and derived and got[name]["value"] is None):
            return f"columns {sorted(got)} instead of {sorted(on_wire)}"
    if not on_wire.keys() <= got.keys() | optional:
        return f"columns {sorted(got)} instead of {sorted(on_wire)}"
    for name, cell in on_wire.items():
        if name in got and not same_cell(got[name], cell, wire):
            return f"{name}: {got[name]} instead of {cell}"
    return None
