"""Where the versions of one row are, and what became of each."""

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec

from ticdc_replay.changelog.copies.keyed_rows import KeyedReference
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.coverage import is_replaced
from ticdc_replay.stages.load.publish import last_load
from ticdc_replay.stages.trace.changelogs import Changelogs, FoundRowVersion, Unread
from ticdc_replay.stages.trace.fates import Fate, LoadState, Occurrence, RunLoad, TargetFacts, Version, fates
from ticdc_replay.stages.trace.quarantined import SetAsideVersion, UnknownEntries, set_aside_of
from ticdc_replay.stages.trace.row_key import Cells, TypedKeys
from ticdc_replay.state.coverage import Coverage
from ticdc_replay.targets.base import FoundRow
from ticdc_replay.targets.load import open_target
from ticdc_replay.targets.refused_rows import read_reasons
from ticdc_replay.targets.shaped_load import shape_of


class ChangelogPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A version in one changelog. ``file`` is below the pipeline's artefacts."""

    window: Window
    run_hash: str
    file: str
    place: EventPlace
    """The copy in Kafka that the decode kept."""
    claim_check: KeyedReference | None
    """The reference of that message, if the row came in a claim-check object."""
    other_references: tuple[KeyedReference, ...]
    """References of further copies that the decode read and dropped."""
    dropped_copies: int
    """Repeated copies that the run dropped, of all rows: of single rows only ``other_references`` are recorded."""


class TracedVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the row."""

    operation: str
    commit_ts: int | None
    version: int
    """What orders it: the commitTs (TSO), or the place in windows by offset."""
    is_split: bool
    """Whether it is half of an UPDATE that changed the key: the other half is a version of another row."""
    changelogs: tuple[ChangelogPlace, ...]
    fates: tuple[Fate, ...]


class TracedTarget(msgspec.Struct, frozen=True):
    """What a target has of the row now."""

    target: str
    row: FoundRow


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one row. Versions are in order of time."""

    pipeline: str
    table: str
    key: dict[str, str]
    targets: tuple[TracedTarget, ...]
    versions: tuple[TracedVersion, ...]
    set_aside: tuple[SetAsideVersion, ...]
    unknown: tuple[UnknownEntries, ...]
    changelogs_read: int
    unread: tuple[Unread, ...]
    other_keys: tuple[tuple[str, ...], ...]
    """Keys that rows of the table have in other versions of its schema: such rows were not looked at."""

    @property
    def is_missing(self) -> bool:
        """Whether a target lacks a version that it should have."""
        return any(fate.fate == "missing" for version in self.versions for fate in version.fates)


def trace(context: ReplayContext, table: TableName, key: Mapping[str, str]) -> Trace:
    """Look for all versions of the row of *table* whose *key* has these values, as text by column.

    Reads changelogs and quarantine, and asks the targets that can be asked without Spark. Changes nothing. Raises
    ConfigError for an unknown table, another key than the table's, or a value that is not of its column's type.
    """
    if not TablePatterns(context.pipeline.tables).wants(table.schema, table.table):
        raise ConfigError(
            f"{table} is not a table of pipeline {context.pipeline.name}: tables are {', '.join(context.pipeline.tables)}"
        )
    changelogs = Changelogs(context, table)
    schemas = [version.schema for version in changelogs.versions]
    if not schemas:
        raise ConfigError(_unknown_table(changelogs, table))
    keys = TypedKeys(table, key, schemas, context.changefeed.timezone)
    found = changelogs.versions_with(keys)
    references = changelogs.references_of(found)
    groups = [list(group) for _, group in groupby(found, key=lambda each: (each.number, each.row.is_put))]
    versions = [_version_of(group, changelogs) for group in groups]
    facts = [_facts(context, target, table, keys.newest, versions, changelogs) for target in context.pipeline.targets]
    by_target = [fates(versions, each) for each in facts]
    of_row, unknown = set_aside_of(context, table, keys)
    return Trace(
        pipeline=context.pipeline.name,
        table=str(table),
        key=dict(key),
        targets=tuple(TracedTarget(each.name, each.found) for each in facts),
        versions=tuple(
            _traced(changelogs, group, references, tuple(each[at] for each in by_target))
            for at, group in enumerate(groups)
        ),
        set_aside=tuple(of_row),
        unknown=tuple(unknown),
        changelogs_read=len(changelogs.indexes),
        unread=tuple(sorted(set(changelogs.unread))),
        other_keys=tuple(sorted(keys.others)),
    )


def _unknown_table(changelogs: Changelogs, table: TableName) -> str:
    alike = ", ".join(map(str, sorted(changelogs.alike)))
    unread = f", {len(changelogs.unread)} could not be read" if changelogs.unread else ""
    return (
        f"no changelog has rows of {table}, so the types of its key are unknown ({len(changelogs.indexes)} were read{unread})"
        f"{f'; did you mean {alike}?' if alike else ''}. ticdc-replay coverage --tables lists the tables of loads, "
        "ticdc-replay quarantine list what was set aside"
    )


def _version_of(group: Sequence[FoundRowVersion], changelogs: Changelogs) -> Version:
    first = group[0]
    occurrences = tuple(
        Occurrence(each.run_hash, each.window, each.row.place, changelogs.indexes[each.run_hash].is_base)
        for each in group
    )
    return Version(first.number, first.row.is_put, first.order, occurrences)


def _facts(
    context: ReplayContext,
    section: TargetSection,
    table: TableName,
    key: Cells,
    versions: Sequence[Version],
    changelogs: Changelogs,
) -> TargetFacts:
    runs = {each.run_hash for version in versions for each in version.occurrences}
    records = [record for record in context.state.coverage.all(context.pipeline.name) if record.place == section.place]
    loads: dict[str, RunLoad] = {}
    aside: dict[str, Window] = {}
    for record in records:
        redrives = [each for each in changelogs.redrives.get(record.run_hash, ()) if each.redrive_hash in runs]
        if record.run_hash not in runs and not redrives:
            continue
        load = _load_of(record, records, table, in_place=not section.is_mirror)
        if load is None:
            continue
        loads[record.run_hash] = load
        if any(covered.table == table and covered.quality == "quarantine" for covered in record.tables):
            aside[record.run_hash] = record.window
        for redrive in (each for each in redrives if each.place == section.place):
            # It is where the run is whose quarantine it was, and was loaded after it.
            loads[redrive.redrive_hash] = RunLoad(load.state, redrive.recorded_at_ms)
            aside[redrive.redrive_hash] = record.window
    refused: dict[tuple[str, EventPlace], str] = {}
    for run_hash, window in aside.items():
        try:
            reports = last_load(context, run_hash, section.place).tables
            names = [name for report in reports if report.table == table for name in report.quarantine_files]
            found = read_reasons(context.artifacts, names, table)
        except ArtifactNotFoundError as error:
            why = f"which rows target {section.name} could not hold is unknown: {error}"
            changelogs.unread.append(Unread(window, run_hash, why))
            continue
        refused |= {(run_hash, place): "; ".join(reasons) for place, reasons in found.items()}
    shape = shape_of(section, context.connections, table)
    own = key if shape is None else shape.key(key)
    found_row = open_target(section, context.connections).find_row(context.pipeline.name, table, own)
    return TargetFacts(section.name, found_row, loads, refused)


def _load_of(record: Coverage, others: Sequence[Coverage], table: TableName, *, in_place: bool) -> RunLoad | None:
    """What *record* is for *table*; None if its run was for other tables. *in_place*: newer runs replace what it brought."""
    quality = next((covered.quality for covered in record.tables if covered.table == table), None)
    if quality is None and not TablePatterns(record.selection).wants(table.schema, table.table):
        return None
    state: LoadState = "loaded"
    if quality == "left_out" or quality == "forgotten":
        state = quality
    elif in_place and is_replaced(record, others):
        state = "outdated"
    return RunLoad(state, record.loaded_at_ms)


def _traced(
    changelogs: Changelogs,
    group: Sequence[FoundRowVersion],
    references: Mapping[str, Sequence[KeyedReference]],
    fates: tuple[Fate, ...],
) -> TracedVersion:
    first = group[0]
    return TracedVersion(
        operation=first.row.operation,
        commit_ts=first.row.commit_ts,
        version=first.number,
        is_split=any(each.row.split for each in group),
        changelogs=tuple(_place_of(changelogs, each, references.get(each.read_by, ())) for each in group),
        fates=fates,
    )


def _place_of(changelogs: Changelogs, found: FoundRowVersion, references: Sequence[KeyedReference]) -> ChangelogPlace:
    row = found.row
    # Without commitTs nothing shows which references are of the same version.
    ours = [each for each in references if row.commit_ts is not None and each.commit_ts == row.commit_ts]
    return ChangelogPlace(
        window=found.window,
        run_hash=found.run_hash,
        file=found.file,
        place=row.place,
        claim_check=next((each for each in references if each.place == row.place), None),
        other_references=tuple(each for each in ours if each.place != row.place),
        dropped_copies=changelogs.indexes[found.run_hash].report.events.duplicates,
    )
