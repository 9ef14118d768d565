"""Compares what was decoded from a capture with the events that are known to have happened.

The comparison reads canonical lines and the expected events only. It knows nothing of the decoder: what a variant of the wire
may leave out is told by the options of its changefeed.
"""

import gzip
import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ticdc_replay.config.changefeed import Changefeed

Json = dict[str, Any]


def read_lines(path: Path) -> list[Json]:
    """The JSON lines of *path*, or of its packed copy."""
    packed = path.with_name(f"{path.name}.gz")
    content = gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()
    return [json.loads(line) for line in content.splitlines()]


def compare(
    lines: Iterable[Json], capture: Path, changefeed: Changefeed, unknown_old: dict[tuple[Any, ...], tuple[str, ...]]
) -> list[str]:
    """Every difference between *lines*, decoded from *capture*, and what they should be; empty when all is right.

    *unknown_old* names, by (topic, partition, offset, index), columns whose old value the decoder says can't be known.
    """
    meta = json.loads((capture / "meta.json").read_bytes())
    name = Path(meta["expected"]).name.removesuffix(".gz")
    expected = read_lines(capture.parent.parent / "expected" / name)
    deviations = json.loads((capture.parent / "known_deviations.json").read_bytes())[capture.name]
    by_kind = defaultdict(list)
    for line in lines:
        by_kind[line["kind"]].append(line)
    return [
        *_compare_rows(by_kind["row"], expected, deviations, changefeed, unknown_old),
        *_compare_ddl(by_kind["ddl"], expected, deviations),
        *_compare_counts(by_kind, meta),
    ]


def _compare_rows(
    lines: list[Json],
    expected: list[Json],
    deviations: Json,
    changefeed: Changefeed,
    unknown_old: dict[tuple[Any, ...], tuple[str, ...]],
) -> list[str]:
    candidates = defaultdict(list)
    for event in expected:
        if event["type"] != "ddl":
            candidates[event["schema"], event["table"], event["commit_ts"]].append(event)
    problems = []
    seen: set[int] = set()
    for line in lines:
        place = (line["topic"], line["partition"], line["offset"], line["index"])
        possible = candidates[line["schema"], line["table"], line["commit_ts"]]
        answers = [
            (event["seq"], _row_difference(line, event, changefeed, unknown_old.get(place, ()))) for event in possible
        ]
        matching = [seq for seq, difference in answers if difference is None]
        if matching:
            fresh = [seq for seq in matching if seq not in seen]
            seen.add((fresh or matching)[0])
            continue
        pair = _split_pair(line, possible) if changefeed.output_raw_change_event else None
        if pair is not None and any(pair[0] == known["expected_seq"] for known in deviations["mismatch"]):
            seen.update(pair)
            continue
        problems.append(f"{place} {line['type']} of {line['table']}: {answers}")
    missing = {event["seq"] for event in expected if event["type"] != "ddl"} - seen
    excused = set(deviations["expected_seq_not_on_wire"])
    if missing - excused:
        problems.append(f"expected events that were not decoded: {sorted(missing - excused)}")
    return problems


def _split_pair(line: Json, possible: list[Json]) -> tuple[int, int] | None:
    """The delete and the insert that stand for the raw update *line*, by cells."""
    if line["type"] != "update":
        return None
    halves = [event for event in possible if event.get("split_from_update")]
    for old in halves:
        for new in halves:
            if (
                old["type"] == "delete"
                and new["type"] == "insert"
                and _image_difference(line["pre"], old["pre"]) is None
                and _image_difference(line["columns"], new["columns"]) is None
            ):
                return old["seq"], new["seq"]
    return None


def _row_difference(line: Json, event: Json, changefeed: Changefeed, unknown: tuple[str, ...]) -> str | None:
    """What tells *line* from *event*, None where nothing does."""
    type_ = event["type"]
    key = event["handle_key"]
    partial = line["partial"]
    old_values = changefeed.output_old_value
    only_updated = changefeed.only_output_updated_columns
    types = {type_}
    if (type_ != "delete" and not old_values) or (type_ == "insert" and only_updated):
        types = {"upsert"}
    elif type_ == "update" and only_updated and (event.get("no_visible_change") or partial):
        types = {"update", "upsert"}  # classic leaves out a `p` without columns
    if line["type"] not in types:
        return f"type {line['type']} instead of {sorted(types)}"
    may_be_partial = changefeed.large_message == "handle-key-only" or (
        type_ == "delete" and changefeed.delete_only_output_handle_key_columns
    )
    if partial and not may_be_partial:
        return "partial"
    new, old = event.get("columns"), event.get("pre")
    if line["type"] == "upsert":
        old = None
    if partial:
        new, old = _only(new, key), _only(old, key)
    if old is not None and unknown:
        if any(line["columns"][name]["value"] is not None for name in unknown):
            return f"old values of {unknown} can't be unknown: not NULL now"
        old = {name: cell for name, cell in old.items() if name not in unknown}
    difference = _image_difference(line["columns"], new)
    if difference is None:
        difference = _image_difference(line["pre"], old)
        difference = difference and f"old: {difference}"
    return difference


def _only(image: Json | None, names: list[str]) -> Json | None:
    return None if image is None else {name: cell for name, cell in image.items() if name in names}


def _image_difference(got: Json | None, wanted: Json | None) -> str | None:
    if got is None or wanted is None:
        return None if got is wanted else f"image {got and list(got)} instead of {wanted and list(wanted)}"
    on_wire = {name: cell for name, cell in wanted.items() if not cell.get("virtual")}
    if got.keys() != on_wire.keys():
        return f"columns {sorted(got)} instead of {sorted(on_wire)}"
    for name, cell in on_wire.items():
        if not _same_cell(got[name], cell):
            return f"{name}: {got[name]} instead of {cell}"
    return None


def _same_cell(got: Json, wanted: Json) -> bool:
    type_, value = wanted["mysql_type"], wanted["value"]
    if value is None:
        return got["value"] is None and "index" not in got
    if type_.startswith(("enum", "set")):
        return bool(got.get("index") == wanted["index"] and got.get("value", value) == value)
    text = got["value"]
    if text is None or bool(got.get("is_binary")) != bool(wanted.get("is_binary")):
        return False
    if type_.startswith("json"):
        return bool(json.loads(text) == json.loads(value))
    if type_.startswith("float"):
        return struct.pack("<f", float(text)) == struct.pack("<f", float(value))
    if type_.startswith("double"):
        return struct.pack("<d", float(text)) == struct.pack("<d", float(value))
    return bool(text == value)


def _compare_ddl(lines: list[Json], expected: list[Json], deviations: Json) -> list[str]:
    wanted = {event["seq"]: event for event in expected if event["type"] == "ddl"}
    problems = []
    seen: set[int] = set()
    for line in lines:
        found = [seq for seq, event in wanted.items() if _same_ddl(line, event)]
        if not found:
            problems.append(f"DDL of no expected event: {line}")
        seen.update(found)
    missing = wanted.keys() - seen
    if len(missing) > deviations["expected_ddl_not_on_wire"]:
        problems.append(f"expected DDL that was not decoded: {[wanted[seq]['query'] for seq in sorted(missing)]}")
    return problems


_RENAME_TABLE, _EXCHANGE_PARTITION = 14, 42


def _same_ddl(line: Json, event: Json) -> bool:
    if line["commit_ts"] != event["commit_ts"]:
        return False
    hint = event.get("wire_query_hint")
    if hint is not None:
        return bool(line["type"] == _RENAME_TABLE and line["query"].rstrip(";") == hint)
    code = event["action_code"]
    # A rename names the new table on the wire; for EXCHANGE PARTITION the architectures name different tables.
    same_table = code in (_RENAME_TABLE, _EXCHANGE_PARTITION) or line["table"].lower() == event["table"].lower()
    verb = event["query"].split()[0].upper()
    return bool(
        line["type"] == code and line["schema"] == event["schema"] and same_table and line["query"].startswith(verb)
    )


def _compare_counts(by_kind: dict[str, list[Json]], meta: Json) -> list[str]:
    """Everything that was sent was decoded, redelivered events too."""
    counts = meta["counts"]
    got = Counter({kind: len(lines) for kind, lines in by_kind.items()})
    wanted = {
        "row": counts["row_events"],
        "ddl": counts["ddl_events"] * meta["partitions"],
        "watermark": counts["watermark_messages"],
    }
    return [f"{got[kind]} × {kind} instead of {number}" for kind, number in wanted.items() if got[kind] != number]
