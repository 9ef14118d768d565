"""What is true of Simple besides its bytes."""

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried, ProtocolTraits


def _carries(changefeed: Changefeed) -> Carried:
    everywhere = changefeed.send_bootstrap_to_all_partition
    return Carried("rows", watermarks=True, ddl="every partition" if everywhere else "first partition", old_keys=True)


TRAITS = ProtocolTraits(
    name="simple",
    codec="ticdc_replay.codecs.simple.codec:SimpleCodec",
    carries=_carries,
    rows_per_core=40_000,
    rows_per_core_by_encoding={"avro": 12_000},
    places_rows=True,
    large_messages=("handle-key-only", "claim-check"),
    has_encodings=True,
)
