"""The report of a comparison of mirrors with their source."""

from typing import Literal

import msgspec

from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.verify.findings import TableVerification


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of a target's mirrors with their source. Times are ms since the epoch."""

    pipeline: str
    target: str
    place: str
    against: Literal["source", "changelogs"] = "source"
    """What the mirrors were compared with: the upstream, or their base and changelogs."""
    began_ms: int
    ended_ms: int
    tables: tuple[TableVerification, ...]
    without_mirror: tuple[TableName, ...] = ()
    """Tables of the upstream that the pipeline and the request name, and that have rows and a key, but no mirror. They are no
    difference: the changefeed's own filter may leave them out."""

    @property
    def name(self) -> str:
        """Of the report in the pipeline's artefacts."""
        return f"{folder_of(self.target)}/{self.ended_ms}.json"

    @property
    def is_equal(self) -> bool:
        """Whether no table differs."""
        return all(table.outcome == "equal" for table in self.tables)


def require_equal(report: Verification, uri: str) -> None:
    """Raise PolicyStopError, which names *uri* of the report and each table that differs, if one does."""
    lines = []
    for table in report.tables:
        if table.outcome == "differs":
            found = table.findings
            counts = f"{found.missing} missing, {found.extra} extra, {found.changed} changed rows"
            if found.unexamined:
                counts += f", {found.unexamined} more ranges that differ"
            lines.append(
                "; ".join([f"{table.table} as of {describe(table.at)}: {counts}", *table.problems, *table.notes])
            )
    if lines:
        raise PolicyStopError(
            f"{report.target} is not what the upstream was:\n- "
            + "\n- ".join(lines)
            + f"\nThe report {uri} lists rows, with their versions and windows. Load these windows again (reload); for rows "
            "without a window, build the mirror again (ticdc-replay mirror rebuild). Then verify"
        )


def folder_of(target: str) -> str:
    """Where the reports of *target* are, in the pipeline's artefacts."""
    return f"verifications/{target}"
