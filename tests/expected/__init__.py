"""Compares what was decoded from a capture with the events that are known to have happened.

The comparison reads canonical lines and the expected events only. It knows nothing of the decoder: what a variant of the wire
may leave out, and how it spells names, follows from the options of its changefeed (``wire``).

Values, not cases: ``cells`` compares one cell, ``rows`` finds the event of a row line, ``ddl`` that of a DDL line.
"""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.expected.ddl import compare_ddl
from tests.expected.rows import MatchedRows, match_rows
from tests.expected.wire import Json, Wire
from ticdc_replay.changefeed.config import Changefeed

__all__ = ["MatchedRows", "compare", "expected_events", "known_deviations", "match", "read_lines"]


def read_lines(path: Path) -> list[Json]:
    """The JSON lines of *path*, or of its packed copy."""
    packed = path.with_name(f"{path.name}.gz")
    content = gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()
    return [json.loads(line) for line in content.splitlines()]


def expected_events(capture: Path) -> list[Json]:
    """The events that the messages of *capture* tell of."""
    meta = json.loads((capture / "meta.json").read_bytes())
    return read_lines(capture.parent.parent / "expected" / Path(meta["expected"]).name.removesuffix(".gz"))


def known_deviations(capture: Path) -> Json:
    """What of *capture* can't equal the expected events."""
    deviations: Json = json.loads((capture.parent / "known_deviations.json").read_bytes())[capture.name]
    return deviations


def compare(lines: Iterable[Json], capture: Path, changefeed: Changefeed) -> list[str]:
    """Every difference between *lines*, decoded from *capture*, and what they should be; empty when all is right."""
    return match(lines, capture, changefeed).problems


def match(
    lines: Iterable[Json],
    capture: Path,
    changefeed: Changefeed,
    unknown_old: Mapping[tuple[Any, ...], tuple[str, ...]] | None = None,
    quarantined: int = 0,
) -> MatchedRows:
    """Every difference between *lines* and what they should be, and which row is of which expected event.

    *unknown_old* names, by (topic, partition, offset, index), columns whose old value the decoder says can't be known.
    *quarantined* is how many row events rightly have no line.
    """
    meta = json.loads((capture / "meta.json").read_bytes())
    wire = Wire(changefeed, new="classic" not in meta["repository"])
    expected = expected_events(capture)
    deviations = known_deviations(capture)
    by_kind: dict[str, list[Json]] = defaultdict(list)
    for line in lines:
        by_kind[line["kind"]].append(line)
    rows = match_rows(by_kind["row"], expected, deviations, wire, unknown_old or {})
    problems = [
        *rows.problems,
        *compare_ddl(by_kind["ddl"], expected, deviations, wire),
        *_foreign_bootstraps(by_kind["bootstrap"], expected),
        *_compare_counts(by_kind, meta, wire, quarantined),
    ]
    return MatchedRows(problems, rows.seqs)


def _foreign_bootstraps(lines: list[Json], expected: list[Json]) -> list[str]:
    known = {(event["schema"], event["table"].lower()) for event in expected}
    return [
        f"bootstrap of no expected table: {line}"
        for line in lines
        if (line["schema"], line["table"].lower()) not in known
    ]


def _compare_counts(by_kind: Mapping[str, list[Json]], meta: Json, wire: Wire, quarantined: int) -> list[str]:
    """Everything that was sent was decoded, redelivered events too."""
    counts = meta["counts"]
    got = Counter({kind: len(lines) for kind, lines in by_kind.items()})
    wanted = {
        "row": counts["row_events"] - quarantined,
        "ddl": counts.get("ddl_events", 0) * (1 if wire.ddl_in_first_partition else meta["partitions"]),
        "watermark": counts.get("watermark_messages", 0),
        "bootstrap": counts.get("bootstrap_messages", 0),
    }
    return [f"{got[kind]} × {kind} instead of {number}" for kind, number in wanted.items() if got[kind] != number]
