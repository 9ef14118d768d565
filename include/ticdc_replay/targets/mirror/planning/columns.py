"""The columns and keys of a mirror table, from all versions of a window. What does not go together is added to *conflicts*."""

from ticdc_replay.changelog.files.index import TableVersion
from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, ColumnType
from ticdc_replay.domain.limits import BAD_NAME, refused_columns
from ticdc_replay.domain.tables import folded
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.window_ddl import PlannedColumn


def one_handle_key(versions: list[TableVersion], conflicts: list[str]) -> tuple[str, ...]:
    """What rows of *versions* are identified by; empty for no key."""
    keys = {version.schema.handle_key for version in versions}
    if len(keys) > 1:
        described = " and ".join(", ".join(key) or "no key" for key in sorted(keys))
        conflicts.append(f"within the window rows are identified by {described}")
    # Rows without key stand beside rows with one: no reason to take the table for one that a mirror can't hold.
    return next((version.schema.handle_key for version in reversed(versions) if version.schema.handle_key), ())


def columns_of(
    versions: list[TableVersion],
    handle_key: tuple[str, ...],
    dialect: Dialect,
    version_column: str,
    version_option: str,
    conflicts: list[str],
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
            wanted = dialect.type_of(column.type, in_key=column.name in handle_key)
            known = types.setdefault(column.name, wanted)
            both = dialect.wider(known, wanted)
            if both is None:
                conflicts.append(
                    f"column {column.name} is {wanted} in older rows of the window and {known} in newer ones"
                )
            types[column.name] = both or known
    targets = [dialect.fit_column(name) for name in types]
    taken = {name for name in targets if targets.count(name) > 1 or name == version_column}
    if taken:
        conflicts.append(
            f"the mirror would have two columns {', '.join(sorted(taken))}: "
            f"set {version_option} of the target to a name that no table has"
        )
    if (refusal := refused_columns(types)) is not None and refusal[0] == BAD_NAME:
        conflicts.append(
            f"{refusal[1]}: an earlier version wrote damaged rows; pin the window again (repin) to set them aside"
        )
    return tuple(
        PlannedColumn(name, target, f"c{at}", type_name)
        for at, ((name, type_name), target) in enumerate(zip(types.items(), targets, strict=True))
    )


def unique_keys(
    newest: TableVersion | None, columns: tuple[PlannedColumn, ...], max_bytes: int
) -> tuple[tuple[str, ...], ...]:
    """The secondary unique keys of *newest*, by names in the mirror, whose entries have at most *max_bytes*."""
    if newest is None:
        return ()
    # The keys are named as the definition spells them, the columns as the rows do.
    own = {column.name for column in newest.schema.columns}
    targets = {folded(column.source): column.target for column in columns if column.source in own}
    widths = {folded(column.name): _index_bytes(column.type, max_bytes) for column in newest.schema.columns}
    handle_key = sorted(map(folded, newest.schema.handle_key))
    keys = [tuple(map(folded, key)) for key in newest.schema.unique_keys]
    return tuple(
        tuple(targets[name] for name in key)
        for key in keys
        if sorted(key) != handle_key
        and all(name in targets for name in key)
        and sum(widths[name] for name in key) <= max_bytes
    )


def _index_bytes(column_type: ColumnType, unbounded: int) -> int:
    """How many bytes a value takes in an index at most; more than *unbounded* where it has no bounds."""
    base = column_type.base
    if base in CHARACTER_TYPES or base in BINARY_TYPES or base in ("json", "vector"):
        bytes_each = 1 if base in BINARY_TYPES else 4
        return unbounded + 1 if column_type.length is None else column_type.length * bytes_each
    return 64
