"""What became of each version of one row in one target, judged from what is recorded of loads and from what the target has.

Nothing here opens a file or a connection.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.tso import describe
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import FoundRow

FateName = Literal[
    "current",
    "held",
    "loaded",
    "replaced",
    "superseded",
    "folded",
    "set_aside",
    "below_floor",
    "left_out",
    "forgotten",
    "not_loaded",
    "missing",
]
"""docs/user-guide.md says what each means."""

LoadState = Literal["loaded", "left_out", "forgotten", "outdated"]
"""``outdated``: a newer run of the window has replaced its files."""


class RunLoad(msgspec.Struct, frozen=True):
    """What is recorded of the load of one run into one target, for one table; the time is in ms."""

    state: LoadState
    loaded_at_ms: int


class Occurrence(msgspec.Struct, frozen=True):
    """A row version in the changelog of one run."""

    run_hash: str
    window: Window
    place: EventPlace
    is_base: bool = False
    """Whether the changelog is one of a dump, whose load raises the floor to the end of its window."""


class Version(msgspec.Struct, frozen=True):
    """A version of the row: ``number`` is its commitTs (TSO), or its place where rows have none (``version_order``)."""

    number: int
    is_put: bool
    order: VersionOrder
    occurrences: tuple[Occurrence, ...]

    @property
    def rank(self) -> tuple[int, bool]:
        """What orders it among the row's versions: of one commitTs, the put comes after the delete."""
        return self.number, self.is_put

    @property
    def text(self) -> str:
        """For people."""
        return f"{'put' if self.is_put else 'delete'} {self.number}"


class TargetFacts(msgspec.Struct, frozen=True):
    """What is known of one target and one row."""

    name: str
    found: FoundRow
    loads: Mapping[str, RunLoad]
    """By run; none of runs that were not loaded."""
    refused: Mapping[tuple[str, EventPlace], str]
    """Why the target could not hold a version, by run and place."""


class Fate(msgspec.Struct, frozen=True):
    """What became of one version in one target."""

    target: str
    fate: FateName
    detail: str = ""
    """For people."""


def fates(versions: Sequence[Version], target: TargetFacts) -> list[Fate]:
    """The fate in *target* of each of *versions*, which are all that is known of one row, in order of ``Version.rank``."""
    return _Judge(versions, target).all()


class _Judge:
    def __init__(self, versions: Sequence[Version], target: TargetFacts) -> None:
        self._versions = versions
        self._target = target
        self._last_of_run = {each.run_hash: version for version in versions for each in version.occurrences}
        self._unapplied = [self._why_unapplied(version) for version in versions]

    def all(self) -> list[Fate]:
        return [Fate(self._target.name, *self._fate(at)) for at in range(len(self._versions))]

    def _fate(self, at: int) -> tuple[FateName, str]:
        version, found = self._versions[at], self._target.found
        if found.keeps == "row" and found.version is not None and self._is_held(version):
            return "current", "deleted: the target remembers the delete" if found.is_deleted else ""
        unapplied = self._unapplied[at]
        if unapplied is not None:
            return unapplied
        if found.keeps == "all" and not found.not_looked and (found.version is None or found.version < version.number):
            newest = "no version" if found.version is None else f"none after {found.version}"
            return "missing", f"its window is loaded, but the target has {newest} of the row"
        if found.keeps != "row":
            return "held", ""
        return self._in_mirror(at)

    def _in_mirror(self, at: int) -> tuple[FateName, str]:
        """The fate of a version that its load had to apply unless the mirror had a newer one."""
        version, found = self._versions[at], self._target.found
        newer = [each for each, why in zip(self._versions[at + 1 :], self._unapplied[at + 1 :], strict=True) if not why]
        if newer:
            first = min(newer, key=self._loaded_at)
            if self._loaded_at(first) < self._loaded_at(version):
                return "superseded", f"{first.text} was loaded before"
            return "replaced", f"by {newer[0].text}"
        if found.not_looked:
            return "loaded", "the target was not looked at"
        if found.version is None:
            return "missing", "its window is loaded, but the target has neither the row nor its delete"
        if found.version > version.number:
            return "replaced", f"by {found.version}, which is in no changelog that was read"
        return "missing", f"its window is loaded, but the target has the older {found.version}"

    def _why_unapplied(self, version: Version) -> tuple[FateName, str] | None:
        """Why no load had to apply *version*; None if one had to."""
        loads = {each.run_hash: self._target.loads.get(each.run_hash) for each in version.occurrences}
        loaded = [each for each in version.occurrences if _is_loaded(loads[each.run_hash])]
        if not loaded:
            return _why_not_loaded([load for load in loads.values() if load is not None])
        keeps = self._target.found.keeps
        last = [self._last_of_run[each.run_hash] for each in loaded]
        if keeps != "all" and version not in last:
            return "folded", f"into {last[0].text}, the last one of its window"
        reasons = [self._target.refused.get((each.run_hash, each.place)) for each in loaded]
        if None not in reasons:
            return "set_aside", f"the target can't hold it: {reasons[0]}"
        if keeps == "row" and self._is_below_floor(version) and not self._has_raised_floor(loaded):
            return "below_floor", f"nothing below {describe(self._target.found.floor_ts)} is applied"
        return None

    def _is_below_floor(self, version: Version) -> bool:
        floor_ts = self._target.found.floor_ts
        if version.order == "commit_ts":
            return version.number < floor_ts
        return all(each.window.to_ts <= floor_ts for each in version.occurrences)

    def _has_raised_floor(self, loaded: Sequence[Occurrence]) -> bool:
        """Whether the floor is that of a base which brought the version, so that it was applied before the floor was there."""
        return any(each.is_base and each.window.to_ts == self._target.found.floor_ts for each in loaded)

    def _is_held(self, version: Version) -> bool:
        found = self._target.found
        return (found.version, not found.is_deleted) == version.rank

    def _loaded_at(self, version: Version) -> int:
        """When *version*, which was loaded, was loaded first (ms)."""
        loads = [self._target.loads.get(each.run_hash) for each in version.occurrences]
        return min(load.loaded_at_ms for load in loads if load is not None and load.state == "loaded")


def _is_loaded(load: RunLoad | None) -> bool:
    return load is not None and load.state == "loaded"


def _why_not_loaded(loads: Sequence[RunLoad]) -> tuple[FateName, str]:
    states = {load.state for load in loads}
    if "outdated" in states:
        return "replaced", "by a newer run of its window"
    if "forgotten" in states:
        return "forgotten", "what was loaded of the table was forgotten"
    if "left_out" in states:
        return "left_out", "the target does not hold this table"
    return "not_loaded", ""
