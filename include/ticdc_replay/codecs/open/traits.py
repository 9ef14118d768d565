"""What is true of Open Protocol besides its bytes."""

from collections.abc import Iterator

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried, ProtocolTraits, Refusal


def _carries(changefeed: Changefeed) -> Carried:
    return Carried("rows", watermarks=True, ddl="every partition", old_keys=changefeed.output_old_value)


def _refuses(changefeed: Changefeed) -> Iterator[Refusal]:
    """What TiCDC accepts for another protocol, and refuses for Open Protocol."""
    if changefeed.claim_check_raw_value:
        key = "sink.kafka-config.large-message-handle.claim-check-raw-value"
        yield Refusal(key, "TiCDC refuses it with open-protocol")


TRAITS = ProtocolTraits(
    name="open-protocol",
    aliases=("default",),
    codec="ticdc_replay.codecs.open.codec:OpenCodec",
    carries=_carries,
    rows_per_core=45_000,
    places_rows=True,
    native="ticdc_replay.codecs.open.native:native_reader",
    large_messages=("handle-key-only", "claim-check"),
    refuses=_refuses,
    has_enable_old_value=True,
)
