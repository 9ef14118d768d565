"""The result of a whole scan: the file that marks it as done, and the part that is kept across reconciliations."""

import msgspec

from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.reconcile.look.scan import ScanCounts
from ticdc_replay.state.references import ScannedRange
from ticdc_replay.state.store import StateStore


class ScannedFeed(msgspec.Struct, frozen=True, kw_only=True):
    """The scan of one pipeline's changefeed."""

    pipeline: str
    scanned: tuple[ScannedRange, ...]
    unsearched: tuple[OffsetRange, ...]
    """Messages that may hold a reference which could not be found. As long as Kafka holds one, nothing may be deleted."""
    counts: ScanCounts


class ScanReport(msgspec.Struct, frozen=True, kw_only=True):
    """A complete scan, put once, last: the references are in the files that it names, below the root of the store's artefacts."""

    format: int = 1
    store: str
    scan_hash: str
    feeds: tuple[ScannedFeed, ...]

    def files(self) -> tuple[str, ...]:
        """The files of references (``records.REFERENCES``), sorted."""
        return tuple(sorted({part.file for feed in self.feeds for part in feed.scanned if part.file is not None}))


def decode(content: bytes) -> ScanReport:
    """A report from its JSON. Raises msgspec.ValidationError with the path inside the document."""
    return msgspec.json.decode(content, type=ScanReport)


def record_scan(state: StateStore, report: ScanReport) -> None:
    """Note what was scanned, so that no later reconciliation scans it again. Safe to repeat."""
    state.references.record_scans([part for feed in report.feeds for part in feed.scanned])
