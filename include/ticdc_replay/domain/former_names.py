"""The names that a table and its columns had before."""

import msgspec

from ticdc_replay.domain.tables import TableName


class FormerNames(msgspec.Struct, frozen=True):
    """What a table that was renamed, or has columns that were, was called before."""

    table: TableName
    tables: tuple[TableName, ...] = ()
    """Sorted. One has the schema "" if DDL left it out: a table of this name in any schema."""
    columns: dict[str, tuple[str, ...]] = {}
    """Of columns by their name now, in the letter case of ``folded``; each sorted."""
