"""What each kind of target does about each kind of DDL: the one place that says so.

The mirror asks it which changes to follow, the check which of them will stop a load, and the table in docs/targets.md is
held against it by a test.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.schemas.changes import ChangeKind

Outcome = Literal["apply", "nothing", "list", "stop", "rebuild"]
"""``apply``: the target is changed as the upstream was. ``nothing``: there is nothing to do. ``list``: the change is told
beside the rows, which stay. ``stop``: nothing is loaded until a person has done to the target what the DDL did. ``rebuild``: the
same, and only a dump of the upstream tells the rows."""

DdlPolicy = Literal["ddl", "truncate", "drop"]
"""Keys of ``policies`` with ``apply`` or ``stop``."""


class Rule(msgspec.Struct, frozen=True):
    """What a kind of target does about one kind of change."""

    outcome: Outcome
    remedy: str = ""
    """What a person does to the target where the load stops."""
    policy: DdlPolicy | None = None
    """The policy that can have the load stop instead."""

    def stops(self, stopping: frozenset[DdlPolicy]) -> bool:
        """Whether a load stops, where the policies of *stopping* say so."""
        return self.outcome in ("stop", "rebuild") or self.policy in stopping


_FILL_ANEW = "fill its mirror anew from a dump of the upstream at or after this commitTs"

_MIRROR: Mapping[ChangeKind, Rule] = {
    "no_row_change": Rule("nothing"),
    "table_created": Rule("apply"),
    "column_added": Rule("apply", "add the column to its mirror", "ddl"),
    "column_computed": Rule("stop", "add the column to its mirror, filled with what the upstream shows in older rows"),
    "column_widened": Rule("apply", "change the column of its mirror", "ddl"),
    "truncated": Rule("apply", "delete the rows of its mirror up to this commitTs", "truncate"),
    "dropped": Rule("apply", "drop its mirror, or delete its rows up to this commitTs where it has newer ones", "drop"),
    "renamed_away": Rule("stop", "rename its mirror where the new name is mirrored too, else drop it"),
    "renamed_here": Rule("stop", "rename the mirror of the old name where there is one, else " + _FILL_ANEW),
    "recovered": Rule("rebuild", _FILL_ANEW),
    "column_dropped": Rule("stop", "drop the column of its mirror"),
    "column_renamed": Rule("stop", "rename the column of its mirror"),
    "column_changed": Rule("stop", "change the column of its mirror; where that altered values, " + _FILL_ANEW),
    "key_changed": Rule("stop", "give its mirror this primary key; where its rows can't have it, " + _FILL_ANEW),
    "partition_emptied": Rule("rebuild", _FILL_ANEW),
    "exchanged": Rule("rebuild", _FILL_ANEW),
    "not_understood": Rule("stop", "do to its mirror what the DDL did, or " + _FILL_ANEW),
}

_FILES: Mapping[ChangeKind, Rule] = dict.fromkeys(_MIRROR, Rule("list"))

RULES: Mapping[str, Mapping[ChangeKind, Rule]] = {"postgres": _MIRROR, "parquet": _FILES}
"""By the type of the target."""


def stopping_policies(ddl: str, truncate: str, drop: str) -> frozenset[DdlPolicy]:
    """Those of the policies that stop loads: with *ddl* ``stop`` all of them."""
    if ddl == "stop":
        return frozenset(("ddl", "truncate", "drop"))
    asked: dict[DdlPolicy, str] = {"truncate": truncate, "drop": drop}
    return frozenset(name for name, value in asked.items() if value == "stop")


def stop_text(table: TableName, commit_ts: int, what: str, rule: Rule) -> str:
    """One line that says which change of *table* stops a load, and what a person does about it."""
    return f"{table} at {describe(commit_ts)}: {what}: {rule.remedy}"
