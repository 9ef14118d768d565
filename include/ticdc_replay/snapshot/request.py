"""What is asked for when a window is pinned or waited for."""

from typing import Literal

import msgspec

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain import tso
from ticdc_replay.domain.window import PinPolicy, Window
from ticdc_replay.kafka.offsets import Partition
from ticdc_replay.registry import UsedSchemas
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import FixedWriterSchemas, SchemaLookup, WriterSchemas


class PinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One window of one pipeline."""

    pipeline: str
    changefeed: Changefeed
    window: Window
    pin: PinPolicy = "first"
    tables: tuple[str, ...]
    """Patterns of the tables that are wanted: of topics that rules name, only those that may hold one are looked at."""
    retired_topics: dict[str, int | None] = {}
    """Topics that get no resolved-ts: with the TSO after which nothing was sent to them, or None for topics of others."""
    start_ts: int | None
    """The changefeed's start-ts (TSO), where the pipeline declares it. It bears on the proof only, not on what is read."""
    target_ts: int | None = None
    """The changefeed's target-ts (TSO), where it is declared: the last resolved-ts that it sends."""
    pre_roll_ms: int
    """How much is read before the window's start, to measure clocks by."""
    clock_skew_ms: int
    """Clocks of TiDB, TiCDC and the brokers differ by at most this."""
    ends_by_time: bool = False
    """Whether TiCDC sends no resolved-ts, so that the window ends by time and can't be proven."""
    by_offset: bool = False
    """Whether not all rows carry a commitTs: then the window is what was recorded in its time, and ends by time too."""
    lag_ms: int
    """How long after the end of such a window its rows are waited for."""
    claim_check_margin_ms: int
    """How long an object may be older than the window that refers to it."""
    list_store: bool
    unproven: Literal["stop", "allow"]
    decompressed_max_bytes: int
    schemas: SchemaHistory
    """The table schemas that are known before the range is read. Where resolved-ts are sent, all DDL below the window's start
    must be in them."""
    writer_schemas: WriterSchemas = FixedWriterSchemas()
    """The schema registry."""

    @property
    def resolved_ts(self) -> int:
        """The resolved-ts (TSO) that completes the window."""
        return self.window.to_ts if self.target_ts is None else min(self.window.to_ts, self.target_ts)

    @property
    def ends_with_changefeed(self) -> bool:
        """Whether the window holds the changefeed's target-ts: then no resolved-ts follows its last DDL.

        Classic TiCDC may send the resolved-ts W before a DDL with the commitTs W; rows of W come before it.
        Elsewhere that DDL belongs to the next window.
        """
        return self.resolved_ts < self.window.to_ts

    @property
    def ends_at_head(self) -> bool:
        """Whether a partition is read to its end, past the resolved-ts that completes the window."""
        return self.pin == "head" or self.ends_with_changefeed

    @property
    def needed_from_ms(self) -> int:
        """No row of the window has a record time before this: it is produced after it commits, up to clock skew."""
        if self.by_offset:
            return tso.physical_ms(self.window.from_ts)
        return max(0, tso.physical_ms(self.window.from_ts) - self.clock_skew_ms)

    @property
    def read_from_ms(self) -> int:
        """Record time at which reading starts."""
        if self.by_offset:
            return self.needed_from_ms
        return max(0, self.needed_from_ms - self.pre_roll_ms)

    @property
    def complete_from_ms(self) -> int:
        """No resolved-ts at or after the window's end has a record time before this."""
        return max(0, tso.physical_ms(self.resolved_ts) - self.clock_skew_ms)

    @property
    def end_ms(self) -> int:
        """Record time of the first record after a window that ends by time."""
        return tso.physical_ms(self.window.to_ts) if self.by_offset else self.over_ms

    @property
    def over_ms(self) -> int:
        """Time of the clock at which a window that ends by time is over: what belongs to it was recorded by then."""
        last_ts = self.window.to_ts if self.by_offset else self.resolved_ts
        return tso.physical_ms(last_ts) + self.clock_skew_ms + self.lag_ms

    def codec(self) -> Codec:
        """A new codec for the changefeed's messages, which knows what the request does of schemas."""
        lookup = SchemaLookup(self.schemas, UsedSchemas(self.writer_schemas))
        return codec_for(self.changefeed, self.decompressed_max_bytes, lookup)

    def is_surplus(self, partition: Partition) -> bool:
        """Whether the sink-uri's partition-num says that TiCDC never writes to *partition*."""
        number = self.changefeed.partition_num
        return number is not None and partition.topic == self.changefeed.topic and partition.number >= number

    def is_used(self, partition: Partition) -> bool:
        """Whether the sink-uri's partition-num says that TiCDC does write to *partition*."""
        number = self.changefeed.partition_num
        return number is not None and partition.topic == self.changefeed.topic and partition.number < number
