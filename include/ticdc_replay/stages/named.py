"""The messages in ``set_aside`` of the pipeline file: which concern an input, and which a changelog does not know."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from ticdc_replay.changelog.copies.named_rows import places_with_rows
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain.errors import ArtifactNotFoundError, PermanentError
from ticdc_replay.domain.messages import EventPlace, OffsetRange
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.window import Window
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.stages.context import ReplayContext


def named_places(pipeline: Pipeline, ranges: Iterable[OffsetRange] | None = None) -> tuple[EventPlace, ...]:
    """The places that *pipeline* names, sorted; of these, where *ranges* are given, those in one of them."""
    places = tuple(sorted(set(map(EventPlace.parse, pipeline.set_aside))))
    if ranges is None or not places:
        return places
    known = tuple(ranges)
    return tuple(place for place in places if any(place.lies_in(part) for part in known))


def named_since(
    context: ReplayContext, index: ChangelogIndex, tables: Sequence[str], window: Window | None = None
) -> tuple[EventPlace, ...]:
    """The places in ``set_aside`` that the decode of *index* did not know, and that have rows in its changelog.

    Only rows of *tables* (patterns) and, if given, of *window* count. Opens files only if the pipeline file names
    places that may be in the changelog. Raises ArtifactNotFoundError if one is gone.
    """
    if not context.pipeline.set_aside:
        return ()
    known = set(index.set_aside)
    unknown = [
        place
        for place in named_places(context.pipeline, _ranges(context, index))
        if place not in known and place.message not in known
    ]
    wanted = TablePatterns(tables)
    names = {version.schema.name for version in index.tables}
    selected = {name for name in names if wanted.wants(name.schema, name.table)}
    return places_with_rows(context.artifacts, index, unknown, selected, window)


def require_set_aside(context: ReplayContext, index: ChangelogIndex, tables: Sequence[str]) -> None:
    """Raise PermanentError, with what to do, if the changelog of *index* has rows of *tables* (patterns) from a message
    in ``set_aside``: it was named after the changelog, or one that it takes rows from, was decoded."""
    places = named_since(context, index, tables)
    if places:
        raise PermanentError(
            f"run {index.run_hash} of window {index.window} has rows of {', '.join(map(str, places))}, which set_aside of the "
            "pipeline file names, and no target may get them: the run was decoded before they were named. "
            f"{_way(context, index)}. To load these rows, remove the lines from the file"
        )


def named_in_sources(context: ReplayContext, manifest: Manifest, tables: Sequence[str]) -> Iterator[str]:
    """For each changelog that *manifest* takes its window from: rows of *tables* named in ``set_aside`` since, and what
    to do. Changelogs that are gone are skipped."""
    for source in manifest.derived:
        with contextlib.suppress(ArtifactNotFoundError):
            places = named_since(context, read_index(context.artifacts, source.run_hash), tables, source.window)
            if places:
                yield (
                    f"run {source.run_hash[:12]}, which it is taken from, has rows of {', '.join(map(str, places))}, which "
                    "set_aside of the pipeline file names since: decode the window of that run again, then pin this one again "
                    "(repin; with from_changelog where Kafka has expired it), or take these lines out"
                )


def _way(context: ReplayContext, index: ChangelogIndex) -> str:
    """How the rows are set aside after all."""
    if index.redrives is not None:
        return "Re-drive its entries once more"
    if index.derived:
        with contextlib.suppress(ArtifactNotFoundError):
            if manifests.decode(context.artifacts.get(f"manifests/{index.input_hash}.json")).shared is not None:
                return _DECODE
        return (
            f"It takes them from changelogs of other runs ({', '.join(_sources(index))}): decode their windows again, each "
            f"from its decode on, then pin window {index.window} again (repin; with from_changelog where Kafka has expired it)"
        )
    return _DECODE


_DECODE = "Clear the run from decode on (command line: run once more), which decodes it again"


def _sources(index: ChangelogIndex) -> list[str]:
    return list(dict.fromkeys(source.run_hash[:12] for source in index.derived))


def _ranges(context: ReplayContext, index: ChangelogIndex) -> tuple[OffsetRange, ...] | None:
    """The ranges of Kafka that the rows of *index* come from; None where they are not known."""
    if not index.derived:
        return index.ranges or None
    found: set[OffsetRange] = set()
    for run_hash in {source.run_hash for source in index.derived}:
        try:
            ranges = read_index(context.artifacts, run_hash).ranges
        except ArtifactNotFoundError:
            return None
        if not ranges:
            return None
        found.update(ranges)
    return tuple(sorted(found))
