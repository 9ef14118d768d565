"""The state of a run's quarantine: open, decoded again and loaded, or accepted as lost."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.changelog.files.set_aside import Entry, EntryPlace, read_entries, selected_places
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.topics import TopicIdentity, is_topic_id
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.state.quarantine import AcceptedLoss
from ticdc_replay.state.runs import Run

Status = Literal["open", "redriven", "accepted"]

_SET_ASIDE = ("messages_quarantined", "events_undecodable", "events_quarantined")
"""The counts of a run (``recording``): if it set anything aside, one of them is not 0."""


class RedriveResult(msgspec.Struct, frozen=True):
    """One re-drive: what it was for, what it left, and in which places of targets (``TargetSection.place``) it is."""

    index: ChangelogIndex
    selected: frozenset[EntryPlace]
    left: frozenset[EntryPlace]
    places: frozenset[str]

    def was_for(self, place: EntryPlace) -> bool:
        """Whether it decoded what stood at *place* again."""
        return place in self.selected or place.message in self.selected

    def settles(self, place: EntryPlace) -> bool:
        """Whether what stood at *place* came out of it."""
        return self.was_for(place) and place not in self.left


class SetAside(msgspec.Struct, frozen=True):
    """All that was set aside of one run, by itself and by the re-drives of its quarantine."""

    index: ChangelogIndex
    entries: tuple[Entry, ...]
    """Those of the run, then those that re-drives left; what stands in several once."""
    redrives: tuple[RedriveResult, ...]
    accepted: dict[tuple[EntryPlace, str], AcceptedLoss]
    """By place and reason."""

    @property
    def indexes(self) -> dict[str, ChangelogIndex]:
        """The changelogs whose quarantine this is, by run."""
        return {index.run_hash: index for index in (self.index, *(each.index for each in self.redrives))}

    def loss_of(self, entry: Entry) -> AcceptedLoss | None:
        """Who accepted *entry* as lost, if anybody did."""
        return self.accepted.get((entry.place, entry.reason))

    def status(self, entry: Entry, places: Iterable[str]) -> Status:
        """The status of *entry* in the least advanced of *places*; without places, in the changelogs."""
        if self.loss_of(entry) is not None:
            return "accepted"
        settling = [each.places for each in self.redrives if each.settles(entry.place)]
        there = frozenset[str]().union(*settling)
        return "redriven" if settling and there.issuperset(places) else "open"

    def open(self, places: Iterable[str] = ()) -> list[Entry]:
        """The entries that are still to be dealt with in one of *places*, of targets."""
        wanted = tuple(places)
        return [entry for entry in self.entries if self.status(entry, wanted) == "open"]


def set_aside(context: ReplayContext, index: ChangelogIndex) -> SetAside:
    """What was set aside of the run with *index*, which is no re-drive. Raises ArtifactNotFoundError where files are gone."""
    pipeline = context.pipeline.name
    places: dict[str, set[str]] = {}
    for record in context.state.quarantine.redrives(pipeline, index.run_hash):
        places.setdefault(record.redrive_hash, set()).add(record.place)
    redrives = []
    entries = {(entry.place, entry.reason): entry for entry in read_entries(context.artifacts, index)}
    for run_hash, loaded in places.items():
        try:
            redrive = read_index(context.artifacts, run_hash)
        except ArtifactNotFoundError:
            continue  # removed: what it left is unknown, so it settles nothing
        left = read_entries(context.artifacts, redrive)
        manifest = manifests.decode(context.artifacts.get(f"manifests/{redrive.input_hash}.json"))
        selected = redriven_places(context, manifest)
        redrives.append(
            RedriveResult(redrive, selected, frozenset(entry.place for entry in left), frozenset(loaded - {""}))
        )
        # Of the same event under another reason the newest counts: what the version before said of it is history.
        again = {entry.place for entry in left}
        entries = {key: entry for key, entry in entries.items() if entry.place not in again}
        entries |= {(entry.place, entry.reason): entry for entry in left}
    accepted = {
        (EntryPlace(topic, loss.partition, loss.offset, loss.ordinal), loss.reason): loss
        for loss in context.state.quarantine.accepted_losses(pipeline)
        for topic in _topics_of(loss, index)
    }
    return SetAside(index, tuple(entries.values()), tuple(redrives), accepted)


def _topics_of(loss: AcceptedLoss, index: ChangelogIndex) -> list[TopicIdentity]:
    """The topic that *loss* is of: of what an earlier version recorded, that of *index* with the id, if that is one topic's."""
    if loss.topic.name:
        return [loss.topic]
    return [
        topic
        for topic in index.identities.values()
        if topic.topic_id == loss.topic.topic_id and is_topic_id(topic.topic_id)
    ]


def sets_aside(run: Run) -> bool:
    """Whether *run* set anything aside, by its counts alone: most did not, and need not be opened."""
    return any(run.counts.get(name) for name in _SET_ASIDE)


def has_way_back(context: ReplayContext, index: ChangelogIndex) -> bool:
    """Whether anything of the quarantine of the run with *index* may be settled; cheap."""
    pipeline = context.pipeline.name
    return bool(context.state.quarantine.redrives(pipeline, index.run_hash)) or bool(
        context.state.quarantine.accepted_losses(pipeline)
    )


def is_set_aside(context: ReplayContext, index: ChangelogIndex, place: str) -> bool:
    """Whether the *place* of a target lacks anything of the run with *index* that its decode set aside and is not settled."""
    if not index.report.quarantine_reasons:
        return False
    return not has_way_back(context, index) or bool(set_aside(context, index).open([place]))


def redriven_places(context: ReplayContext, manifest: Manifest) -> frozenset[EntryPlace]:
    """What a re-drive of *manifest* decodes. Raises ArtifactNotFoundError where its file of messages is gone."""
    assert manifest.redrive is not None
    filesystem, base = context.artifacts.arrow_filesystem()
    name = "/".join(manifest.redrive.messages.uri.rsplit("/", 2)[1:])
    try:
        with pq.ParquetFile(f"{base}/{name}", filesystem=filesystem) as file:
            return frozenset(selected_places(file, manifest.identities))
    except FileNotFoundError:
        raise ArtifactNotFoundError(
            f"{context.artifacts.uri(name)} is gone, the messages of a re-drive: restore it, or re-drive them again"
        ) from None


def by_reason(entries: Sequence[Entry]) -> dict[str, int]:
    """How many of *entries* there are of each reason."""
    return dict(sorted(Counter(entry.reason for entry in entries).items()))


def listed_reasons(reasons: Mapping[str, int]) -> str:
    """*reasons*, which are counts, for people."""
    return ", ".join(f"{number} × {reason}" for reason, number in sorted(reasons.items()))
