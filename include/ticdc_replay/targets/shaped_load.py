"""Gives a load the changelog as its target is to have it: shaped copies of the files of tables with a shape.

A target reads these as it reads any changelog, and knows nothing of shapes: what is masked never reaches it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow.parquet as pq

from ticdc_replay.changelog.cells.types import table_arrow_schema
from ticdc_replay.changelog.files.index import ChangelogIndex, Ddl, TableVersion
from ticdc_replay.changelog.files.parts import batch_rows
from ticdc_replay.config.shape import ShapeSection
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import (
    ArtifactNotFoundError,
    ConfigError,
    PolicyStopError,
    TargetMismatchError,
    TransientError,
)
from ticdc_replay.domain.former_names import FormerNames
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName, TableSchema, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.mysql_protocol import identifier
from ticdc_replay.schemas.changes import BreakingChange, ColumnRenamed, TableChanges, TableCreated
from ticdc_replay.schemas.ddl.reader import ParsedDdl, TableKey, key_of
from ticdc_replay.schemas.ddl.statements import AlterTable, QualifiedName, RenameTables, RenameTo
from ticdc_replay.storage.base import ObjectStore
from ticdc_replay.targets.base import AnyTarget, Execute, Load, StoreAddress
from ticdc_replay.targets.files import file_errors, whole_file
from ticdc_replay.targets.shape import DDL_NOT_SHOWN, Attempt, Shape, without_text

_SALT_BYTES = 16
_RECORDS = "shapes"
"""The folder of the records of shapes, below the artefacts."""


class ShapeTask(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the changelog, and where its shaped copy goes. Holds the salt: never written to an artefact."""

    artifacts: StoreAddress
    source: str
    name: str
    schema: TableSchema
    shape: Shape
    attempt: Attempt


def shape_of(section: TargetSection, connections: Connections, table: TableName) -> Shape | None:
    """The shape of *table* in the target of *section*; None if it is as the upstream's. Raises ConfigError without a salt of at
    least 16 bytes, if values are hashed."""
    found = unsalted(section, table)
    if found is None or found.section.salt_connection is None:
        return found
    salt = (connections[found.section.salt_connection].password or "").encode()
    if len(salt) < _SALT_BYTES:
        raise ConfigError(
            f"target {section.name}: the connection {found.section.salt_connection} must have a salt of at least {_SALT_BYTES} "
            "bytes as its password, such as the output of: openssl rand -hex 32"
        )
    return Shape(table, found.section, salt)


def shape_in(
    store: ObjectStore, section: TargetSection, connections: Connections, index: ChangelogIndex, table: TableName
) -> Shape | None:
    """``recorded_shape``, with the columns of the key that *index* shows, too."""
    found = recorded_shape(store, section, connections, table)
    return None if found is None else with_key(found, index, found.key_columns)


def recorded_shape(
    store: ObjectStore, section: TargetSection, connections: Connections, table: TableName
) -> Shape | None:
    """``shape_of``, with the columns of the key that the record of the shape shows: what a target has of *table*."""
    found = shape_of(section, connections, table)
    recorded = None if found is None else _recorded(store, section, table)
    if found is None or recorded is None:
        return found
    return msgspec.structs.replace(found, key_columns=frozenset(recorded.get("key", ())))


def with_key(shape: Shape, index: ChangelogIndex, known: Iterable[str] = ()) -> Shape:
    """*shape* with the columns of the key that *index* shows, and *known* ones; by both names of a RENAME."""
    key = {*known, *(folded(name) for schema in _schemas_of(index, shape.table) for name in schema.handle_key)}
    renames = [
        {folded(change.name), folded(change.to)}
        for entry in index.changes
        for change in entry.changes
        if entry.table == shape.table and isinstance(change, ColumnRenamed)
    ]
    for both in (*renames, *reversed(renames)):
        if both & key:
            key |= both
    return msgspec.structs.replace(shape, key_columns=frozenset(key))


def unsalted(section: TargetSection, table: TableName) -> Shape | None:
    """``shape_of`` for a forecast: its hashes are not those of the target."""
    found = _entry_of(section, table)
    return None if found is None or found.is_plain else Shape(table, found)


def _entry_of(section: TargetSection, table: TableName) -> ShapeSection | None:
    return next((each for each in section.shape if TablePatterns(each.tables).wants(table.schema, table.table)), None)


@contextmanager
def shaped(load: Load, target: AnyTarget, execute: Execute) -> Iterator[Load]:
    """Inside, the returned load has the changelog as *target* is to have it; *load* itself without shapes.

    The copies are temporary files of the attempt. Raises, before anything is written, ConfigError for a shape that does not fit
    a table, PolicyStopError for a RENAME to a name that has another one, and TargetMismatchError for a table that was loaded
    with another one; TransientError for a table whose rebuilt mirror with another shape takes its place.
    """
    section, connections = target.config, target.connections
    load = msgspec.structs.replace(load, index=without_unclear_texts(section, load.index))
    refuse_renames(section, load.index.changes, load.selection)
    store = load.artifacts.open()
    shapes = {
        table: shape
        for table in load.tables
        if (shape := shape_in(store, section, connections, load.index, table)) is not None
    }
    _refuse_former_names(store, load, target, shapes)
    _refuse_unknown_names(load, shapes)
    if not shapes:
        _require_same(store, load, target, shapes)
        yield msgspec.structs.replace(load, shapes_seen=_seen(store, load, target))
        return
    if load.index.redrives is not None and not section.is_mirror:
        table = min(shapes)
        raise ConfigError(
            f"target {load.target}: rows of {table} that came out of a quarantine can't be added to a table with a `shape` that "
            "keeps each window's rows. Decode the window again, with a new run, and load that"
        )
    index, folder = load.index, f"{load.folder}/shaped"
    for left in store.list(f"loads/{index.run_hash}/{load.target}/"):  # by attempts that were killed
        if "/shaped/" in left.name:
            store.delete(left.name)
    attempt = Attempt(datetime.now(UTC), f"{index.window.from_ts}-{index.window.to_ts}", index.run_hash, index.pipeline)
    shaped_load = msgspec.structs.replace(
        load.with_index(
            tables=tuple(_version(version, shapes) for version in index.tables),
            changes=tuple(
                shapes[entry.table].changes(entry) if entry.table in shapes else entry for entry in index.changes
            ),
            ddl=_shaped_ddl(index, shapes),
        ),
        shaped=folder,
        shaped_tables=frozenset(shapes),
    )
    tasks = [
        ShapeTask(
            artifacts=load.artifacts,
            source=load.file_name(file, table=version.schema.name),
            name=shaped_load.file_name(file, table=version.schema.name),
            schema=version.schema,
            shape=shapes[version.schema.name],
            attempt=attempt,
        )
        for version in index.tables
        if version.schema.name in shapes
        for file in version.files
    ]
    _require_same(store, load, target, shapes)  # once it is known that the shapes fit
    shaped_load = msgspec.structs.replace(shaped_load, shapes_seen=_seen(store, load, target))
    try:
        execute(shape_file, tasks, f"shape rows for {section.name}")
        yield shaped_load
    finally:
        for task in tasks:
            store.delete(task.name)


def shape_file(task: ShapeTask) -> str:
    """Write the shaped copy of one file; its name. May run twice."""
    filesystem, root = task.artifacts.open().arrow_filesystem()
    layout = table_arrow_schema(task.shape.schema(task.schema))
    with (
        file_errors(f"shape {task.source}"),
        whole_file(filesystem, f"{root}/{task.name}") as path,
        pq.ParquetFile(f"{root}/{task.source}", filesystem=filesystem) as file,
        pq.ParquetWriter(path, layout, compression="zstd", compression_level=1) as writer,
    ):
        for batch in file.iter_batches(batch_rows(file.metadata)):
            writer.write_batch(task.shape.rows(batch, task.schema, task.attempt))
    return task.name


def begin_move(store: ObjectStore, old: TargetSection, new: TargetSection, table: TableName) -> None:
    """Note that the rows of *table* in the target of *new* are about to be those in that of *old*. If these have another shape,
    loads into the target of *new* are refused until ``end_move`` or ``withdraw_move``: which rows it has is not known."""
    found = _recorded(store, old, table)
    if found != _recorded(store, new, table):
        store.put(_moving_of(new, table), canonical.encode(found))


def end_move(store: ObjectStore, old: TargetSection, new: TargetSection, table: TableName) -> None:
    """Let *table* in the target of *new* have the shape that ``begin_move`` noted, and forget that of *old*. Safe to repeat."""
    try:
        found = msgspec.json.decode(store.get(_moving_of(new, table)))
    except ArtifactNotFoundError:
        pass  # both have one shape, or it was moved
    else:
        if found is None:
            store.delete(record_of(new, table))
        else:
            store.put(record_of(new, table), canonical.encode(found))
        withdraw_move(store, new, table)
    forget_shape(store, old, table)


def withdraw_move(store: ObjectStore, section: TargetSection, table: TableName) -> None:
    """Note that the rows of *table* in the target of *section* stay as they are."""
    store.delete(_moving_of(section, table))


def require_unmoved(load: Load, section: TargetSection, *tables: TableName) -> None:
    """Raise TransientError if one of *tables* in the target of *section* may have rows of another shape than *load* brings:
    another first load came before, or a rebuilt mirror has taken its place, or is about to. The answer holds as long as the
    mirror is locked."""
    records = {table: record_of(section, table) for table in tables if table in load.shapes_seen}
    if not records:
        return
    first, *others = records.values()
    prefix = f"{_RECORDS}/" if others else first.removesuffix(".json")
    now = {info.name: info.etag for info in load.artifacts.open().list(prefix)}
    for table, name in records.items():
        if _moving_of(section, table) in now or now.get(name, "") != load.shapes_seen[table]:
            raise TransientError(
                f"{table}: its recorded `shape` was changed while this load staged its rows, or a rebuilt mirror takes its "
                "place; try again"
            )


@contextmanager
def renaming_shapes(
    store: ObjectStore, section: TargetSection, renames: Mapping[TableName, TableName]
) -> Iterator[None]:
    """Record the shapes of tables under their new names, too, and forget them under the old ones at the end: *renames* has the
    new names by the old ones, all of one shape. So no load meets rows without their record, whatever breaks in between. To be
    entered once nothing refuses the renames any more."""
    found = [each for old in renames if (each := _recorded(store, section, old)) is not None]
    columns = {name: treated for each in found for name, treated in each["columns"].items()}
    key = sorted({name for each in found for name in each.get("key", ())})
    salt = next((each["salt"] for each in found if each["salt"] is not None), None)
    records = {record_of(section, new) for new in renames.values()}
    for record in records if found else ():
        store.put(record, canonical.encode({**found[0], "columns": columns, "key": key, "salt": salt}))
    yield
    for old in renames:
        if record_of(section, old) not in records:  # names that differ by case alone share one
            forget_shape(store, section, old)


def forget_shape(store: ObjectStore, section: TargetSection, table: TableName) -> None:
    """Forget which shape *table* has in the target of *section*; its next load records the shape of then."""
    store.delete(record_of(section, table))
    withdraw_move(store, section, table)


def has_records(store: ObjectStore) -> bool:
    """Whether any target of the pipeline has, or had, a table with a shape."""
    return any(True for _ in store.list(f"{_RECORDS}/"))


def record_of(section: TargetSection, table: TableName) -> str:
    """The name of the record of the shape of *table*, below the artefacts: one for each table of a target."""
    return f"{_RECORDS}/{canonical.digest(section.place_of(table).lower().encode())}.json"


def _moving_of(section: TargetSection, table: TableName) -> str:
    """The name of the note of ``begin_move``: the record that is to come, or null."""
    return record_of(section, table).removesuffix(".json") + "-moving.json"


def _seen(store: ObjectStore, load: Load, target: AnyTarget) -> dict[TableName, str]:
    """``Load.shapes_seen``. Raises TransientError for a table whose shape is one of two."""
    etags = {info.name: info.etag for info in store.list(f"{_RECORDS}/")}
    _refuse_moving(etags, load, target)
    return {table: etags.get(record_of(target.config, table), "") for table in load.tables}


def _refuse_moving(known: Collection[str], load: Load, target: AnyTarget) -> None:
    """Raise TransientError for a table whose shape is one of two: of *known*, the names of records, one says so."""
    for table in load.tables:
        if _moving_of(target.config, table) in known:
            raise TransientError(
                f"{table}: a rebuilt mirror with another `shape` takes its place in target {load.target}. Wait until "
                "`ticdc-replay mirror rebuild` has ended; if it was killed, run it again"
            )


def refuse_renames(section: TargetSection, changes: Iterable[TableChanges], selection: Sequence[str]) -> None:
    """Raise PolicyStopError for a table of *changes* whose new name, if *selection* (patterns) has it, has another shape: its
    rows would be unmasked from then on."""
    wanted = TablePatterns(selection)
    for entry in changes if section.shape else ():
        for change in entry.changes:
            match change:
                case BreakingChange(kind="renamed_away", other=TableName() as new):
                    old = entry.table
                case BreakingChange(kind="not_understood", other=TableName() as old):
                    new = entry.table
                case _:
                    continue
            if wanted.wants(new.schema, new.table):
                _refuse_rename(section, old, new, f"at {describe(entry.commit_ts)}")


def _refuse_rename(section: TargetSection, old: TableName, new: TableName, when: str) -> None:
    if not old.schema:
        _refuse_unclear_rename(section, old.table, new, when)
        return
    shapes = [unsalted(section, table) for table in (old, new)]
    known = [None if each is None else each.section.model_copy(update={"tables": ()}) for each in shapes]
    if known[0] != known[1]:
        raise PolicyStopError(
            f"{old}: the table was renamed to {new} {when}, which `shape` of target {section.name} treats in another way: let "
            "one entry of `shape` match both names"
        )


def _refuse_unclear_rename(section: TargetSection, old: str, new: TableName, when: str) -> None:
    """``_refuse_rename`` of *old* in an unknown schema, unless an entry names *new* in full: a person has decided on it."""
    own = _entry_of(section, new)
    if own is not None and str(new).lower() in map(str.lower, own.tables):
        return
    now = ShapeSection() if own is None else own.model_copy(update={"tables": ("*.*",)})
    for entry in section.shape:
        if TablePatterns(entry.tables).names(old) and entry.model_copy(update={"tables": ("*.*",)}) != now:
            raise PolicyStopError(
                f"{new}: a table {old}, of a schema that the DDL leaves out, was renamed to it {when}, and `shape` of target "
                f"{section.name} treats {', '.join(entry.tables)} in another way: let one entry of `shape` match both names. If "
                f"it was another table, add an entry that names {new} in full; one with `tables` alone leaves it as it is"
            )


def _refuse_former_names(store: ObjectStore, load: Load, target: AnyTarget, shapes: Mapping[TableName, Shape]) -> None:
    """Raise PolicyStopError for a table, or a column, that the target has in another way than under a name that it had before the
    window, whether or not the load stopped that had the RENAME. Where rows were loaded under that name, their record tells."""
    loaded = {key_of(table): table for table in load.tables}
    for names in load.former_names:
        table = loaded.get(key_of(names.table))
        if table is None:
            continue
        shape = shapes.get(table)
        now = _record_now(load, table, shape)
        known: dict[str, Any] = {}
        for old in names.tables:
            recorded = _recorded(store, target.config, old) if old.schema else None
            # While an entry has the old name, it counts: the record does not know columns that came since. A name with neither
            # masks nothing.
            is_unlike = recorded is not None and not _agree(recorded, now)
            if not old.schema or unsalted(target.config, old) is not None or is_unlike:
                _refuse_rename(target.config, old, table, "before the end of the window")
            known |= {} if recorded is None else recorded["columns"]
        own = _recorded(store, target.config, table)
        _refuse_former_columns(
            shape or Shape(table, ShapeSection(tables=(str(table),))),
            names,
            known | ({} if own is None else own["columns"]),
            now,
        )


def _refuse_former_columns(shape: Shape, names: FormerNames, known: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name, former in names.columns.items():
        for column in former if name in now["columns"] else ():
            is_alike = (
                _treated(known[column]) == _treated(now["columns"][name])
                if column in known
                else shape.treats_alike(column, name) or (shape.has(column) and shape.treatment_of(column).is_plain)
            )
            if not is_alike:
                raise shape.unlike(column, name)


def _refuse_unknown_names(load: Load, shapes: Mapping[TableName, Shape]) -> None:
    """Raise ConfigError for an exact name in a shape that no column has of a table with whole rows, whose columns they show: the
    column that it means would be plain. ``Shape.schema`` does the same where a definition shows them."""
    for version in load.index.tables:
        shape = shapes.get(version.schema.name)
        lacking = None if shape is None else shape.lacking(version.schema)
        if lacking is not None and _has_puts(load, version):
            raise lacking


def _has_puts(load: Load, version: TableVersion) -> bool:
    """Whether rows of *version* are no deletes, by the statistics of its files."""
    filesystem, root = load.artifacts.open().arrow_filesystem()
    for file in version.files:
        name = load.file_name(file, table=version.schema.name)
        with file_errors(f"read {name}"):
            metadata = pq.read_metadata(f"{root}/{name}", filesystem=filesystem)
        paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
        for group in range(metadata.num_row_groups):
            found = metadata.row_group(group).column(paths.index("_op")).statistics
            if found is None or not found.has_min_max or (found.min, found.max) != ("delete", "delete"):
                return True
    return False


def _require_same(store: ObjectStore, load: Load, target: AnyTarget, shapes: Mapping[TableName, Shape]) -> None:
    """Record what becomes of each column at the first load of a table that has it; refuse anything else later: the rows that are
    there have that."""
    known = {info.name for info in store.list(f"{_RECORDS}/")}
    _refuse_moving(known, load, target)
    for table in load.tables:
        name, shape = record_of(target.config, table), shapes.get(table)
        if shape is None and name not in known:
            continue
        now = _record_now(load, table, shape)
        recorded = _recorded(store, target.config, table) if name in known else None
        if recorded is not None and _agree(recorded, now):
            now["columns"] = {**recorded["columns"], **now["columns"]}
            now["key"] = sorted({*recorded.get("key", ()), *now["key"]})
            now["salt"] = recorded["salt"] or now["salt"]
            if now == recorded:
                continue
        elif target.holds(load.index.pipeline, table):
            raise TargetMismatchError(
                f"{table}: target {load.target} was loaded with another `shape`, or another salt, or none, or by another "
                f"pipeline. Give the shape back; or, for a mirror, run `ticdc-replay mirror rebuild` for {table}; or drop the "
                "table, run `ticdc-replay mirror forget`, seed it if a base load has filled it, and load its windows again"
            )
        store.put(name, canonical.encode(now))


def _recorded(store: ObjectStore, section: TargetSection, table: TableName) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = msgspec.json.decode(store.get(record_of(section, table)))
    except ArtifactNotFoundError:
        return None
    return found


def _record_now(load: Load, table: TableName, shape: Shape | None) -> dict[str, Any]:
    """What becomes of the columns of *table* in *load*. A changed salt shows, and can't be found from it."""
    names = sorted({column.name for schema in _schemas_of(load.index, table) for column in schema.columns})
    if shape is None:
        columns = {folded(name): [name, "mask", None, None] for name in names}
        return {"columns": columns, "constants": {}, "key": [], "salt": None}
    columns = shape.record(names)
    salt = Shape.fingerprint_of(shape.salt) if any(map(_is_hashed, columns.values())) else None
    return {
        "columns": columns,
        "constants": dict(shape.section.constants),
        "key": sorted(shape.key_columns),
        "salt": salt,
    }


def _schemas_of(index: ChangelogIndex, table: TableName) -> list[TableSchema]:
    """The schemas of *table* that *index* has, those of its creations included."""
    created = [
        change.schema
        for entry in index.changes
        for change in entry.changes
        if entry.table == table and isinstance(change, TableCreated) and change.schema is not None
    ]
    return [*(version.schema for version in index.versions_of(table)), *created]


def _treated(column: list[Any] | None) -> list[Any] | None:
    """What becomes of the values of *column* of a record, whatever its name."""
    return column and column[1:]


def _agree(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether both treat alike what both know. A column that is left out is known only as long as it is not found in the key."""
    before, after = recorded["columns"], now["columns"]
    shared = before.keys() & after.keys()
    alike = (name for name in shared if _in_one_case(name, before[name]) == _in_one_case(name, after[name]))
    return (
        all(before[name] is None and name in now["key"] for name in shared.difference(alike))
        and recorded["constants"] == now["constants"]
        and (recorded["salt"] == now["salt"] or None in (recorded["salt"], now["salt"]))
    )


def _in_one_case(name: str, column: list[Any] | None) -> list[Any] | None:
    """*column* of a record, called *name* upstream: its own name, which has no letter case there, as ``folded`` has it."""
    return [name, *column[1:]] if column is not None and folded(column[0]) == name else column


def _is_hashed(column: list[Any] | None) -> bool:
    return column is not None and column[1:3] == ["mask", "hash"]


def _version(version: TableVersion, shapes: Mapping[TableName, Shape]) -> TableVersion:
    shape = shapes.get(version.schema.name)
    return version if shape is None else msgspec.structs.replace(version, schema=shape.schema(version.schema))


def _shaped_ddl(index: ChangelogIndex, shapes: Mapping[TableName, Shape]) -> tuple[Ddl, ...]:
    """The DDL of *index*, without the texts that may hold values of a table which hides some."""
    hiding = {key_of(table) for table, shape in shapes.items() if shape.hides}
    moments = {entry.commit_ts for entry in index.changes if key_of(entry.table) in hiding}
    return tuple(
        _without_text(ddl)
        if key_of(TableName(ddl.schema, ddl.table)) in hiding
        or (ddl.commit_ts in moments and _altered_by(ddl) in hiding)
        else ddl
        for ddl in index.ddl
    )


def without_unclear_texts(section: TargetSection, index: ChangelogIndex) -> ChangelogIndex:
    """*index* without the texts of DDL that may be of any table, if *section* hides values of some: those that are not
    understood, or leave out a schema. Such a DDL may give a table another name, and its event has the new one."""
    if not any(entry.hides for entry in section.shape):
        return index
    unclear = {ddl for ddl in index.ddl if (parsed := ParsedDdl(ddl.event)).statement is None or parsed.taken}
    moments = {ddl.commit_ts for ddl in unclear}
    return msgspec.structs.replace(
        index,
        ddl=tuple(_without_text(ddl) if ddl in unclear else ddl for ddl in index.ddl),
        changes=tuple(_without_texts(entry) if entry.commit_ts in moments else entry for entry in index.changes),
    )


def _without_texts(entry: TableChanges) -> TableChanges:
    changes = (
        without_text(change) if isinstance(change, BreakingChange) and change.kind == "not_understood" else change
        for change in entry.changes
    )
    return msgspec.structs.replace(entry, changes=tuple(changes))


def _altered_by(ddl: Ddl) -> TableKey | None:
    """The table that *ddl* alters, by its text: the event of an ALTER TABLE with RENAME TO has the new name."""
    match ParsedDdl(ddl.event).statement:
        case AlterTable((schema, table)):
            return key_of(TableName(ddl.schema if schema is None else schema, table))
    return None


def _without_text(ddl: Ddl) -> Ddl:
    return msgspec.structs.replace(ddl, query=_renames_of(ddl) or DDL_NOT_SHOWN)


def _renames_of(ddl: Ddl) -> str:
    """What *ddl* does to names of tables, written anew: names have no values, and tell other tables what became of them."""
    match ParsedDdl(ddl.event).statement:
        case RenameTables(pairs):
            return f"RENAME TABLE {', '.join(f'{_written(old)} TO {_written(new)}' for old, new in pairs)}"
        case AlterTable(name, actions):
            renames = [f"RENAME TO {_written(action.to)}" for action in actions if isinstance(action, RenameTo)]
            rest = [] if len(renames) == len(actions) else [f"/* {DDL_NOT_SHOWN} */"]
            return " ".join((f"ALTER TABLE {_written(name)}", *renames, *rest)) if renames else ""
    return ""


def _written(name: QualifiedName) -> str:
    return ".".join(identifier(part) for part in name if part is not None)
