"""Which stretches of commit time are loaded in which target, and where the gaps are."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.state.records import Coverage, Quality


class Span(msgspec.Struct, frozen=True):
    """A stretch without interruption. ``quarantine`` where, for some table, a part of it was set aside by policy."""

    window: Window
    quality: Quality


class Covered(msgspec.Struct, frozen=True):
    """What is loaded of one target or table: spans in order, and the gaps between them."""

    name: str
    spans: tuple[Span, ...]

    @property
    def gaps(self) -> tuple[Window, ...]:
        """Stretches between the first and the last span that are not loaded."""
        return tuple(
            Window(before.window.to_ts, after.window.from_ts)
            for before, after in pairwise(self.spans)
            if before.window.to_ts < after.window.from_ts
        )


class TargetCoverage(msgspec.Struct, frozen=True):
    """A target as a whole, where any of its tables counts, and table by table."""

    target: Covered
    tables: tuple[Covered, ...]


def coverage(context: ReplayContext) -> tuple[TargetCoverage, ...]:
    """What the targets of the pipeline hold, in the order of its file; targets without any load included."""
    records = context.state.coverage(context.pipeline.name)
    return tuple(
        _target(target.name, [record for record in records if record.target == target.name])
        for target in context.pipeline.targets
    )


def spans(records: Iterable[Coverage]) -> tuple[Span, ...]:
    """The stretches that *records*, which may overlap, cover together; neighbours of one quality are one stretch."""
    known = list(records)
    edges = sorted({edge for record in known for edge in (record.window.from_ts, record.window.to_ts)})
    found: list[Span] = []
    for start, end in pairwise(edges):
        qualities = {record.quality for record in known if record.window.from_ts <= start < record.window.to_ts}
        if not qualities:
            continue
        quality: Quality = "quarantine" if "quarantine" in qualities else "complete"
        last = found[-1] if found else None
        if last and last.window.to_ts == start and last.quality == quality:
            found[-1] = Span(Window(last.window.from_ts, end), quality)
        else:
            found.append(Span(Window(start, end), quality))
    return tuple(found)


def _target(name: str, records: Sequence[Coverage]) -> TargetCoverage:
    by_table: dict[str, list[Coverage]] = {}
    for record in records:
        by_table.setdefault(str(record.table), []).append(record)
    tables = tuple(Covered(table, spans(found)) for table, found in sorted(by_table.items()))
    return TargetCoverage(Covered(name, spans(records)), tables)
