"""Which codec reads the messages of a changefeed, by the ``protocol=`` of its sink-uri."""

from ticdc_replay.codecs.avro import AvroCodec
from ticdc_replay.codecs.base import Carried, Codec
from ticdc_replay.codecs.canal import CanalCodec
from ticdc_replay.codecs.debezium import DebeziumCodec
from ticdc_replay.codecs.debezium_avro import DebeziumAvroCodec
from ticdc_replay.codecs.open import OpenCodec
from ticdc_replay.codecs.simple import SimpleCodec
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.schemas.lookup import SchemaLookup

_CODECS: dict[str, type[Codec]] = {
    "avro": AvroCodec,
    "canal-json": CanalCodec,
    "debezium": DebeziumCodec,
    "debezium-avro": DebeziumAvroCodec,
    "open-protocol": OpenCodec,
    "simple": SimpleCodec,
    "default": OpenCodec,
}

PROTOCOLS = tuple(sorted(_CODECS))
"""The values of ``protocol=`` that can be read."""


def codec_for(changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup | None = None) -> Codec:
    """A new codec for the messages of *changefeed*, which refuses events over *decompressed_max_bytes* after decompression.

    *schemas* is what is known of the tables besides the messages. Raises ConfigError for a protocol that is not known.
    """
    return _class_for(changefeed)(changefeed, decompressed_max_bytes, schemas or SchemaLookup())


def carried_by(changefeed: Changefeed) -> Carried:
    """What messages of *changefeed* carry besides rows. Raises ConfigError for a protocol that is not known."""
    return _class_for(changefeed).carries(changefeed)


def has_claim_checks(changefeed: Changefeed) -> bool:
    """Whether TiCDC writes claim-check objects for *changefeed*, where they are configured. Raises as ``carried_by``."""
    return _class_for(changefeed).has_claim_checks


def _class_for(changefeed: Changefeed) -> type[Codec]:
    try:
        return _CODECS[changefeed.protocol]
    except KeyError:
        raise ConfigError(
            f"protocol={changefeed.protocol} of the sink-uri can't be read; allowed: {', '.join(PROTOCOLS)}"
        ) from None
