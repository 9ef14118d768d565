"""The kinds of change that a DDL makes to a table, by which targets distinguish changes (``schemas.changes``)."""

from typing import Literal

BreakingKind = Literal[
    "truncated", "dropped", "renamed_away", "renamed_here", "recovered", "column_dropped", "column_renamed", "column_changed",
    "column_narrowed", "key_changed", "partition_emptied", "exchanged", "not_understood",
]  # fmt: skip

ChangeKind = Literal[
    "no_row_change", "table_created", "column_added", "column_computed", "column_widened", BreakingKind
]
"""Also harmless kinds. ``column_computed``: a column was added, and what older rows have in it is not known."""
