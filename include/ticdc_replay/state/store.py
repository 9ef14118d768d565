"""Reading and writing the state store."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Row,
    Select,
    Table,
    column,
    delete,
    exists,
    func,
    or_,
    select,
    update,
    values,
)

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.window import Window
from ticdc_replay.state import tables
from ticdc_replay.state.database import Database
from ticdc_replay.state.definitions import Definitions
from ticdc_replay.state.generations import Generations
from ticdc_replay.state.leases import Leases
from ticdc_replay.state.reconciliations import Reconciliations
from ticdc_replay.state.records import (
    AcceptedLoss,
    BegunLoad,
    Coverage,
    CoveredTable,
    Redrive,
    ReferenceFile,
    Run,
    ScannedRange,
    Stretch,
    WindowManifest,
)
from ticdc_replay.state.rows import columns_of

_PLACED = (tables.coverage, tables.covered_table, tables.begun_load, tables.redrive)
"""What is recorded of the places of targets."""
_PARTITIONS_AT_A_TIME = 1_000
"""SQLite takes at most 32,766 parameters in a query."""


def open_state(url: str) -> "StateStore":
    """The state store at the SQLAlchemy URL *url*: a SQLite file (made if absent) or a PostgreSQL database.

    Brings the schema to the newest version. Raises ConfigError for another kind of URL or a missing database,
    AuthenticationError, TransientError when the server is away, PermanentError where a newer library has migrated it.
    """
    database = Database(url)
    database.migrate()
    return StateStore(database)


class StateStore(Definitions, Reconciliations, Leases, Generations):
    """What is known across runs. Thread-safe; every method is one transaction.

    Writing a record again replaces it, so a retry does no harm. Every method may raise TransientError (locked, server away).
    """

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def manifest_of(self, pipeline: str, window: Window) -> WindowManifest | None:
        """The manifest that *window* has, None where it is not pinned yet."""
        with self._database.reading() as connection:
            return _active_manifest(connection, pipeline, window)

    def manifests_up_to(self, pipeline: str, ts: int, inputs: Collection[str]) -> list[WindowManifest]:
        """The manifests of the windows of *pipeline* that end at *ts* (TSO), and those that they had of *inputs* (hashes)."""
        table = tables.window_manifest.c
        counts = or_(table.superseded_at_ms.is_(None), table.input_hash.in_(inputs))
        wanted = _manifests(pipeline).where(table.to_ts == ts, counts).order_by(table.from_ts, table.pinned_at_ms)
        with self._database.reading() as connection:
            return [_window_manifest(row) for row in connection.execute(wanted)]

    def manifests_within(self, pipeline: str, window: Window) -> list[WindowManifest]:
        """The manifests of the windows of *pipeline* that overlap *window*, in order of time."""
        table = tables.window_manifest.c
        wanted = _manifests(pipeline).where(
            table.from_ts < window.to_ts, table.to_ts > window.from_ts, table.superseded_at_ms.is_(None)
        )
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(table.from_ts, table.to_ts)).all()
        return [_window_manifest(row) for row in rows]

    def last_manifest(self, pipeline: str) -> WindowManifest | None:
        """The manifest of *pipeline* that was pinned last, of any window."""
        wanted = _manifests(pipeline).order_by(tables.window_manifest.c.pinned_at_ms.desc()).limit(1)
        with self._database.reading() as connection:
            row = connection.execute(wanted).one_or_none()
        return _window_manifest(row) if row else None

    def register_manifest(self, made: WindowManifest, *, replaces: WindowManifest | None = None) -> WindowManifest:
        """Give the window the manifest *made*, and return the one that it has from now on.

        That is another than *made* where a run that pinned the same window at the same time was faster. An existing
        manifest is replaced only if it is still *replaces*.
        """
        table = tables.window_manifest
        with self._database.writing() as connection:
            if replaces is not None:
                connection.execute(
                    update(table)
                    .where(*_is_window(made.pipeline, made.window), table.c.superseded_at_ms.is_(None))
                    .where(table.c.input_hash == replaces.input_hash, table.c.pinned_at_ms == replaces.pinned_at_ms)
                    .values(superseded_at_ms=int(time.time() * 1000))
                )
            values = {
                "pipeline": made.pipeline,
                "from_ts": made.window.from_ts,
                "to_ts": made.window.to_ts,
                "input_hash": made.input_hash,
                "name": made.name,
                "pinned_at_ms": made.pinned_at_ms,
            }
            connection.execute(self._insert(table).values(values).on_conflict_do_nothing())
            winner = _active_manifest(connection, made.pipeline, made.window)
        assert winner is not None
        return winner

    def record_run(self, run: Run) -> None:
        """Keep what is known of *run* now."""
        values = msgspec.structs.asdict(run)
        window = values.pop("window")
        self._replace(tables.run, [{**values, "from_ts": window.from_ts, "to_ts": window.to_ts}])

    def run(self, pipeline: str, run_hash: str) -> Run | None:
        """The run called *run_hash*."""
        wanted = select(tables.run).where(tables.run.c.pipeline == pipeline, tables.run.c.run_hash == run_hash)
        with self._database.reading() as connection:
            row = connection.execute(wanted).one_or_none()
        return _run(row) if row else None

    def runs(self, pipeline: str) -> list[Run]:
        """The runs of *pipeline*, latest window first."""
        columns = tables.run.c
        wanted = select(tables.run).where(columns.pipeline == pipeline)
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(columns.from_ts.desc(), columns.started_at_ms.desc())).all()
        return [_run(row) for row in rows]

    def runs_within(self, pipeline: str, window: Window) -> list[Run]:
        """The runs of *pipeline* whose windows overlap *window*, in order of time."""
        columns = tables.run.c
        wanted = select(tables.run).where(
            columns.pipeline == pipeline, columns.from_ts < window.to_ts, columns.to_ts > window.from_ts
        )
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(columns.from_ts, columns.to_ts, columns.started_at_ms)).all()
        return [_run(row) for row in rows]

    def record_begun_load(self, load: BegunLoad) -> None:
        """Note that *load* begins."""
        self._replace(tables.begun_load, [_with_window(load)])

    def begun_loads(self, pipeline: str) -> list[BegunLoad]:
        """The loads of *pipeline* that have begun, and whose coverage is not recorded yet."""
        columns = tables.begun_load.c
        wanted = select(tables.begun_load).where(columns.pipeline == pipeline)
        with self._database.reading() as connection:
            rows = [dict(row._mapping) for row in connection.execute(wanted.order_by(columns.target, columns.run_hash))]
        return [
            BegunLoad(window=Window(row.pop("from_ts"), row.pop("to_ts")), selection=tuple(row.pop("selection")), **row)
            for row in rows
        ]

    def record_coverage(self, records: Sequence[Coverage], *, ended: bool = False) -> None:
        """Note what places of targets hold; what a place was known to hold of the same run is replaced.

        With *ended* it is what loads have left: those of the run with this or a smaller generation are begun no more.
        """
        with self._database.writing() as connection:
            for record in records if ended else ():
                begun = tables.begun_load
                connection.execute(
                    delete(begun).where(*_is_held(begun.c, record), begun.c.generation <= record.generation)
                )
            for record in records:
                for table in (tables.coverage, tables.covered_table):
                    connection.execute(delete(table).where(*_is_held(table.c, record)))
            self._upsert(connection, tables.coverage, [_coverage_row(record) for record in records])
            self._upsert(
                connection,
                tables.covered_table,
                [
                    {
                        "pipeline": record.pipeline,
                        "target": record.target,
                        "place": record.place,
                        "run_hash": record.run_hash,
                        "schema": covered.table.schema,
                        "table": covered.table.table,
                        "quality": covered.quality,
                    }
                    for record in records
                    for covered in record.tables
                ],
            )

    def settle_places(self, pipeline: str, places: Mapping[str, str]) -> None:
        """Give what earlier versions recorded of targets the place that each has now, by its name in *places*.

        Does nothing where everything of these targets has its place.
        """
        with self._database.reading() as connection:
            placeless = [exists().where(*_is_placeless(table, pipeline, places)) for table in _PLACED]
            if not connection.execute(select(or_(*placeless))).scalar_one():
                return
        with self._database.writing() as connection:
            for table in _PLACED:
                for target, place in places.items():
                    connection.execute(
                        update(table).where(*_is_placeless(table, pipeline, [target])).values(place=place)
                    )

    def forget_coverage(self, pipeline: str, place: str, table: TableName, redrives: Sequence[str]) -> None:
        """Note that *place* holds nothing of *table* any more, whatever runs have loaded, and lacks what *redrives* brought."""
        columns = tables.coverage.c
        with self._database.writing() as connection:
            _delete_redrives(connection, pipeline, place, redrives)
            wanted = select(columns.target, columns.run_hash).where(
                columns.pipeline == pipeline, columns.place == place
            )
            self._upsert(
                connection,
                tables.covered_table,
                [
                    {
                        "pipeline": pipeline,
                        "target": target,
                        "place": place,
                        "run_hash": run_hash,
                        "schema": table.schema,
                        "table": table.table,
                        "quality": "forgotten",
                    }
                    for target, run_hash in connection.execute(wanted)
                ],
            )

    def coverage(self, pipeline: str) -> list[Coverage]:
        """What the places of targets of *pipeline* hold, by target, window, run and place."""
        covered: dict[tuple[str, str, str], list[CoveredTable]] = {}
        with self._database.reading() as connection:
            rows = connection.execute(select(tables.coverage).where(tables.coverage.c.pipeline == pipeline)).all()
            wanted = select(tables.covered_table).where(tables.covered_table.c.pipeline == pipeline)
            for row in connection.execute(wanted):
                table = CoveredTable(TableName(row.schema, row.table), row.quality)
                covered.setdefault((row.target, row.place, row.run_hash), []).append(table)
        found = [_coverage(row, covered.get((row.target, row.place, row.run_hash), ())) for row in rows]
        return sorted(found, key=lambda record: (record.target, record.window, record.run_hash, record.place))

    def record_scanned_ranges(self, scanned: Iterable[ScannedRange]) -> None:
        """Note offsets that were scanned for references; put their files first."""
        rows = [msgspec.structs.asdict(part) for part in scanned]
        for row in rows:
            row["start_offset"], row["end_offset"] = row.pop("start"), row.pop("end")
        self._replace(tables.scanned_range, rows)

    def scanned_ranges(self, pipeline: str) -> list[ScannedRange]:
        """What was scanned for references of *pipeline*, in order of topic, partition and offset."""
        wanted = select(tables.scanned_range).where(tables.scanned_range.c.pipeline == pipeline)
        with self._database.reading() as connection:
            rows = [dict(row._mapping) for row in connection.execute(wanted).all()]
        return sorted(ScannedRange(start=row.pop("start_offset"), end=row.pop("end_offset"), **row) for row in rows)

    def record_stretches(self, pipeline: str, stretches: Iterable[Stretch]) -> None:
        """Keep the sparse index of a decoded range."""
        self._replace(
            tables.sparse_index,
            [
                {
                    "pipeline": pipeline,
                    **columns_of(stretch.topic),
                    "partition": stretch.partition,
                    "start_offset": stretch.start,
                    "end_offset": stretch.end,
                    "min_commit_ts": stretch.min_commit_ts,
                    "max_commit_ts": stretch.max_commit_ts,
                }
                for stretch in stretches
            ],
        )

    def stretches_before(
        self, pipeline: str, topic: TopicIdentity, starts: Mapping[int, int], commit_ts: int
    ) -> dict[int, list[Stretch]]:
        """Known stretches of each partition from its offset in *starts* on, in order, up to the first with an event of
        *commit_ts* (TSO) or later. Partitions without any are missing, and all are of a topic
        that is not fully known."""
        found: dict[int, list[Stretch]] = {}
        if not topic.complete:
            return found
        with self._database.reading() as connection:
            wanted = sorted(starts.items())
            for at in range(0, len(wanted), _PARTITIONS_AT_A_TIME):
                some = wanted[at : at + _PARTITIONS_AT_A_TIME]
                for row in connection.execute(_stretches_before(pipeline, topic, some, commit_ts)):
                    found.setdefault(row.partition, []).append(
                        Stretch(
                            topic,
                            row.partition,
                            row.start_offset,
                            row.end_offset,
                            row.min_commit_ts,
                            row.max_commit_ts,
                        )
                    )
        return found

    def topics_read(self, pipeline: str) -> list[TopicIdentity]:
        """The topics of which decodes of *pipeline* have left a sparse index, as far as they are fully known; sorted."""
        columns = tables.sparse_index.c
        wanted = (
            select(columns.cluster_id, columns.topic, columns.topic_id).where(columns.pipeline == pipeline).distinct()
        )
        with self._database.reading() as connection:
            found = [TopicIdentity(*row) for row in connection.execute(wanted)]
        return sorted(identity for identity in found if identity.complete)

    def record_reference_files(self, files: Iterable[ReferenceFile]) -> None:
        """Note the claim-check references that runs left."""
        self._replace(tables.reference_file, [msgspec.structs.asdict(file) for file in files])

    def reference_files(self, pipeline: str) -> list[ReferenceFile]:
        """Every file of claim-check references of *pipeline*."""
        with self._database.reading() as connection:
            wanted = select(tables.reference_file).where(tables.reference_file.c.pipeline == pipeline)
            return sorted(ReferenceFile(**row._mapping) for row in connection.execute(wanted).all())

    def record_redrive(self, redrive: Redrive) -> None:
        """Note a re-drive, or that it is in a target."""
        self._replace(tables.redrive, [msgspec.structs.asdict(redrive)])

    def forget_redrives(self, pipeline: str, place: str, redrives: Sequence[str]) -> None:
        """Note that *place* does not hold the *redrives* any more."""
        with self._database.writing() as connection:
            _delete_redrives(connection, pipeline, place, redrives)

    def redrives(self, pipeline: str, run_hash: str) -> list[Redrive]:
        """The re-drives of the quarantine of *run_hash*, and where they were loaded, oldest first."""
        columns = tables.redrive.c
        wanted = select(tables.redrive).where(columns.pipeline == pipeline, columns.run_hash == run_hash)
        with self._database.reading() as connection:
            found = [Redrive(**row._mapping) for row in connection.execute(wanted).all()]
        return sorted(found, key=lambda redrive: (redrive.recorded_at_ms, redrive.redrive_hash, redrive.target))

    def record_accepted_losses(self, losses: Iterable[AcceptedLoss]) -> None:
        """Keep what a person accepted; the first acceptance of an entry stays."""
        with self._database.writing() as connection:
            self._insert_new(connection, tables.accepted_loss, [_loss_row(loss) for loss in losses])

    def accepted_losses(self, pipeline: str) -> list[AcceptedLoss]:
        """All that was accepted as lost of *pipeline*."""
        wanted = select(tables.accepted_loss).where(tables.accepted_loss.c.pipeline == pipeline)
        with self._database.reading() as connection:
            return sorted(_accepted_loss(row) for row in connection.execute(wanted).all())


def _loss_row(loss: AcceptedLoss) -> dict[str, Any]:
    return {**msgspec.structs.asdict(loss), **columns_of(loss.topic)}


def _accepted_loss(row: Row[Any]) -> AcceptedLoss:
    values = dict(row._mapping)
    topic = TopicIdentity(values.pop("cluster_id"), values.pop("topic"), values.pop("topic_id"))
    return AcceptedLoss(topic=topic, **values)


def _is_topic(columns: Any, topic: TopicIdentity) -> tuple[Any, ...]:
    return tuple(columns[name] == value for name, value in columns_of(topic).items())


def _stretches_before(
    pipeline: str, topic: TopicIdentity, starts: Sequence[tuple[int, int]], commit_ts: int
) -> Select[Any]:
    columns = tables.sparse_index.c
    wanted = values(column("partition", Integer), column("start", BigInteger)).data(starts).cte("wanted")
    known = (
        columns.pipeline == pipeline,
        *_is_topic(columns, topic),
        columns.partition == wanted.c.partition,
        columns.end_offset > wanted.c.start,
    )
    first_needed = (
        select(columns.partition, func.min(columns.start_offset).label("start"))
        .where(*known, columns.max_commit_ts >= commit_ts)
        .group_by(columns.partition)
        .cte("first_needed")
    )
    return (
        select(tables.sparse_index)
        .select_from(
            tables.sparse_index.join(wanted, wanted.c.partition == columns.partition).outerjoin(
                first_needed, first_needed.c.partition == columns.partition
            )
        )
        .where(*known, or_(first_needed.c.start.is_(None), columns.start_offset < first_needed.c.start))
        .order_by(columns.partition, columns.start_offset, columns.end_offset)
    )


def _is_window(pipeline: str, window: Window) -> tuple[Any, ...]:
    columns = tables.window_manifest.c
    return columns.pipeline == pipeline, columns.from_ts == window.from_ts, columns.to_ts == window.to_ts


def _manifests(pipeline: str) -> Select[Any]:
    return select(tables.window_manifest).where(tables.window_manifest.c.pipeline == pipeline)


def _active_manifest(connection: Connection, pipeline: str, window: Window) -> WindowManifest | None:
    columns = tables.window_manifest.c
    wanted = select(tables.window_manifest).where(*_is_window(pipeline, window), columns.superseded_at_ms.is_(None))
    row = connection.execute(wanted).one_or_none()
    return _window_manifest(row) if row else None


def _window_manifest(row: Row[Any]) -> WindowManifest:
    return WindowManifest(row.pipeline, Window(row.from_ts, row.to_ts), row.input_hash, row.name, row.pinned_at_ms)


def _run(row: Row[Any]) -> Run:
    values = dict(row._mapping)
    return Run(window=Window(values.pop("from_ts"), values.pop("to_ts")), **values)


def _delete_redrives(connection: Connection, pipeline: str, place: str, redrives: Sequence[str]) -> None:
    columns = tables.redrive.c
    for redrive_hash in redrives:
        connection.execute(
            delete(tables.redrive).where(
                columns.pipeline == pipeline, columns.place == place, columns.redrive_hash == redrive_hash
            )
        )


def _is_held(columns: Any, record: Coverage) -> tuple[Any, ...]:
    """Whether a row is of what the place of *record* holds of its run."""
    return (
        columns.pipeline == record.pipeline,
        columns.place == record.place,
        columns.run_hash == record.run_hash,
    )


def _is_placeless(table: Table, pipeline: str, targets: Iterable[str]) -> tuple[Any, ...]:
    """Whether a row is of what an earlier version recorded of *targets*."""
    return table.c.pipeline == pipeline, table.c.target.in_(list(targets)), table.c.place == ""


def _with_window(record: Coverage | BegunLoad) -> dict[str, Any]:
    values = msgspec.structs.asdict(record)
    window = values.pop("window")
    return {**values, "selection": list(record.selection), "from_ts": window.from_ts, "to_ts": window.to_ts}


def _coverage_row(record: Coverage) -> dict[str, Any]:
    values = _with_window(record)
    del values["tables"]
    return values


def _coverage(row: Row[Any], covered: Iterable[CoveredTable]) -> Coverage:
    values = dict(row._mapping)
    window = Window(values.pop("from_ts"), values.pop("to_ts"))
    selection = tuple(values.pop("selection"))
    return Coverage(window=window, selection=selection, tables=tuple(sorted(covered)), **values)
