"""Which codec reads the messages of a changefeed, by the ``protocol=`` of its sink-uri."""

from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.open import OpenCodec
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.domain.errors import ConfigError

_CODECS: dict[str, type[OpenCodec]] = {
    "open-protocol": OpenCodec,
    "default": OpenCodec,
}

PROTOCOLS = tuple(sorted(_CODECS))
"""The values of ``protocol=`` that can be read."""


def codec_for(changefeed: Changefeed, decompressed_max_bytes: int) -> Codec:
    """A new codec for the messages of *changefeed*, which refuses events over *decompressed_max_bytes* after decompression.

    Raises ConfigError for a protocol that is not known.
    """
    try:
        codec = _CODECS[changefeed.protocol]
    except KeyError:
        raise ConfigError(
            f"protocol={changefeed.protocol} of the sink-uri can't be read; allowed: {', '.join(PROTOCOLS)}"
        ) from None
    return codec(changefeed, decompressed_max_bytes)
