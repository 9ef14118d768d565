"""What is true of Plain-JSON besides its bytes."""

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried, ProtocolTraits


def carries(changefeed: Changefeed) -> Carried:
    """What messages carry: everything, whatever the options."""
    return Carried("rows", watermarks=True, ddl="every partition", old_keys=True)


TRAITS = ProtocolTraits(
    name="plain-json", codec="plain_json.codec:PlainJsonCodec", carries=carries, rows_per_core=12_345, places_rows=True
)
