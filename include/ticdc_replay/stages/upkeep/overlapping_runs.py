"""Loaded runs whose windows overlap, but are not the same: which ones a rebuild leaves out, and which ones stop it.

Of two row versions with one commitTs a mirror keeps the one that was loaded last. A rebuild loads windows as they end, whichever
was loaded last into the old mirror. So a run that newer ones replace must not be loaded, and where a part of it still counts, all
have to have decoded the same.
"""

from collections.abc import Iterator, Mapping, Sequence

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.state.coverage import Coverage


def replaced(records: Sequence[Coverage], begin_ts: int) -> list[Coverage]:
    """Those of *records*, sorted by window, that newer ones without open quarantine make up from *begin_ts* (TSO) on."""
    return [record for record, others in _overlaps(records) if not _left_of(record, others, begin_ts)]


def mixed(
    context: ReplayContext,
    table: TableName,
    records: Sequence[Coverage],
    indexes: Mapping[str, ChangelogIndex],
    begin_ts: int,
) -> Iterator[str]:
    """A line for each two of *records*, sorted by window, that may have different rows of *table* for one time, with a remedy."""
    for older, others in _overlaps(records):
        for newer in others:
            if (older.generation, older.window) > (newer.generation, newer.window):
                continue
            if not _is_alike(context, table, indexes[older.run_hash], indexes[newer.run_hash]):
                left = _left_of(older, others, begin_ts)
                yield f"{_named(older)} and, newer, {_named(newer)}: replay " + ", ".join(map(str, left))


def _overlaps(records: Sequence[Coverage]) -> list[tuple[Coverage, list[Coverage]]]:
    """Each of *records*, sorted by window, with those whose windows have a part of its own, and are not the same."""
    found: list[tuple[Coverage, list[Coverage]]] = []
    lasting: list[tuple[Coverage, list[Coverage]]] = []
    for record in records:
        lasting = [each for each in lasting if each[0].window.to_ts > record.window.from_ts]
        entry: tuple[Coverage, list[Coverage]] = (record, [])
        for other, others in lasting:
            if other.window != record.window:
                others.append(record)
                entry[1].append(other)
        lasting.append(entry)
        found.append(entry)
    return found


def _left_of(record: Coverage, others: Sequence[Coverage], begin_ts: int) -> list[Window]:
    """What no newer one of *others* without open quarantine has of the window of *record*, from *begin_ts* (TSO) on."""
    newer = sorted(
        other.window for other in others if other.generation > record.generation and other.quality == "complete"
    )
    left, reached = [], max(record.window.from_ts, begin_ts)
    for window in newer:
        if window.from_ts > reached:
            left.append(Window(reached, window.from_ts))
        reached = max(reached, window.to_ts)
    if reached < record.window.to_ts:
        left.append(Window(reached, record.window.to_ts))
    return left


def _is_alike(context: ReplayContext, table: TableName, first: ChangelogIndex, second: ChangelogIndex) -> bool:
    """Whether both have the same rows of *table* for the time that both have: none, or decoded in one way."""
    from_ts = max(first.window.from_ts, second.window.from_ts)
    to_ts = min(first.window.to_ts, second.window.to_ts)
    versions = [
        {
            version.version
            for version in index.versions_of(table)
            if _is_within(index.extent_of(version), from_ts, to_ts)
        }
        for index in (first, second)
    ]
    if not any(versions):
        return True
    if all(versions) and versions[0] != versions[1]:
        return False
    return len(_decodes(context, first) | _decodes(context, second)) == 1


def _is_within(extent: tuple[int, int], from_ts: int, to_ts: int) -> bool:
    return extent[0] < to_ts and extent[1] >= from_ts


def _decodes(context: ReplayContext, index: ChangelogIndex) -> frozenset[tuple[object, ...]]:
    """By what the rows of *index* were decoded: settings and versions of the library. Raises ArtifactNotFoundError if what it
    takes rows from is gone."""
    if index.derived:
        sources = (read_index(context.artifacts, source.run_hash) for source in index.derived)
        return frozenset[tuple[object, ...]]().union(*(_decodes(context, source) for source in sources))
    manifest = manifests.decode(context.artifacts.get(f"manifests/{index.input_hash}.json"))
    return frozenset({(manifest.changefeed_hash, index.library_version, index.variant, index.set_aside)})


def _named(record: Coverage) -> str:
    return f"{record.window} of run {record.run_hash[:12]}"
