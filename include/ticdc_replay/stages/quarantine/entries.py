"""Looking at what is in quarantine, and accepting a part of it as lost."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.changelog.files.set_aside import Entry, message_of
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError
from ticdc_replay.domain.events import Event
from ticdc_replay.domain.messages import EventPlace, RawMessage
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.window import Window
from ticdc_replay.registry import UsedSchemas
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.coverage import is_replaced
from ticdc_replay.stages.load.publish import settle
from ticdc_replay.stages.set_aside import SetAside, Status, set_aside, sets_aside
from ticdc_replay.stages.window.derive import is_shared
from ticdc_replay.stages.window.schemas import recorded_schemas
from ticdc_replay.state.coverage import Coverage
from ticdc_replay.state.quarantine import AcceptedLoss
from ticdc_replay.state.runs import Run


class Selection(msgspec.Struct, frozen=True):
    """Which entries are meant: those that fit all that is given; all without any."""

    run: str | None = None
    """The beginning of a run's hash."""
    window: Window | None = None
    reasons: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    """Patterns. An entry whose table could not be read fits none."""
    places: tuple[str, ...] = ()
    """Coordinates as ``Entry.coordinates`` has them; without ``#ordinal`` all entries of the message."""

    def picks(self, entry: Entry) -> bool:
        """Whether *entry* of a run that fits is meant. Raises ConfigError for a pattern without a dot."""
        if self.reasons and entry.reason not in self.reasons:
            return False
        if self.tables and not (
            entry.schema and entry.table and TablePatterns(self.tables).wants(entry.schema, entry.table)
        ):
            return False
        message = f"{entry.topic}[{entry.partition}]@{entry.offset}"
        return not self.places or entry.coordinates in self.places or message in self.places

    def checked(self) -> "Selection":
        """This selection. Raises ConfigError for coordinates that are none."""
        for place in self.places:
            try:
                EventPlace.parse(place)
            except ValueError as error:
                raise ConfigError(f"{place!r} {error}") from None
        return self


class Listed(msgspec.Struct, frozen=True):
    """One entry and its status."""

    entry: Entry
    status: Status
    accepted: AcceptedLoss | None


class RunQuarantine(msgspec.Struct, frozen=True):
    """The entries of one run that were asked for. ``targets`` are those that hold the run."""

    run_hash: str
    window: Window
    targets: tuple[str, ...]
    entries: tuple[Listed, ...]


class Group(msgspec.Struct, frozen=True, order=True):
    """How many entries of one reason and table have one status. ``table`` is "" where none could be read."""

    reason: str
    table: str
    status: Status
    entries: int
    example: str
    """Coordinates of the first."""


class Shown(msgspec.Struct, frozen=True):
    """A message and its entries that were asked for, decoded as far as this version can."""

    entries: tuple[Listed, ...]
    message: RawMessage
    events: tuple[Event, ...]
    """Those of the entries; all where an entry is about the whole message."""


def active_runs(context: ReplayContext, selection: Selection) -> list[Run]:
    """The runs that count: for each window the last one of its present input, and each run that a target still holds.

    Only windows and runs of *selection*; a named run always counts. Latest window first, and in it the last run.
    """
    pipeline = context.pipeline.name
    runs = [run for run in context.state.runs.all(pipeline) if selection.window in (None, run.window)]
    runs.sort(key=lambda run: run.window, reverse=True)  # of one window they stay as they are
    if selection.run is not None:
        found = [run for run in runs if run.run_hash.startswith(selection.run) and not _is_redrive(context, run)]
        if not found:
            raise ConfigError(f"pipeline {pipeline} has no run that begins with {selection.run}")
        return found
    current = [run for run in runs if _is_current(context, run)]
    last = {run.window: run.run_hash for run in reversed(current)}
    held = _held_runs(context, current)
    return [run for run in current if run.run_hash in held or run.run_hash == last[run.window]]


def list_quarantine(context: ReplayContext, selection: Selection) -> tuple[RunQuarantine, ...]:
    """The entries of *selection* by run, latest window first, without empty runs. A run that no target holds, and that
    other windows take rows from, is left out: its entries appear in their runs."""
    selection.checked()
    found = []
    for run in active_runs(context, selection):
        if not sets_aside(run):
            continue
        try:
            index = read_index(context.artifacts, run.run_hash)
        except ArtifactNotFoundError:
            continue  # removed with its run
        targets = holding(context, run.run_hash)
        if selection.run is None and not targets and is_shared(context, run):
            continue
        held = set_aside(context, index)
        places = tuple(targets.values())
        entries = tuple(_listed(held, entry, places) for entry in held.entries if selection.picks(entry))
        if entries:
            found.append(RunQuarantine(run.run_hash, run.window, tuple(targets), entries))
    return tuple(found)


def grouped(run: RunQuarantine) -> tuple[Group, ...]:
    """The entries of *run* by reason, table and status."""
    groups: dict[tuple[str, str, Status], list[Listed]] = {}
    for listed in run.entries:
        groups.setdefault((listed.entry.reason, listed.entry.table_name, listed.status), []).append(listed)
    return tuple(sorted(Group(*key, len(members), members[0].entry.coordinates) for key, members in groups.items()))


def show(context: ReplayContext, place: str, run: str | None = None) -> tuple[Shown, ...]:
    """The entries at *place*, of the active runs or of *run*, with their bytes, decoded with today's table definitions.

    One for each run that set the message aside. Claim-check objects are not fetched. Raises ConfigError for no entry.
    """
    shown = []
    for found in list_quarantine(context, Selection(run=run, places=(place,))):
        unread = read_index(context.artifacts, found.run_hash).unread_ddl
        history = recorded_schemas(context, found.window, unread)
        lookup = SchemaLookup(history, UsedSchemas(context.writer_schemas))
        codec = codec_for(context.changefeed, context.pipeline.limits.decompressed_max_bytes, lookup)
        by_run: dict[str, list[Listed]] = {}
        for listed in found.entries:
            by_run.setdefault(listed.entry.run_hash, []).append(listed)
        for run_hash, entries in by_run.items():
            message = message_of(context.artifacts, read_index(context.artifacts, run_hash), entries[0].entry)
            ordinals = {listed.entry.ordinal for listed in entries}
            wanted = None if None in ordinals else ordinals | {None}
            events = [event for event in codec.decode(message) if wanted is None or event.ordinal in wanted]
            shown.append(Shown(tuple(entries), message, tuple(events)))
    if not shown:
        raise ConfigError(f"{place} is not in quarantine: ticdc-replay quarantine list names what is")
    return tuple(shown)


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a loss that a person accepted: ``accepted/<sha256>.json``, written once."""

    format: int = 1
    pipeline: str
    run_hash: str
    window: Window
    person: str
    why: str
    accepted_at: datetime
    entries: tuple[Entry, ...]


def accept(context: ReplayContext, selection: Selection, person: str, why: str) -> tuple[Acceptance, ...]:
    """Accept the open entries of *selection* as lost, in the name of *person*; one record per run.

    They are settled in every run that meets the same message with the same reason. Raises ConfigError without a name or
    a reason, and if nothing is open.
    """
    if not person.strip() or not why.strip():
        raise ConfigError("a loss is accepted by somebody and for a reason: give both")
    made = []
    for run in list_quarantine(context, selection):
        entries = tuple(listed.entry for listed in run.entries if listed.status == "open")
        if not entries:
            continue
        record = Acceptance(
            pipeline=context.pipeline.name,
            run_hash=run.run_hash,
            window=run.window,
            person=person.strip(),
            why=why.strip(),
            accepted_at=datetime.now(UTC),
            entries=entries,
        )
        content = canonical.encode(record)
        name = f"accepted/{canonical.digest(content)}.json"
        context.artifacts.put_once(name, content)
        context.state.quarantine.record_accepted_losses(_losses(record, name))
        settle(context, run.run_hash)
        made.append(record)
    if not made:
        raise ConfigError("nothing of this selection is open: ticdc-replay quarantine list shows what is there")
    return tuple(made)


def holding(context: ReplayContext, run_hash: str) -> dict[str, str]:
    """The targets of the pipeline that hold the run *run_hash*: their places by their names, sorted."""
    records = context.state.coverage.all(context.pipeline.name)
    held = {record.place for record in records if record.run_hash == run_hash}
    return {name: place for name, place in sorted(context.places.items()) if place in held}


def _held_runs(context: ReplayContext, runs: Sequence[Run]) -> set[str]:
    """Those of *runs* that a target of the pipeline holds, and none of *runs* in their place."""
    known = set(context.places.values())
    hashes = {run.run_hash for run in runs}
    loads: dict[tuple[str, Window], list[Coverage]] = {}
    for record in context.state.coverage.all(context.pipeline.name):
        if record.place in known and record.run_hash in hashes:
            loads.setdefault((record.place, record.window), []).append(record)
    return {record.run_hash for found in loads.values() for record in found if not is_replaced(record, found)}


def _is_current(context: ReplayContext, run: Run) -> bool:
    pinned = context.state.manifests.of_window(context.pipeline.name, run.window)
    return pinned is not None and pinned.input_hash == run.input_hash


def _listed(held: SetAside, entry: Entry, places: Sequence[str]) -> Listed:
    return Listed(entry, held.status(entry, places), held.loss_of(entry))


def _losses(record: Acceptance, name: str) -> list[AcceptedLoss]:
    pipeline, run, at_ms = record.pipeline, record.run_hash, int(record.accepted_at.timestamp() * 1000)
    return [
        AcceptedLoss(pipeline, *entry.place, entry.reason, run, record.person, record.why, name, at_ms)
        for entry in record.entries
    ]


def _is_redrive(context: ReplayContext, run: Run) -> bool:
    try:
        index: ChangelogIndex = read_index(context.artifacts, run.run_hash)
    except ArtifactNotFoundError:
        return False
    return index.redrives is not None
