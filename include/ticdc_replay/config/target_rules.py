"""What a kind of target does about each kind of DDL: the outcome, and what a person does if the load stops."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from ticdc_replay.domain.ddl_kinds import ChangeKind

DdlOutcome = Literal["apply", "nothing", "list", "stop", "rebuild"]
"""``apply``: the target changes as the upstream did. ``nothing``: no effect. ``list``: the change is listed beside the
rows, which stay. ``stop``: nothing is loaded until a person does to the target what the DDL did. ``rebuild``: the same,
but only a dump of the upstream has the rows."""

DdlPolicy = Literal["ddl", "truncate", "drop", "drop_column"]
"""Keys of ``policies`` with ``apply`` or ``stop``."""

DropColumn = Literal["stop", "keep", "apply"]
"""What a mirror does about DROP COLUMN."""


class DdlRule(msgspec.Struct, frozen=True):
    """What a kind of target does about one kind of change."""

    outcome: DdlOutcome
    remedy: str = ""
    """What a person does to the target if the load stops."""
    policy: DdlPolicy | None = None
    """The policy that can have the load stop instead."""

    def stops(self, stopping: frozenset[DdlPolicy]) -> bool:
        """Whether a load stops, if the policies of *stopping* say so."""
        return self.outcome in ("stop", "rebuild") or self.policy in stopping


Rules = Mapping[ChangeKind, DdlRule]
"""One for every kind of change."""

REBUILD = "rebuild its mirror from a dump of the upstream at or after this commitTs"

MIRROR: Rules = {
    "no_row_change": DdlRule("nothing"),
    "table_created": DdlRule("apply"),
    "column_added": DdlRule("apply", "add the column to its mirror", "ddl"),
    "column_computed": DdlRule(
        "stop",
        "add the column to its mirror, filled with what the upstream shows in older rows, masked or cast as its `shape` says",
    ),
    "column_widened": DdlRule("apply", "change the column of its mirror", "ddl"),
    "truncated": DdlRule("apply", "delete the rows of its mirror up to this commitTs", "truncate"),
    "dropped": DdlRule("apply", "drop its mirror, or delete its rows up to this commitTs if it has newer ones", "drop"),
    "renamed_away": DdlRule("stop", "rename its mirror if the new name is mirrored too, else drop it"),
    "renamed_here": DdlRule("stop", "rename the mirror of the old name if there is one, else " + REBUILD),
    "recovered": DdlRule("rebuild", REBUILD),
    "column_dropped": DdlRule("apply", "drop the column of its mirror", "drop"),
    "column_renamed": DdlRule("apply", "rename the column of its mirror", "ddl"),
    "column_changed": DdlRule("stop", "change the column of its mirror; if that altered values, " + REBUILD),
    "column_narrowed": DdlRule(
        "stop", "leave the column of its mirror as it is if all rows fit the new type; else " + REBUILD
    ),
    "key_changed": DdlRule("stop", "give its mirror this primary key; if its rows can't have it, " + REBUILD),
    "partition_emptied": DdlRule("rebuild", REBUILD),
    "exchanged": DdlRule("rebuild", REBUILD),
    "not_understood": DdlRule("stop", "do to its mirror what the DDL did, or " + REBUILD),
}
"""Of a mirror that loads bring to the upstream's form."""

HISTORY: Rules = dict.fromkeys(MIRROR, DdlRule("list"))
"""Of a target that keeps what every window brought: nothing stops its loads."""


def with_drop_column(rules: Rules, policy: DropColumn | None) -> Rules:
    """*rules*, if ``policies.drop_column`` is *policy*; without it ``policies.drop`` decides on DROP COLUMN, too."""
    rule = rules["column_dropped"]
    if policy is None or rule.policy is None:
        return rules
    return {**rules, "column_dropped": msgspec.structs.replace(rule, policy="drop_column")}
