"""In which forms newer releases write numbers and bytes of Debezium's JSON: options of the changefeed."""

from typing import Literal, NamedTuple

from msgspec import UNSET

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.domain.column_types import BaseType


class Modes(NamedTuple):
    """What a changefeed says of cells. The schema block shows numbers that are text, and not how bytes are text."""

    texts: frozenset[BaseType] = frozenset()
    """Of decimal and bigint (unsigned), those whose cells are text, with all digits."""
    binary: Literal["base64", "base64-url-safe", "hex"] = "base64"


BY_DEFAULT = Modes()
"""What all releases do by themselves, and Debezium-Avro always."""


def modes_of(changefeed: Changefeed) -> Modes:
    """The forms that *changefeed* asks for."""
    texts: set[BaseType] = set()
    if changefeed.debezium_decimal_handling_mode == "string":
        texts.add("decimal")
    if changefeed.debezium_bigint_unsigned_handling_mode == "string":
        texts.add("bigint")
    binary = changefeed.debezium_binary_handling_mode
    return Modes(frozenset(texts), "base64" if binary is UNSET else binary)
