"""What a load needs of one mirror table: its columns and keys, and the DDL of the window that it has to follow."""

import msgspec

from ticdc_replay.changelog.index import ChangelogIndex, TableVersion
from ticdc_replay.changelog.version_order import VersionOrder
from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, ColumnType
from ticdc_replay.domain.limits import BAD_NAME, refused_columns
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.schemas.changes import TableChanges, TableCreated
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.ddl import Emptied, emptied_by
from ticdc_replay.targets.postgres.identifiers import Relation, fit, fit_column
from ticdc_replay.targets.postgres.section import PostgresTarget
from ticdc_replay.targets.postgres.staged_rows import StageColumn
from ticdc_replay.targets.postgres.types import pg_type, wider
from ticdc_replay.targets.postgres.window_ddl import (
    AddedColumn,
    Floor,
    FormColumn,
    PlannedColumn,
    WidenedColumn,
    added_by,
    changes_since,
    form_by,
    stops_by,
    widened_by,
)

MAX_COLUMNS = 1598
"""PostgreSQL's limit of 1,600 less the columns that a mirror and its staging add."""

MAX_INDEX_BYTES = 2600
"""PostgreSQL refuses larger index entries (2,704 bytes with their header). An index that stands for a secondary unique key is
a convenience: it is left out where longer values are to be expected. Where one comes nevertheless, see ``indexes``."""


class PlannedPiece(msgspec.Struct, frozen=True):
    """One schema version: the columns its rows have, and those they lack without a DDL that tells why."""

    version: TableVersion
    columns: tuple[StageColumn, ...]
    lacking: tuple[str, ...]


class TablePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a load, before the target is looked at. Timestamps are TSO."""

    source: TableName
    target: Relation
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
    """From when (exclusive) the newest schema holds; at the latest, where no DDL tells."""
    schema_ts: int
    """commitTs of the newest DDL that the window's schemas follow; 0 where none is known."""
    created_ts: int | None
    """commitTs of the CREATE TABLE, where the table was created in the window: the last one."""
    added: tuple[AddedColumn, ...]
    widened: tuple[WidenedColumn, ...]
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

    @property
    def next_floor_ts(self) -> int:
        """Nothing below it is applied from this load on: a table that was created has no rows from before."""
        return max(self.floor_ts, self.created_ts or 0) if self.order == "commit_ts" else self.floor_ts

    @property
    def next_form_floor_ts(self) -> int:
        """The same of DDL that changes the form."""
        return max(self.form_floor_ts, self.created_ts or 0) if self.order == "commit_ts" else self.form_floor_ts

    @property
    def versions(self) -> list[TableVersion]:
        """The versions whose rows are loaded."""
        return [piece.version for piece in self.pieces]

    @property
    def key(self) -> tuple[PlannedColumn, ...]:
        """The columns of the handle key, in the order of their names."""
        by_source = {column.source: column for column in self.columns}
        return tuple(by_source[name] for name in self.handle_key)

    def column(self, target: str) -> PlannedColumn | None:
        """The column that is called *target* in the mirror, or None."""
        return next((column for column in self.columns if column.target == target), None)


def target_of(config: PostgresTarget, table: TableName) -> Relation:
    """The mirror table of *table*."""
    return Relation(fit(config.db_schema or table.schema), fit(table.table))


def plan_table(load: Load, config: PostgresTarget, table: TableName, floor: Floor) -> TablePlan:
    """The plan for *table*, of which nothing below *floor* is wanted; its handle key is empty where it has none.

    Schemas that ended and DDL that ran below the floor are history that somebody has dealt with. A TRUNCATE or DROP that is
    followed raises the floor: only what comes after it counts, and after a TRUNCATE the columns from before it.
    """
    index = load.index
    floor_ts, form_floor_ts = floor.rows, floor.form
    emptied = emptied_by(changes_since(index, table, floor_ts), config.rules, load.stopping, index.order)
    if emptied is not None:
        floor_ts = emptied.commit_ts + 1
        form_floor_ts = max(form_floor_ts, emptied.form_ts + 1 if emptied.form_ts else 0)
    versions = sorted(load.versions(table), key=lambda version: (_moment(index, version), version.version))
    ended = [version for version in versions if index.extent_of(version)[1] < floor_ts]
    form_changes = changes_since(index, table, form_floor_ts)
    changes = changes_since(index, table, floor_ts)
    loaded = [version for version in versions if version not in ended]
    versions = [version for version in versions if index.extent_of(version)[1] >= form_floor_ts]
    versions = versions or _created(index, form_changes)
    conflicts: list[str] = []
    handle_key = _one_handle_key(versions, conflicts)
    version_option = "commit_ts_column" if index.order == "commit_ts" else "place_column"
    version_column = fit(getattr(config, version_option))
    columns = _columns(versions, version_column, version_option, conflicts) if handle_key else ()
    stops, last_stops = stops_by(load, form_changes, floor_ts, columns)
    last_ts = index.window.to_ts - 1
    if index.order == "commit_ts" and last_stops:
        changes = [entry for entry in changes if entry.commit_ts < last_ts]
        form_changes = [entry for entry in form_changes if entry.commit_ts < last_ts]
    added = added_by(load, changes, columns)
    widened = widened_by(load, changes, columns)
    changed = form_by(form_changes, columns)
    form = _form(index, versions, columns, changed)
    if (count := max(len(columns), len(form))) > MAX_COLUMNS:
        conflicts.append(
            f"it has {count} columns, and a mirror in PostgreSQL has room for {MAX_COLUMNS}: load it into a parquet target, and "
            "take it out of `tables` for this one; or leave columns out by a column selector of the changefeed"
        )
    if any(column.target == version_column for column in changed):
        conflicts.append(
            f"DDL adds the column {version_column}, in which the mirror holds the version: set {version_option} of the target "
            "to a name that no table has"
        )
    followed = [version.schema.valid_from for version in versions]
    followed += [entry.commit_ts for entry in form_changes if form_by([entry], columns)]
    newest = versions[-1] if versions else None
    topic_id = _topic_id(load, table, conflicts) if index.order == "place" else None
    if index.order == "place" and loaded and index.window.from_ts < floor_ts:
        conflicts.append(
            f"its floor_ts {describe(floor_ts)} lies within the window, and without commitTs nothing tells which rows are from "
            "before it: choose a floor_ts at the end of a window"
        )
    return TablePlan(
        source=table,
        target=target_of(config, table),
        columns=columns,
        form=form,
        whole_ts=max((_held(index, version) for version in versions if version.declared), default=0) if columns else 0,
        handle_key=handle_key,
        unique_keys=_unique_keys(newest, columns),
        version_column=version_column,
        order=index.order,
        topic_id=topic_id,
        floor_ts=floor_ts,
        form_floor_ts=form_floor_ts,
        moment=_moment(index, newest) if newest is not None else 0,
        schema_ts=max(followed, default=0),
        created_ts=max(
            (
                entry.commit_ts
                for entry in form_changes
                if any(isinstance(change, TableCreated) for change in entry.changes)
            ),
            default=None,
        ),
        added=added,
        widened=widened,
        emptied=emptied,
        stops=stops,
        last_stops=last_stops,
        conflicts=tuple(conflicts),
        pieces=tuple(_piece(version, versions, columns, {column.target for column in added}) for version in loaded),
        below_floor=sum(version.rows for version in ended),
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
            max(_held(index, version) for version in has),
            declared=all(each is not None and each.type.declared for each in found),
            in_rows=any(version.files for version in has),
            in_key=column.source in key,
        )
    for change in changed:
        known = form.setdefault(change.target, change)
        form[change.target] = msgspec.structs.replace(
            known,
            type=wider(known.type, change.type) or known.type,
            commit_ts=max(known.commit_ts, change.commit_ts),
        )
    return tuple(form.values())


def _held(index: ChangelogIndex, version: TableVersion) -> int:
    """When the schema *version* certainly held: at its last row, or from its DDL on where that is all that is known."""
    last_row = index.extent_of(version)[1] - 1 if version.files and index.order == "commit_ts" else 0
    return max(version.schema.valid_from, last_row)


def _moment(index: ChangelogIndex, version: TableVersion) -> int:
    # A schema holds for rows after its DDL, so one of unknown origin began before its last row at the latest.
    return version.schema.valid_from or index.extent_of(version)[1] - 1


def _topic_id(load: Load, table: TableName, conflicts: list[str]) -> str | None:
    found = load.index.topic_ids_of(table)
    if len(found) > 1:
        conflicts.append("its rows are in several topics, and without commitTs nothing tells which came last")
    return min(found, default=None)


def _one_handle_key(versions: list[TableVersion], conflicts: list[str]) -> tuple[str, ...]:
    keys = {version.schema.handle_key for version in versions}
    if len(keys) > 1:
        described = " and ".join(", ".join(key) or "no key" for key in sorted(keys))
        conflicts.append(f"within the window rows are identified by {described}")
    # Rows without key stand beside rows with one: no reason to take the table for one that a mirror can't hold.
    return next((version.schema.handle_key for version in reversed(versions) if version.schema.handle_key), ())


def _columns(
    versions: list[TableVersion], version_column: str, version_option: str, conflicts: list[str]
) -> tuple[PlannedColumn, ...]:
    """The union of the versions' columns, in the order of the newest; of two types the one that holds both."""
    types: dict[str, str] = {}
    spellings: dict[str, str] = {}
    for version in reversed(versions):
        own = {column.name for column in version.schema.columns}
        for name in sorted(own):
            newer = spellings.setdefault(folded(name), name)
            if newer not in own:
                conflicts.append(
                    f"column {newer} is spelled {name} in older rows of the window: load a window that "
                    "ends between them, rename the column of the mirror, and go on from there"
                )
        for column in version.schema.columns:
            wanted = pg_type(column.type)
            known = types.setdefault(column.name, wanted)
            both = wider(known, wanted)
            if both is None:
                conflicts.append(
                    f"column {column.name} is {wanted} in older rows of the window and {known} in newer ones"
                )
            types[column.name] = both or known
    targets = [fit_column(name) for name in types]
    taken = {name for name in targets if targets.count(name) > 1 or name == version_column}
    if taken:
        conflicts.append(
            f"the mirror would have two columns {', '.join(sorted(taken))}: "
            f"set {version_option} of the target to a name that no table has"
        )
    if (refusal := refused_columns(types)) is not None and refusal[0] == BAD_NAME:
        conflicts.append(
            f"{refusal[1]}: an earlier version wrote damaged rows; pin the window anew (repin) to set them aside"
        )
    return tuple(
        PlannedColumn(name, target, f"c{at}", type_name)
        for at, ((name, type_name), target) in enumerate(zip(types.items(), targets, strict=True))
    )


def _unique_keys(newest: TableVersion | None, columns: tuple[PlannedColumn, ...]) -> tuple[tuple[str, ...], ...]:
    if newest is None:
        return ()
    # The keys are named as the definition spells them, the columns as the rows do.
    own = {column.name for column in newest.schema.columns}
    targets = {folded(column.source): column.target for column in columns if column.source in own}
    widths = {folded(column.name): _index_bytes(column.type) for column in newest.schema.columns}
    handle_key = sorted(map(folded, newest.schema.handle_key))
    keys = [tuple(map(folded, key)) for key in newest.schema.unique_keys]
    return tuple(
        tuple(targets[name] for name in key)
        for key in keys
        if sorted(key) != handle_key
        and all(name in targets for name in key)
        and sum(widths[name] for name in key) <= MAX_INDEX_BYTES
    )


def _index_bytes(column_type: ColumnType) -> int:
    """How many bytes a value takes in an index at most."""
    base = column_type.base
    if base in CHARACTER_TYPES or base in BINARY_TYPES or base in ("json", "vector"):
        bytes_each = 1 if base in BINARY_TYPES else 4
        return MAX_INDEX_BYTES + 1 if column_type.length is None else column_type.length * bytes_each
    return 64


def _piece(
    version: TableVersion, versions: list[TableVersion], columns: tuple[PlannedColumn, ...], added: set[str]
) -> PlannedPiece:
    own = {column.name for column in version.schema.columns}
    newest = versions[-1].schema.valid_from
    explained = version.schema.valid_from < newest
    key = set(version.schema.handle_key)
    return PlannedPiece(
        version,
        tuple(
            StageColumn(column.source, column.staged, column.type, column.source in key)
            for column in columns
            if column.source in own
        ),
        tuple(
            column.source
            for column in columns
            if column.source not in own and not explained and column.target not in added
        ),
    )
