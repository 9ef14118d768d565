"""The end of a run: its report, and the coverage it adds."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex, EventCounts, MessageCounts
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Grade, Window
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.recording import finish_run
from ticdc_replay.stages.set_aside import has_way_back, is_set_aside, set_aside
from ticdc_replay.state.coverage import Coverage, CoveredTable, Quality
from ticdc_replay.storage.base import ObjectInfo
from ticdc_replay.targets.base import LEFT_OUT, LoadReport, TableReport


class TargetRun(msgspec.Struct, frozen=True):
    """What one target got of the window."""

    target: str
    type: str
    selection: tuple[str, ...]
    """The patterns of the tables that it was loaded for."""
    quality: Quality
    tables: tuple[TableReport, ...]
    """Those with rows or DDL in the window."""

    @property
    def applied(self) -> int:
        """Rows put or deleted, over all tables."""
        return sum(table.upserted + table.tombstones for table in self.tables)


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """One window from Kafka to its targets, in counts."""

    pipeline: str
    window: Window
    input_hash: str
    run_hash: str
    grade: Grade
    reasons: tuple[str, ...]
    """Why the window is not proven; empty when it is."""
    ranges: tuple[OffsetRange, ...]
    derived: tuple[ManifestSource, ...] = ()
    """The changelogs that the window was taken from instead of Kafka, and which part from each."""
    watermark: int | None
    messages: MessageCounts
    events: EventCounts
    quarantine_reasons: dict[str, int]
    accepted: int = 0
    """How many entries of the quarantine a person has accepted as lost."""
    targets: tuple[TargetRun, ...]
    published_at: datetime


def publish(context: ReplayContext, run_hash: str, targets: Sequence[str]) -> RunReport:
    """Record what the run of *run_hash* covers in *targets*, and keep its report as ``reports/<run_hash>.json``.

    A load report that was published before is skipped: what happened to its target since stays recorded. Raises
    ArtifactNotFoundError without a load report for a target's present place, ConfigError for an unknown target.
    """
    index = read_index(context.artifacts, run_hash)
    manifest = _manifest_of(context, index)
    loads = [load_of(context, run_hash, target) for target in targets]
    state, pipeline = context.state, context.pipeline.name
    known = {(record.place, record.attempt) for record in state.coverage.all(pipeline) if record.run_hash == run_hash}
    new = [load for load in loads if (load.place, load.attempt) not in known]
    state.coverage.record([_covered(context, index, manifest, load) for load in new], ended=True)
    lacking = {load.target: is_set_aside(context, index, load.place) for load in loads}
    accepted = 0
    if index.report.quarantine_reasons and has_way_back(context, index):
        settle(context, run_hash)
        held = set_aside(context, index)
        accepted = sum(held.loss_of(entry) is not None for entry in held.entries)
    report = RunReport(
        pipeline=context.pipeline.name,
        window=index.window,
        input_hash=index.input_hash,
        run_hash=run_hash,
        grade=manifest.grade,
        reasons=manifest.reasons,
        ranges=index.ranges,
        derived=index.derived,
        watermark=index.report.watermark,
        messages=index.report.messages,
        events=index.report.events,
        quarantine_reasons=index.report.quarantine_reasons,
        accepted=accepted,
        targets=tuple(target_run(load, lacking[load.target]) for load in loads),
        published_at=datetime.now(UTC),
    )
    context.artifacts.put(f"reports/{run_hash}.json", canonical.encode(report))
    finish_run(context, run_hash, sum(load.took_ms for load in loads))
    return report


def record_unpublished(context: ReplayContext, place: str) -> None:
    """Record what loads have brought into *place* that was never published, as of a run whose other target failed.

    To be called before a table of *place* is forgotten: published later, such a load would show the table as held.
    """
    records = context.state.coverage.all(context.pipeline.name)
    published = {record.attempt for record in records if record.place == place}
    elsewhere = {record.attempt for record in records} - published
    # By an earlier version, which did not note whose report it was: what is recorded stands.
    settled = {record.run_hash for record in records if record.place == place and not record.attempt}
    found = []
    for entry in _newest_first(context, "loads/"):
        _, run_hash, _, name = entry.name.split("/")
        attempt = name.removesuffix(".json")
        if run_hash in settled or attempt in elsewhere:
            continue
        if attempt not in published:
            load = _read_load(context, entry.name)
            if load.place != place:
                continue
            found.append(load)
        settled.add(run_hash)
    for load in found:
        try:
            index = read_index(context.artifacts, load.run_hash)
            manifest = _manifest_of(context, index)
        except ArtifactNotFoundError:  # then it can't be published, either
            continue
        if index.redrives is None:  # else the run whose quarantine it was has the coverage
            context.state.coverage.record([_covered(context, index, manifest, load)])


def _covered(context: ReplayContext, index: ChangelogIndex, manifest: Manifest, load: LoadReport) -> Coverage:
    """What the place of *load*, the newest one of the run of *index*, holds of that run."""
    _forget_lost(context, load)
    set_aside = is_set_aside(context, index, load.place)
    return _with_redrives(context, coverage_of(load, manifest.grade, set_aside=set_aside))


def _manifest_of(context: ReplayContext, index: ChangelogIndex) -> Manifest:
    return manifests.decode(context.artifacts.get(f"manifests/{index.input_hash}.json"))


def load_of(context: ReplayContext, run_hash: str, target: str) -> LoadReport:
    """The newest report of a load of *run_hash* into the present place of *target*, under this name. Raises what
    ``last_load`` and ``ReplayContext.place_of`` raise."""
    try:
        return msgspec.structs.replace(last_load(context, run_hash, context.place_of(target)), target=target)
    except ArtifactNotFoundError as error:
        raise ArtifactNotFoundError(f"target {target}: {error}") from None


def last_load(context: ReplayContext, run_hash: str, place: str) -> LoadReport:
    """The newest report of a load of *run_hash* into *place*, whatever the target's name was. Raises
    ArtifactNotFoundError without one."""
    folder = f"loads/{run_hash}/"
    others = set()
    for entry in _newest_first(context, folder):
        report = _read_load(context, entry.name)
        if report.place == place:
            return report
        others.add(report.place)
    elsewhere = ""
    if others:
        elsewhere = (
            f", but elsewhere ({'; '.join(sorted(others))}). Where the target was there before, start the run again, which loads "
            "it into the new place; in Airflow clear it from check on"
        )
    raise ArtifactNotFoundError(
        f"{context.artifacts.uri(folder)} has no load report: run {run_hash} was not loaded into {place}{elsewhere}"
    )


def _newest_first(context: ReplayContext, folder: str) -> list[ObjectInfo]:
    """The load reports below *folder*, the newest first."""
    found = [entry for entry in context.artifacts.list(folder) if entry.name.count("/") == 3]
    return sorted(found, key=lambda entry: (entry.last_modified, entry.name), reverse=True)


def _read_load(context: ReplayContext, name: str) -> LoadReport:
    return _with_place(context, msgspec.json.decode(context.artifacts.get(name), type=LoadReport))


def _with_place(context: ReplayContext, load: LoadReport) -> LoadReport:
    """*load* with its place, also of an earlier version: the one that coverage by it has got, else that of the target now."""
    if load.place:
        return load
    recorded = [
        (record.attempt != load.attempt, record.loaded_at_ms, record.place)
        for record in context.state.coverage.all(context.pipeline.name)
        if (record.run_hash, record.target) == (load.run_hash, load.target)
    ]
    place = min(recorded)[-1] if recorded else context.places.get(load.target, "")
    return msgspec.structs.replace(load, place=place)


def coverage_of(load: LoadReport, grade: Grade, *, set_aside: bool) -> Coverage:
    """What *load* covers: all tables of its selection, so that tables without rows show no gap. *set_aside*: decode put
    messages or events, of any table, into quarantine."""
    return Coverage(
        pipeline=load.pipeline,
        target=load.target,
        place=load.place,
        window=load.window,
        run_hash=load.run_hash,
        selection=load.selection,
        grade=grade,
        quality=_quality(0, set_aside),
        tables=tuple(
            sorted(
                CoveredTable(
                    table.table,
                    "left_out" if table.outcome in LEFT_OUT else _quality(table.quarantined, set_aside),
                )
                for table in load.tables
            )
        ),
        loaded_at_ms=int(datetime.now(UTC).timestamp() * 1000),
        generation=load.generation,
        attempt=load.attempt,
    )


def settle(context: ReplayContext, run_hash: str) -> None:
    """Record how well targets hold *run_hash* after a part of its quarantine was loaded or accepted as lost."""
    state, pipeline = context.state, context.pipeline.name
    index = read_index(context.artifacts, run_hash)
    settled = []
    for record in state.coverage.all(pipeline):
        if record.run_hash != run_hash or not record.place:
            continue  # without place: by an earlier version, of a target that the pipeline does not have any more
        lacking = is_set_aside(context, index, record.place)
        first = coverage_of(last_load(context, run_hash, record.place), record.grade, set_aside=lacking)
        whole = _with_redrives(context, first)
        tables = {covered.table: covered for covered in whole.tables}
        tables |= {covered.table: covered for covered in record.tables if covered.quality == "forgotten"}
        settled.append(msgspec.structs.replace(record, quality=whole.quality, tables=tuple(sorted(tables.values()))))
    state.coverage.record(settled)


def _with_redrives(context: ReplayContext, record: Coverage) -> Coverage:
    """*record*, of the load of a run, with the tables that re-drives of the run have brought into its place."""
    tables = {covered.table: covered for covered in record.tables}
    for redrive in _redrives_in(context, record.run_hash, record.place):
        load = last_load(context, redrive, record.place)
        for covered in coverage_of(load, record.grade, set_aside=record.quality == "quarantine").tables:
            tables[covered.table] = max(covered, tables.get(covered.table, covered), key=_weight)
    return msgspec.structs.replace(record, tables=tuple(sorted(tables.values())))


def _weight(covered: CoveredTable) -> int:
    """What one load could not hold of a table stays so, whatever another one could."""
    return ("complete", "quarantine", "left_out", "forgotten").index(covered.quality)


def brought(load: LoadReport) -> set[TableName]:
    """The tables that *load* has brought into its target."""
    return {table.table for table in load.tables if table.outcome not in LEFT_OUT}


def holds_redrive(context: ReplayContext, load: LoadReport, redrive: str) -> bool:
    """Whether the target held all that the run *redrive* had brought into it when *load*, of the window's run, had ended."""
    tables = brought(last_load(context, redrive, load.place))
    return tables <= {held.table for held in load.other_runs if held.run_hash == redrive}


def _forget_lost(context: ReplayContext, load: LoadReport) -> None:
    """Remove the record of re-drives that *load*'s target no longer held when *load* had ended."""
    redrives = _redrives_in(context, load.run_hash, load.place)
    lost = [redrive for redrive in redrives if not holds_redrive(context, load, redrive)]
    context.state.quarantine.forget_redrives(load.pipeline, load.place, lost)


def _redrives_in(context: ReplayContext, run_hash: str, place: str) -> list[str]:
    """The re-drives of the run that *place* is known to hold, oldest first."""
    found = context.state.quarantine.redrives(context.pipeline.name, run_hash)
    return list(dict.fromkeys(redrive.redrive_hash for redrive in found if redrive.place == place))


def target_run(load: LoadReport, set_aside: bool) -> TargetRun:
    """What a target got of *load*; *set_aside* as ``coverage_of`` has it."""
    quarantined = sum(table.quarantined for table in load.tables)
    return TargetRun(load.target, load.type, load.selection, _quality(quarantined, set_aside), load.tables)


def _quality(quarantined: int, set_aside: bool) -> Quality:
    return "quarantine" if quarantined or set_aside else "complete"
