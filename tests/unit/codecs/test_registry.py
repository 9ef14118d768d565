"""A changefeed's protocol decides who reads its messages."""

import pytest

from ticdc_replay.codecs.open import OpenCodec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.domain.errors import ConfigError


@pytest.mark.parametrize("protocol", ["open-protocol", "default"])
def test_open_protocol_by_both_names(protocol: str) -> None:
    assert isinstance(codec_for(Changefeed(protocol=protocol, topic="t", timezone="UTC"), 1), OpenCodec)


def test_an_unknown_protocol_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"protocol=maxwell .* allowed: .*default, .*open-protocol"):
        codec_for(Changefeed(protocol="maxwell", topic="t", timezone="UTC"), 1)
