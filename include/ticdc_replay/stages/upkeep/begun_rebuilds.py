"""Rebuilds of mirrors that have begun. Each has a file in the artefacts until its swap is done, or until a person gives it up.

So what removes changelogs knows which of them are still to be loaded, without a connection to any target.
"""

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.selection import undecoded

_FOLDER = "rebuilds"


class BegunRebuild(msgspec.Struct, frozen=True):
    """A rebuild of the mirror of ``table``, which needs changes from ``begin_ts`` (TSO) on."""

    target: str
    place: str
    """Of the target (``TargetSection.place``): its name may change."""
    table: TableName
    begin_ts: int
    is_replacing: bool = False
    """Whether the new mirror, which has runs, was about to take the place of the old one: if it has none any more, it has."""
    is_comparison: bool = False
    """Whether only a comparison has begun it, which removes what is beside if both are equal."""

    def needs(self, index: ChangelogIndex) -> bool:
        """Whether it may have to load the changelog *index*, which is no base: bases are kept anyway."""
        return index.window.to_ts > self.begin_ts and not undecoded(index, [str(self.table)])


def note(
    context: ReplayContext,
    target: str,
    table: TableName,
    begin_ts: int,
    *,
    is_replacing: bool = False,
    is_comparison: bool = False,
) -> None:
    """Note that a rebuild of the mirror of *table* in *target* has begun, which needs changes from *begin_ts* (TSO) on,
    whether its swap has begun, and whether a comparison alone needs it."""
    begun = BegunRebuild(target, context.place_of(target), table, begin_ts, is_replacing, is_comparison)
    context.artifacts.put(_name(begun.place, table), canonical.encode(begun))


def end_replacing(context: ReplayContext, target: str, table: TableName) -> None:
    """Note that the swap of a rebuild of *table* in *target*, if one has begun, was not done and is none any more."""
    found = of_table(context, target, table)
    if found is not None and found.is_replacing:
        note(context, target, table, found.begin_ts)


def of_table(context: ReplayContext, target: str, table: TableName) -> BegunRebuild | None:
    """The rebuild of *table* in *target* that has begun, and not ended. Raises what ``begun`` raises."""
    place = context.place_of(target)
    return next((each for each in begun(context) if (each.place, each.table) == (place, table)), None)


def forget(context: ReplayContext, target: str, table: TableName) -> None:
    """Note that it has ended."""
    context.artifacts.delete(_name(context.place_of(target), table))


def begun(context: ReplayContext) -> tuple[BegunRebuild, ...]:
    """The rebuilds that have begun in the targets of the pipeline. Raises ArtifactCorruptError for a note that is none."""
    places = set(context.places.values())
    found = []
    for file in context.artifacts.list(f"{_FOLDER}/"):
        try:
            rebuild = msgspec.json.decode(context.artifacts.get(file.name), type=BegunRebuild)
        except ArtifactNotFoundError:
            continue  # has ended meanwhile
        except msgspec.DecodeError as error:
            raise ArtifactCorruptError(
                f"{context.artifacts.uri(file.name)} is no note of a rebuild ({error}): remove it, and run the rebuild again"
            ) from None
        if rebuild.place in places:
            found.append(rebuild)
    return tuple(found)


def _name(place: str, table: TableName) -> str:
    return f"{_FOLDER}/{canonical.hash_of([place, str(table)])}.json"
