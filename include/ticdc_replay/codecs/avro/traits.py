"""What is true of Avro besides its bytes."""

from collections.abc import Iterator
from typing import Literal

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried, ProtocolTraits, Refusal


def is_test_mode(changefeed: Changefeed) -> bool:
    """Whether TiCDC sends DDL and watermarks too."""
    return changefeed.enable_tidb_extension and changefeed.avro_enable_watermark


def _carries(changefeed: Changefeed) -> Carried:
    rows: Literal["rows", "rows but deletes", "nothing"] = "nothing"
    if changefeed.enable_tidb_extension:
        rows = "rows" if changefeed.avro_include_before_value else "rows but deletes"
    test_mode, old_keys = is_test_mode(changefeed), changefeed.avro_include_before_value
    return Carried(rows, test_mode, "every partition" if test_mode else "nowhere", old_keys)


def _refuses(changefeed: Changefeed) -> Iterator[Refusal]:
    for at, rule in enumerate(changefeed.dispatch.rules):
        # Avro names a schema after its topic, so each table needs one of its own; one fixed name is let through.
        if rule.topic is not None and rule.topic.placeholders and len(rule.topic.placeholders) < 2:
            why = f"{rule.topic.text!r} is not allowed; protocol avro needs both {{schema}} and {{table}}"
            yield Refusal(f"sink.dispatchers[{at}].topic", why)
    if changefeed.force_replicate:
        yield Refusal("force-replicate", "TiCDC refuses it with protocol avro")


TRAITS = ProtocolTraits(
    name="avro",
    aliases=("flat-avro",),
    codec="ticdc_replay.codecs.avro.codec:AvroCodec",
    carries=_carries,
    rows_per_core=30_000,
    needs_registry=True,
    avro_names=True,
    refuses=_refuses,
)
