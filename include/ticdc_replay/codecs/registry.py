"""Which codec reads the messages of a changefeed, and what they carry: both are traits of its protocol."""

from pkgutil import resolve_name

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried
from ticdc_replay.codecs.base import Codec
from ticdc_replay.schemas.lookup import SchemaLookup


def codec_for(changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup | None = None) -> Codec:
    """A new codec for the messages of *changefeed*, which refuses events over *decompressed_max_bytes* after decompression.

    *schemas* is what is known of the tables besides the messages. Raises ConfigError for a protocol that is not known.
    """
    codec: type[Codec] = resolve_name(changefeed.traits.codec)
    return codec(changefeed, decompressed_max_bytes, schemas or SchemaLookup())


def carried_by(changefeed: Changefeed) -> Carried:
    """What messages of *changefeed* carry besides rows. Raises ConfigError for a protocol that is not known."""
    return changefeed.traits.carries(changefeed)
