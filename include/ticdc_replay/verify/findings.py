"""What a comparison found of one table, so far or at its end."""

from typing import Literal

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.verify.side import Digest, Key

MOST_LISTED = 1_000
"""Differing rows of a table that are looked for and listed. Ranges that differ after these are counted."""


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row that differs: the mirror lacks it, only the mirror has it, or ``columns`` have other values. Of several rows of a
    mirror with one key, all but one are ``extra``."""

    kind: Literal["missing", "extra", "changed"]
    key: tuple[str, ...]
    """Canonical texts of the key's columns, in the order of ``TableVerification.key``; bytes as hex."""
    columns: tuple[str, ...] = ()
    """Of a changed row, as the source calls them."""
    version: int = 0
    """commitTs (TSO) of the row in the mirror; of a missing row that of its delete in the mirror, 0 if none is known."""
    window: Window | None = None
    """The loaded window that ``version`` is in, if one is known; None below the floor, as no window brings such rows."""


class Findings(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was compared up to the key ``reached`` (exclusive), or in full if ``ended``."""

    reached: tuple[str, ...] | None = None
    ended: bool = False
    ranges: int = 0
    source_rows: int = 0
    mirror_rows: int = 0
    missing: int = 0
    extra: int = 0
    changed: int = 0
    newer: int = 0
    """Rows with a version in the mirror above the TSO, deletes too: they can't be compared."""
    unexamined: int = 0
    """Ranges that differ, and whose rows were not looked at, or do not explain how many rows each side has."""
    differences: tuple[Difference, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs, apart from newer rows."""
        return not (self.missing or self.extra or self.changed or self.unexamined)

    def with_rows(self, found: "list[Difference]", newer: int) -> "Findings":
        """With rows that differ, and how many newer ones there are."""
        kinds = [difference.kind for difference in found]
        return msgspec.structs.replace(
            self,
            missing=self.missing + kinds.count("missing"),
            extra=self.extra + kinds.count("extra"),
            changed=self.changed + kinds.count("changed"),
            newer=self.newer + newer,
            differences=(*self.differences, *found)[:MOST_LISTED],
        )


class RangeDigest(msgspec.Struct, frozen=True):
    """What a source has of a range of keys, which begins where the one before it ends; ``upper`` is None for the last range."""

    upper: Key | None
    digest: Digest


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a comparison has come: what it found, and ranges after it of which the source alone was read."""

    findings: Findings = Findings()
    ahead: tuple[RangeDigest, ...] = ()

    @property
    def source_rows(self) -> int:
        """Rows of the source that were read."""
        return self.findings.source_rows + sum(each.digest.rows for each in self.ahead)


class TableVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one table."""

    table: TableName
    mirror: str
    at: int
    """The TSO as of which the source was read."""
    version: str = ""
    """The snapshot id or version of the mirror that was compared; empty if that of each statement was."""
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
