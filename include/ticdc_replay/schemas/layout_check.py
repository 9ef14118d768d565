"""Whether rows look as their table's definition lets them: what a damaged or foreign message says, no table has.

Only a definition that is known by DDL from the CREATE TABLE on is used, and only what it says for certain. Settings
outside the DDL are unknown: the charset of the database decides whether text is bytes, the SQL mode whether REAL is FLOAT and a
long VARCHAR a TEXT. So types that they decide are not judged, nor the key of a table without primary key, unless it can't be one.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.domain.events import Shape, WireColumn
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.schemas.history import KnownTable

_HIDDEN = ("_tidb_", "_v$_")
"""What the names of columns begin with that TiDB makes by itself, whatever the DDL says of columns."""
_SHOWN = 5


class LayoutCheck(NamedTuple):
    """What is compared with the layouts of rows. It costs some microseconds for each pair of layout and definition."""

    complete: bool
    """Whether whole rows have all columns but virtual ones: not where column selectors may drop some."""

    @classmethod
    def of(cls, changefeed: Changefeed) -> "LayoutCheck | None":
        """The check of rows of *changefeed*; None where its names are not those of the DDL."""
        return None if changefeed.traits.avro_names else cls(complete=not changefeed.dispatch.selectors)

    def difference(
        self, known: KnownTable, columns: Iterable[WireColumn], handle_key: tuple[str, ...], whole: Shape | None
    ) -> str:
        """Why no row of the table that is *known* has *columns* and *handle_key*; "" where one may.

        *columns* are those of both its images, *handle_key* is sorted. *whole* is the image that should lack no column; None if
        both may.
        """
        if not known.from_ddl:
            return ""
        defined = {folded(column.name): column for column in known.schema.columns}
        found = []
        for column in columns:
            name = folded(column.name)
            its = defined.get(name)
            if its is None:
                if not name.startswith(_HIDDEN):
                    found.append(f"it has no column {column.name}")
            elif its.name != column.name:
                found.append(f"its column {its.name} is not spelled {column.name}")
            elif not _may_be(its.type, column.type):
                found.append(f"its column {column.name} is {its.type}, not {column.type}")
        if self.complete and whole is not None:
            sent = set(map(folded, whole.names))
            lacking = [column.name for name, column in defined.items() if name not in sent]
            found += [f"its column {name} is lacking" for name in lacking]
        own = known.schema.handle_key
        # Of a key of which a selector drops a column TiCDC marks the rest, which several rows may share.
        judged = self.complete or (handle_key and set(handle_key) < set(own))
        if known.has_primary_key and judged and handle_key != own:
            found.append(f"its rows are identified by {', '.join(own)}, not by {', '.join(handle_key) or 'nothing'}")
        if handle_key in known.partial_keys:  # which TiCDC takes for a key of all rows (8.5.7)
            found.append(
                f"its unique index over {', '.join(handle_key)} has a condition, so that several rows may share a key"
            )
        if not found:
            return ""
        shown = found[:_SHOWN] + ([f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else [])
        since = describe(known.schema.valid_from)
        return f"{known.schema.name}, as its DDL up to {since} defines it, has no such row: {'; '.join(shown)}"


def gone(table: TableName, dropped_ts: int) -> str:
    """Why *table*, which a DDL of *dropped_ts* (TSO) dropped, has no rows."""
    return (
        f"{table} was dropped at {describe(dropped_ts)}, and has no rows since: no DDL made it again, or brought it "
        "back by RECOVER or FLASHBACK TABLE"
    )


def _may_be(declared: ColumnType, wire: ColumnType) -> bool:
    if declared.base in INTEGER_TYPES and wire.base in INTEGER_TYPES:
        return (declared.base, declared.unsigned) == (wire.base, wire.unsigned)
    return _kind(declared) == _kind(wire)


def _kind(column_type: ColumnType) -> str:
    base = column_type.base
    if base in CHARACTER_TYPES or base in BINARY_TYPES:
        return "text or bytes"
    return "float" if base == "double" else base
