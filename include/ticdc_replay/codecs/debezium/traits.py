"""What is true of Debezium in JSON besides its bytes."""

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried, ProtocolTraits


def _carries(changefeed: Changefeed) -> Carried:
    watermarks, old_keys = changefeed.enable_tidb_extension, changefeed.debezium_output_old_value
    return Carried("rows", watermarks=watermarks, ddl="every partition", old_keys=old_keys)


TRAITS = ProtocolTraits(
    name="debezium",
    codec="ticdc_replay.codecs.debezium.codec:DebeziumCodec",
    carries=_carries,
    rows_per_core=20_000,
    places_rows=True,
)
