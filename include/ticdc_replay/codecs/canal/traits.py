"""What is true of Canal-JSON besides its bytes."""

from collections.abc import Iterator

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried, ProtocolTraits, Refusal


def _carries(changefeed: Changefeed) -> Carried:
    extension = changefeed.enable_tidb_extension
    return Carried("rows" if extension else "nothing", watermarks=extension, ddl="first partition", old_keys=True)


def _refuses(changefeed: Changefeed) -> Iterator[Refusal]:
    """Large messages, as TiCDC refuses them for Canal-JSON without the TiDB extension."""
    if changefeed.large_message != "none" and not changefeed.enable_tidb_extension:
        key = "sink.kafka-config.large-message-handle.large-message-handle-option"
        what = f"{changefeed.large_message!r} with canal-json without enable-tidb-extension=true"
        yield Refusal(key, f"TiCDC refuses {what}")


TRAITS = ProtocolTraits(
    name="canal-json",
    codec="ticdc_replay.codecs.canal.codec:CanalCodec",
    carries=_carries,
    rows_per_core=40_000,
    places_rows=True,
    native="ticdc_replay.codecs.canal.native:native_reader",
    large_messages=("handle-key-only", "claim-check"),
    refuses=_refuses,
)
