"""A changefeed's protocol decides who reads its messages."""

import pytest

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import protocol_names
from ticdc_replay.codecs.open.codec import OpenCodec
from ticdc_replay.codecs.registry import carried_by, codec_for
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.events import Operation, RowEvent, Undecodable
from ticdc_replay.domain.messages import RawMessage


@pytest.mark.parametrize("protocol", ["open-protocol", "default"])
def test_open_protocol_by_both_names(protocol: str) -> None:
    assert isinstance(codec_for(Changefeed(protocol=protocol, topic="t", timezone="UTC"), 1), OpenCodec)


def test_an_unknown_protocol_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"protocol=maxwell .* allowed: .*default, .*open-protocol"):
        codec_for(Changefeed(protocol="maxwell", topic="t", timezone="UTC"), 1)


@pytest.mark.parametrize("extension", [True, False])
@pytest.mark.parametrize("protocol", protocol_names())
def test_a_row_without_commit_ts_comes_out_only_where_rows_have_none(
    monkeypatch: pytest.MonkeyPatch, protocol: str, extension: bool
) -> None:
    changefeed = Changefeed(
        protocol=protocol,
        topic="t",
        timezone="UTC",
        enable_tidb_extension=extension,
        avro_include_before_value=extension,
    )
    reader, nothing = codec_for(changefeed, 1 << 20), None
    row = RowEvent(0, nothing, "s", "t", nothing, Operation.DELETE, nothing, nothing, True, nothing, nothing, (), b"f")
    monkeypatch.setattr(reader, "_decode", lambda message: [row._replace(commit_ts=7), row])
    monkeypatch.setattr(reader, "_made_whole", lambda small, found: row)
    dated, *others = reader.decode(RawMessage("t", 0, 0, 0, b"k", b"v"))
    assert dated == row._replace(commit_ts=7)
    others.append(reader.decode_claim_check(row, b"content"))
    ordered = carried_by(changefeed).commit_ts == "rows"
    assert ordered or protocol in ("avro", "flat-avro", "canal-json")
    assert [isinstance(event, Undecodable) for event in others] == [ordered] * 2
