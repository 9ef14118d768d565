"""The view of a history that has an interval of commitTs for each row version (slowly changing dimension, type 2)."""

from collections.abc import Iterable

from ticdc_replay.targets.history.rows import OWN as OWN_OF_HISTORY

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
OWN = (VALID_FROM, VALID_TO, "valid_from_time", "valid_to_time", IS_CURRENT)
"""Columns of the view beside those of the upstream."""


def columns_of(history: Iterable[str], commit_ts: str) -> list[str]:
    """The columns of the view over a history with the columns *history*."""
    return [*(name for name in history if name not in OWN_OF_HISTORY and name != commit_ts), *OWN]
