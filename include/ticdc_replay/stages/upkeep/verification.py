"""The report of a comparison of mirrors with their source."""

from typing import Literal

import msgspec

from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.verify.findings import Findings


class TableVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one table."""

    table: TableName
    mirror: str
    at: int
    """The TSO as of which the source was read."""
    key: tuple[str, ...] = ()
    """The key's columns, in the order of the keys of differences."""
    columns: int = 0
    """How many columns were compared."""
    problems: tuple[str, ...] = ()
    """What of the table as a whole differs, such as a column that one side lacks."""
    notes: tuple[str, ...] = ()
    """What explains differences, such as windows that are not loaded."""
    findings: Findings = Findings()
    seconds: float = 0.0

    @property
    def outcome(self) -> Literal["equal", "differs"]:
        """Rows that are newer than the TSO do not count."""
        return "equal" if not self.problems and self.findings.is_equal else "differs"


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
            lines.append(
                "; ".join([f"{table.table} as of {describe(table.at)}: {counts}", *table.problems, *table.notes])
            )
    if lines:
        raise PolicyStopError(
            f"{report.target} is not what the upstream was:\n- "
            + "\n- ".join(lines)
            + f"\nThe report {uri} lists rows, with their versions and windows. Load these windows again (reload), then verify"
        )


def folder_of(target: str) -> str:
    """Where the reports of *target* are, in the pipeline's artefacts."""
    return f"verifications/{target}"
