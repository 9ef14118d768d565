"""What the library has to know of a protocol stands in one value, which may come from another package."""

import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest

from tests.support.packages import PLAIN_JSON, declare, install
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import GROUP, find_protocol, protocol_names
from ticdc_replay.changefeed.sink_uri import from_sink_uri
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.events import Undecodable
from ticdc_replay.domain.messages import RawMessage

BUILT_IN = ("open-protocol", "canal-json", "avro", "simple", "debezium", "debezium-avro")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, into which packages can be installed."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    find_protocol.cache_clear()
    yield tmp_path
    find_protocol.cache_clear()
    for name in set(sys.modules) - known:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def feed(protocol: str) -> Changefeed:
    return from_sink_uri(f"kafka://b:9092/t?protocol={protocol}", "", "UTC", "shop.yaml").changefeed


def test_every_built_in_protocol_has_a_codec_and_a_native_reader_where_it_says_so() -> None:
    for name in BUILT_IN:
        traits = feed(name).traits
        assert traits.name == name
        assert issubclass(resolve_name(traits.codec), Codec)
        assert traits.native is None or callable(resolve_name(traits.native))
    assert {feed(name).traits.name for name in protocol_names()} == set(BUILT_IN)
    assert len(protocol_names()) == len(set(protocol_names()))


@pytest.mark.parametrize(("alias", "name"), [("default", "open-protocol"), ("flat-avro", "avro"), ("AVRO", "avro")])
def test_an_alias_is_the_protocol_by_its_name(alias: str, name: str) -> None:
    assert feed(alias).protocol == name


def test_a_protocol_of_an_installed_package_is_found_and_listed(site: Path) -> None:
    with pytest.raises(ConfigError, match=r"'plain-json' is not allowed; allowed: .*debezium-avro$"):
        feed("plain-json")
    install(PLAIN_JSON, site)
    find_protocol.cache_clear()
    assert feed("plain-json").traits.rows_per_core == 12_345
    with pytest.raises(ConfigError, match=r"allowed: .*debezium-avro, plain-json$"):
        feed("maxwell")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"op":"insert","ts":1,"schema":"s","table":"t","types":{"id":"int"},"after":{"id":1}}', None),
        (b'{"op":"insert","ts":1', "bad_json"),
        (b'{"op":"insert","ts":1,"schema":"\xff"}', "bad_json"),
        (b'{"op":"insert"}', "bad_json"),
        (b'{"op":"insert","ts":1,"schema":"s","table":"t","types":{"id":"point"},"after":{"id":1}}', "bad_json"),
        (b'{"op":"insert","ts":1,"schema":"s","table":"t","after":{"id":1}}', "bad_value"),
        (b'{"op":"merge","ts":1}', "unknown_event_type"),
        (None, "bad_json"),
    ],
)
def test_the_codec_of_a_package_reads_messages_and_says_what_it_can_not_read(
    site: Path, value: bytes | None, reason: str | None
) -> None:
    install(PLAIN_JSON, site)
    (event,) = codec_for(feed("plain-json"), 1 << 20).decode(RawMessage("t", 0, 0, 0, None, value))
    assert (event.reason if isinstance(event, Undecodable) else None) == reason


def test_a_package_replaces_no_built_in_protocol(site: Path) -> None:
    declare(site, "other", "1", {GROUP: {"avro": "nowhere:TRAITS"}})
    assert feed("avro").traits.codec == "ticdc_replay.codecs.avro.codec:AvroCodec"
    assert protocol_names().count("avro") == 1


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import nothing_like_it", "can't be loaded: ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("raise RuntimeError('no licence')", "can't be loaded: RuntimeError: no licence"),
        ("", "can't be loaded: AttributeError: .*TRAITS"),
        ("TRAITS = 5", "expected the ProtocolTraits of broken, found 5"),
        ("from ticdc_replay.codecs.avro.traits import TRAITS", "expected the ProtocolTraits of broken, found .*avro"),
    ],
)
def test_a_protocol_that_can_not_be_loaded_is_told_and_hinders_no_other(site: Path, code: str, says: str) -> None:
    install(PLAIN_JSON, site)
    declare(site, "broken", "1", {GROUP: {"broken": "broken_protocol:TRAITS"}})
    (site / "broken_protocol.py").write_text(code)
    with pytest.raises(ConfigError, match=f"protocol broken of broken_protocol:TRAITS .*{says}"):
        feed("broken")
    assert feed("plain-json").protocol == "plain-json"


def test_two_packages_with_one_protocol_are_refused(site: Path) -> None:
    install(PLAIN_JSON, site)
    declare(site, "fork", "1", {GROUP: {"plain-json": "fork:TRAITS"}})
    with pytest.raises(ConfigError, match=r"plain-json of fork:TRAITS and plain_json.traits:TRAITS .*: two packages"):
        feed("plain-json")
