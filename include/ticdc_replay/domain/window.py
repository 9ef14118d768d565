"""A window: the half-open range of commit timestamps that one run replays."""

from typing import Literal

import msgspec

from ticdc_replay.domain import tso

Grade = Literal["proven", "unproven", "offset"]
"""Whether a window was shown to be complete in what its manifest pins. ``offset``: not all rows carry a commitTs, so
the window is what Kafka recorded in its time, whenever it committed."""

PinPolicy = Literal["first", "head"]
"""Where a window ends in a partition: after the ``first`` resolved-ts that completes it, or at the ``head`` when it is
pinned, which includes copies sent later."""

GRADES: tuple[Grade, ...] = ("proven", "unproven", "offset")
"""From the strongest to the weakest."""


class Window(msgspec.Struct, frozen=True, order=True):
    """``[from_ts, to_ts)`` in TSO. Events belong to it by commitTs alone. Raises ValueError for an empty or negative range."""

    from_ts: int
    to_ts: int

    def __post_init__(self) -> None:
        if self.from_ts < 0 or self.to_ts > tso.MAX_TSO:
            raise ValueError(f"{self.from_ts} to {self.to_ts} is not within the TSOs, 0 to {tso.MAX_TSO}")
        if self.from_ts >= self.to_ts:
            raise ValueError(f"the start {tso.describe(self.from_ts)} is not before the end {tso.describe(self.to_ts)}")

    def __contains__(self, commit_ts: int) -> bool:
        return self.from_ts <= commit_ts < self.to_ts

    def __str__(self) -> str:
        return f"[{tso.describe(self.from_ts)}, {tso.describe(self.to_ts)})"


ALL_TIME = Window(0, tso.MAX_TSO)
"""Every commitTs that a row can have belongs to it."""
