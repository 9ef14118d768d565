"""What a load needs of one mirror table: its columns and keys, and the DDL of the window that it has to follow."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex, TableVersion
from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.config.target_rules import MIRROR, with_drop_column
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.schemas.changes import TableChanges, TableCreated
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.ddl import Emptied, emptied_by
from ticdc_replay.targets.mirror.planning.column_events import (
    ColumnEvents,
    MappedVersion,
    NameUse,
    events_of,
    held_ts,
    mapped,
    settled,
    uses_of,
)
from ticdc_replay.targets.mirror.planning.columns import columns_of, one_handle_key, unique_keys
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA, MirrorSection
from ticdc_replay.targets.mirror.planning.staged_rows import StageColumn
from ticdc_replay.targets.mirror.planning.tables import ColumnEvent, KnownColumn, Relation, kept_since
from ticdc_replay.targets.mirror.planning.window_ddl import (
    AddedColumn,
    Floor,
    FormColumn,
    MovedColumn,
    PlannedColumn,
    WidenedColumn,
    WindowDdl,
    changes_since,
)


class PlannedPiece(msgspec.Struct, frozen=True):
    """One schema version: the columns its rows have, and those they lack without a DDL that explains it."""

    version: TableVersion
    columns: tuple[StageColumn, ...]
    lacking: tuple[str, ...]


class TablePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a load, before the target is looked at. Timestamps are TSO."""

    source: TableName
    target: Relation
    dialect: Dialect
    columns: tuple[PlannedColumn, ...]
    """Those of the rows, or of the table that the window creates; empty where it has other DDL of the table and no rows."""
    form: tuple[FormColumn, ...]
    """``columns``, and those that the window's DDL adds or widens, as the newest definition of the window has them."""
    whole_ts: int
    """When a definition held that is known in full, the newest of the window; 0 where there is none."""
    handle_key: tuple[str, ...]
    """Names in the changelog."""
    unique_keys: tuple[tuple[str, ...], ...]
    """Names in the mirror."""
    version_column: str
    """Name of the column that orders the versions of a row: its commitTs, or its place in Kafka."""
    order: VersionOrder
    topic_id: str | None
    """Kafka's id of the topic that places are of; None where rows are ordered by commitTs, or where the window has none."""
    floor_ts: int
    """Nothing below it is loaded."""
    form_floor_ts: int
    """No DDL below it changes the form of the mirror. Below ``floor_ts`` after a TRUNCATE."""
    moment: int
    """From when (exclusive) the newest schema holds; the latest possible time without DDL."""
    schema_ts: int
    """commitTs of the newest DDL that the window's schemas follow; 0 where none is known."""
    created_ts: int | None
    """commitTs of the CREATE TABLE, where the table was created in the window: the last one."""
    added: tuple[AddedColumn, ...]
    widened: tuple[WidenedColumn, ...]
    moved: tuple[MovedColumn, ...]
    kept: dict[str, int]
    """The columns that the mirror keeps although the upstream dropped them, by their folded names in the mirror, with the
    commitTs up to which rows have values of their own; later rows have NULL."""
    events: tuple[ColumnEvent, ...]
    """The dropped and renamed columns that the mirror knew when the load was planned."""
    unseen: tuple[str, ...]
    """Columns that are gone by DDL which no loaded window has shown, one line each."""
    emptied: Emptied | None
    stops: tuple[str, ...]
    """What of the window's DDL stops the load, one line each: beside that of ``added`` and ``widened``, which may be followed."""
    last_stops: tuple[str, ...]
    """The same of DDL at the window's last TSO: all rows come before it, so they are loaded before it stops."""
    conflicts: tuple[str, ...]
    """Why the rows of the window can't share one table."""
    pieces: tuple[PlannedPiece, ...]
    below_floor: int
    """Row versions that are not looked at, because their schema had ended before the floor."""
    dropped_ts: int = 0
    """What of the floor the target remembers of databases that were dropped, where the mirror does not exist yet."""
    deleted_column: str | None = None
    """As ``TableState.deleted_column``."""

    @property
    def next_floor_ts(self) -> int:
        """Nothing below it is applied from this load on: a table that was created has no rows from before."""
        return max(self.floor_ts, self.created_ts or 0) if self.order == "commit_ts" else self.floor_ts

    @property
    def next_form_floor_ts(self) -> int:
        """The same of DDL that changes the form."""
        return max(self.form_floor_ts, self.created_ts or 0) if self.order == "commit_ts" else self.form_floor_ts

    @property
    def tombstones(self) -> Relation:
        """The table that remembers the deletes of the mirror table."""
        return tombstones_of(self.target, self.dialect)

    @property
    def versions(self) -> list[TableVersion]:
        """The versions whose rows are loaded."""
        return [piece.version for piece in self.pieces]

    @property
    def key(self) -> tuple[PlannedColumn, ...]:
        """The columns of the handle key, in the order of their names."""
        by_source = {column.source: column for column in self.columns}
        return tuple(by_source[name] for name in self.handle_key)


def target_of(config: MirrorSection, dialect: Dialect, table: TableName) -> Relation:
    """The mirror table of *table*."""
    schema, name = config.names_of(table)
    return Relation(dialect.fit(schema), dialect.fit(name))


def deleted_column_of(config: MirrorSection, dialect: Dialect) -> str | None:
    """The column in which mirrors mark deleted rows; None as ``MirrorSection.marker`` has it."""
    return None if config.marker is None else dialect.fit(config.marker)


def tombstones_of(target: Relation, dialect: Dialect) -> Relation:
    """The table that remembers the deletes of the mirror table *target*."""
    digest = hashlib.sha256(f"{target.schema}.{target.table}".encode()).hexdigest()[:12]
    return Relation(LEDGER_SCHEMA, dialect.fit(f"tombstones_{digest}_{target.table}"))


def plan_table(
    load: Load,
    config: MirrorSection,
    dialect: Dialect,
    table: TableName,
    floor: Floor,
    events: tuple[ColumnEvent, ...] = (),
    known: Mapping[str, KnownColumn] = MappingProxyType({}),
) -> TablePlan:
    """The plan for *table*, with nothing from below *floor*; its handle key is empty if it has none. *events* are the
    dropped and renamed columns that its mirror knows, *known* its columns.

    Schemas that ended and DDL that ran below the floor are history. A TRUNCATE or DROP that is followed raises the
    floor: only what comes after it counts, and after a TRUNCATE the older columns.
    """
    index = load.index
    floor_ts, form_floor_ts = floor.rows, floor.form
    emptied = emptied_by(changes_since(index, table, floor_ts), config.rules, load.stopping, index.order)
    if emptied is not None:
        floor_ts = emptied.commit_ts + 1
        form_floor_ts = max(form_floor_ts, emptied.form_ts + 1 if emptied.form_ts else 0)
    form_changes = changes_since(index, table, form_floor_ts)
    changes = changes_since(index, table, floor_ts)
    version_option = "commit_ts_column" if index.order == "commit_ts" else "place_column"
    version_column = dialect.fit(getattr(config, version_option))
    handle_keys = [version.schema.handle_key for version in index.versions_of(table)]
    followed = tuple(event for event in events if event.commit_ts >= form_floor_ts)
    rules = with_drop_column(config.rules, load.drop_column)

    def laid_out() -> tuple[_Layout, WindowDdl, tuple[ColumnEvent, ...]]:
        everything = _events(load, table, events, form_changes, handle_keys, known, dialect)
        since_floor = ColumnEvents(event for event in everything if event.commit_ts >= form_floor_ts)
        layout = _layout(index, table, Floor(floor_ts, form_floor_ts), form_changes, since_floor)
        layout.lay_out(dialect, version_column, version_option)
        return layout, WindowDdl(load, layout.columns, dialect, rules, handle_keys, since_floor, followed), everything

    layout, ddl, everything = laid_out()
    stops, last_stops = ddl.stops(form_changes, floor_ts)
    last_ts = index.window.to_ts - 1
    if index.order == "commit_ts" and last_stops:
        changes = [entry for entry in changes if entry.commit_ts < last_ts]
        form_changes = [entry for entry in form_changes if entry.commit_ts < last_ts]
        layout, ddl, everything = laid_out()
    columns, conflicts, versions = layout.columns, layout.conflicts, [each.now for each in layout.versions]
    added = ddl.added(changes)
    changed = ddl.form(form_changes)
    form = _form(index, versions, columns, changed, dialect)
    if (count := max(len(columns), len(form))) > dialect.max_columns:
        conflicts.append(
            f"it has {count} columns, and a mirror in {dialect.database} has room for {dialect.max_columns}: load it into a "
            "parquet target, and take it out of `tables` for this one; or leave columns out by a column selector of the "
            "changefeed"
        )
    kept = kept_since(everything, dialect.fit_column)
    moved = ddl.moved(form_changes) if index.order == "commit_ts" else ()
    own = {each.event.key for each in moved}
    gone = (event for event in everything if not event.is_in(events) and event.key not in own)
    moved = (*(MovedColumn(event, ()) for event in gone), *moved)
    named = [*(column.target for column in changed), *(dialect.fit_column(each.event.to or "") for each in moved)]
    if version_column in named:
        conflicts.append(
            f"DDL makes a column {version_column}, in which the mirror holds the version: set {version_option} of the target "
            "to a name that no table has"
        )
    deleted_column = deleted_column_of(config, dialect)
    for name in dict.fromkeys([*(column.target for column in columns), *named]):
        if deleted_column is not None and folded(name) == folded(deleted_column):
            conflicts.append(
                f"the mirror marks deleted rows in {deleted_column}, and its upstream has a column {name}: set `deleted_column` "
                "of the target to a name that no table has"
            )
    since = [version.schema.valid_from for version in versions]
    own_ts = {each.event.commit_ts for each in moved}
    since += [entry.commit_ts for entry in form_changes if ddl.form([entry]) or entry.commit_ts in own_ts]
    newest = versions[-1] if versions else None
    topic_id = _topic_id(load, table, conflicts) if index.order == "place" else None
    if index.order == "place" and layout.loaded and index.window.from_ts < floor_ts:
        conflicts.append(
            f"its floor_ts {describe(floor_ts)} lies within the window, and without commitTs nothing shows which rows are from "
            "before it: choose a floor_ts at the end of a window"
        )
    return TablePlan(
        source=table,
        target=target_of(config, dialect, table),
        dialect=dialect,
        columns=columns,
        form=form,
        whole_ts=max((held_ts(index, version) for version in versions if version.declared), default=0)
        if columns
        else 0,
        handle_key=layout.handle_key,
        unique_keys=unique_keys(newest, columns, dialect.max_index_bytes),
        version_column=version_column,
        order=index.order,
        topic_id=topic_id,
        floor_ts=floor_ts,
        form_floor_ts=form_floor_ts,
        moment=_moment(index, newest) if newest is not None else 0,
        schema_ts=max(since, default=0),
        created_ts=max(
            (
                entry.commit_ts
                for entry in form_changes
                if any(isinstance(change, TableCreated) for change in entry.changes)
            ),
            default=None,
        ),
        added=added,
        widened=ddl.widened(changes),
        moved=moved,
        kept=kept,
        events=events,
        unseen=(*(line for each in (*layout.versions, *layout.loaded) for line in each.unseen), *ddl.unseen(changes)),
        emptied=emptied,
        stops=stops,
        last_stops=last_stops,
        conflicts=tuple(conflicts),
        pieces=tuple(
            _piece(each, versions, columns, {column.target for column in added}, kept) for each in layout.loaded
        ),
        below_floor=layout.below_floor,
        deleted_column=deleted_column,
    )


def _events(
    load: Load,
    table: TableName,
    events: tuple[ColumnEvent, ...],
    changes: Sequence[TableChanges],
    handle_keys: Sequence[Sequence[str]],
    known: Mapping[str, KnownColumn],
    dialect: Dialect,
) -> tuple[ColumnEvent, ...]:
    """*events*, and those of *changes*, by what is known with the window. A DDL that the mirror has followed stays as it was
    followed, whatever the policy is now."""
    index, recorded = load.index, {event.key: event for event in events}
    own: tuple[ColumnEvent, ...] = ()
    if index.order == "commit_ts":
        own = events_of(changes, handle_keys, keeps=load.drop_column == "keep")
    found = {
        **recorded,
        **{
            event.key: msgspec.structs.replace(event, to=recorded[event.key].to) if event.key in recorded else event
            for event in own
        },
    }
    everything = tuple(found.values())
    kept = [event for event in everything if event.keeps]
    if not kept or index.order == "place":
        return everything
    uses = list(uses_of(index, index.versions_of(table), everything, changes))
    for event in kept:
        if (column := known.get(dialect.fit_column(event.name))) is not None:
            uses.append(NameUse(event.name, column.commit_ts))
    return settled(everything, uses)


@dataclass
class _Layout:
    """The versions of a window with the names that their columns have in the mirror, and what they have in common."""

    versions: list[MappedVersion]
    """Those that say something about the columns, oldest first."""
    loaded: list[MappedVersion]
    """Those with rows that count."""
    below_floor: int
    conflicts: list[str] = field(default_factory=list)
    handle_key: tuple[str, ...] = ()
    columns: tuple[PlannedColumn, ...] = ()

    def lay_out(self, dialect: Dialect, version_column: str, version_option: str) -> None:
        """Find the columns that all versions share."""
        moved = [line for each in (*self.versions, *self.loaded) if (line := _moved_key(each)) is not None]
        if moved:
            self.conflicts += dict.fromkeys(moved)
            return
        versions = [each.now for each in self.versions]
        self.handle_key = one_handle_key(versions, self.conflicts)
        if self.handle_key:
            self.columns = columns_of(
                versions, self.handle_key, dialect, version_column, version_option, self.conflicts
            )


def _layout(
    index: ChangelogIndex, table: TableName, floor: Floor, changes: list[TableChanges], events: ColumnEvents
) -> _Layout:
    found = [part for version in index.versions_of(table) for part in mapped(index, version, events, changes)]
    found.sort(key=lambda each: (_moment(index, each.version), each.version.version))
    ended = [each for each in found if index.extent_of(each.version)[1] < floor.rows]
    versions = [each for each in found if index.extent_of(each.version)[1] >= floor.form]
    versions = versions or [
        each for version in _created(index, changes) for each in mapped(index, version, events, changes)
    ]
    loaded = [each for each in found if each not in ended]
    return _Layout(versions, loaded, sum(each.version.rows for each in ended))


def _moved_key(each: MappedVersion) -> str | None:
    """Why rows of this version can't be found in the mirror, if DDL has moved a column of their key; the window of the DDL
    can't tell where it has no rows and the table is of unknown definition."""
    moved = [name for name in each.version.schema.handle_key if each.sources.get(name) != name]
    if not moved:
        return None
    return (
        f"its rows were identified by {', '.join(each.version.schema.handle_key)}, and a DDL of a window that is loaded dropped "
        f"or renamed {', '.join(moved)}: {MIRROR['key_changed'].remedy}"
    )


def _created(index: ChangelogIndex, changes: list[TableChanges]) -> list[TableVersion]:
    """The table that the last CREATE TABLE of *changes* makes, as a version without rows; none where its columns are unknown."""
    for entry in reversed(changes):
        for change in reversed(entry.changes):
            if isinstance(change, TableCreated):
                if change.schema is None:
                    return []
                schema = msgspec.structs.replace(change.schema, valid_from=entry.commit_ts)
                return [TableVersion(schema, "", True, (), 0)]
    return []


def _form(
    index: ChangelogIndex,
    versions: list[TableVersion],
    columns: tuple[PlannedColumn, ...],
    changed: tuple[FormColumn, ...],
    dialect: Dialect,
) -> tuple[FormColumn, ...]:
    """*columns* as the newest of *versions* and of what DDL has *changed* leaves them, and columns that no row has."""
    form: dict[str, FormColumn] = {}
    key = set(versions[-1].schema.handle_key) if versions else set()
    for column in columns:
        has = [version for version in versions if version.schema.column(column.source) is not None]
        found = [version.schema.column(column.source) for version in has]
        form[column.target] = FormColumn(
            column.target,
            column.type,
            max(held_ts(index, version) for version in has),
            declared=all(each is not None and each.type.declared for each in found),
            in_rows=any(version.files for version in has),
            in_key=column.source in key,
            since=max(each.since for each in found if each is not None),
        )
    for change in changed:
        known = form.setdefault(change.target, change)
        form[change.target] = msgspec.structs.replace(
            known,
            type=dialect.wider(known.type, change.type) or known.type,
            commit_ts=max(known.commit_ts, change.commit_ts),
            since=max(known.since, change.since),
        )
    return tuple(form.values())


def _moment(index: ChangelogIndex, version: TableVersion) -> int:
    # A schema holds for rows after its DDL, so one of unknown origin began before its last row at the latest.
    return version.schema.valid_from or index.extent_of(version)[1] - 1


def _topic_id(load: Load, table: TableName, conflicts: list[str]) -> str | None:
    found = load.index.topic_ids_of(table)
    if len(found) > 1:
        conflicts.append("its rows are in several topics, and without commitTs nothing shows which came last")
    return min(found, default=None)


def _piece(
    mapped: MappedVersion,
    versions: list[TableVersion],
    columns: tuple[PlannedColumn, ...],
    added: set[str],
    kept: Mapping[str, int],
) -> PlannedPiece:
    version, own = mapped.version, mapped.sources
    newest = versions[-1].schema.valid_from
    explained = version.schema.valid_from < newest
    key = set(version.schema.handle_key)
    return PlannedPiece(
        version,
        tuple(
            StageColumn(own[column.source], column.staged, column.type, own[column.source] in key)
            for column in columns
            if column.source in own
        ),
        tuple(
            column.source
            for column in columns
            if column.source not in own
            and not explained
            and column.target not in added
            and folded(column.target) not in kept
        ),
    )
