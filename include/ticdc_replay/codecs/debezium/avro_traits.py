"""What is true of Debezium in Avro besides its bytes."""

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried, ProtocolTraits
from ticdc_replay.codecs.avro.traits import is_test_mode


def _carries(changefeed: Changefeed) -> Carried:
    test_mode, old_keys = is_test_mode(changefeed), changefeed.debezium_output_old_value
    return Carried("rows", test_mode, "every partition" if test_mode else "nowhere", old_keys)


TRAITS = ProtocolTraits(
    name="debezium-avro",
    codec="ticdc_replay.codecs.debezium.avro:DebeziumAvroCodec",
    carries=_carries,
    rows_per_core=10_000,
    needs_registry=True,
)
