"""A capture's settings are those of a changefeed, its messages those of Kafka."""

import gzip
import json
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.support.capture_sets import unpack
from ticdc_replay.captures import Capture
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.messages import RawMessage

LINES = [
    {"topic": "b", "partition": 0, "offset": 0, "timestamp_ms": 1, "key_b64": "AAE=", "value_b64": None, "headers": {}},
    {"topic": "a", "partition": 1, "offset": 9, "timestamp_ms": 2, "key_b64": None, "value_b64": "", "headers": {}},
    {"topic": "a", "partition": 0, "offset": 10, "timestamp_ms": 3, "key_b64": None, "value_b64": None, "headers": {}},
    {"topic": "a", "partition": 0, "offset": 9, "timestamp_ms": 4, "key_b64": None, "value_b64": None, "headers": {}},
]
META = {"sink_uri": "kafka://<broker>/a?protocol=open-protocol", "replica_config": {}, "ticdc_timezone": "UTC"}


def write(folder: Path, meta: Any = META, lines: Any = LINES, packed: bool = False) -> Capture:
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    (folder / "meta.json").write_text(json.dumps(meta))
    if packed:
        (folder / "messages.jsonl.gz").write_bytes(gzip.compress(content))
    else:
        (folder / "messages.jsonl").write_bytes(content)
    return Capture(folder)


@pytest.mark.parametrize("packed", [False, True])
def test_messages_come_in_order_of_topic_partition_and_offset(tmp_path: Path, packed: bool) -> None:
    messages = list(write(tmp_path, packed=packed).messages())
    assert [(message.topic, message.partition, message.offset) for message in messages] == [
        ("a", 0, 9), ("a", 0, 10), ("a", 1, 9), ("b", 0, 0),
    ]  # fmt: skip
    assert messages[3] == RawMessage("b", 0, 0, 1, b"\0\1", None)
    assert messages[2].value == b""


def test_settings_are_those_of_the_changefeed(open_captures: Path) -> None:
    feed = Capture(open_captures / "new" / "open-claim-check-lz4").changefeed()
    assert (feed.protocol, feed.compression, feed.large_message) == ("open-protocol", "lz4", "claim-check")
    assert (feed.claim_check_uri, feed.max_message_bytes) == ("s3://ticdc-claims-01/dev/new/open-claim-check-lz4", 4000)
    assert (feed.dispatch.rules[0].partition, feed.timezone, feed.topic) == (
        "index-value",
        "Asia/Shanghai",
        "cap-open-claim-check-lz4",
    )
    assert not Capture(open_captures / "new" / "open-no-old-value").changefeed().output_old_value
    assert Capture(open_captures / "new" / "open-delete-handle-key").changefeed().delete_only_output_handle_key_columns
    assert Capture(open_captures / "classic" / "open-raw-change").changefeed().output_raw_change_event
    assert Capture(open_captures / "classic" / "open-updated-columns").changefeed().only_output_updated_columns
    assert Capture(open_captures / "classic" / "open-default").changefeed().force_replicate


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ({"sink.debezium.output-old-value": False}, "debezium_output_old_value", False),
        ({"debezium.output-old-value": False}, "debezium_output_old_value", False),
        ({"only-output-updated-columns": True}, "only_output_updated_columns", True),
        ({"sink.content-compatible": True}, "content_compatible", True),
        ({"debezium-disable-schema": True}, "debezium_disable_schema", True),
        ({"send-bootstrap-to-all-partition": False}, "send_bootstrap_to_all_partition", False),
        ({"codec-config.enable-tidb-extension": True}, "enable_tidb_extension", True),
        ({"large-message-handle-compression": "lz4"}, "compression", "lz4"),
        ({"large-message-handle": {"large-message-handle-compression": "snappy"}}, "compression", "snappy"),
        ({"sink.kafka-config.output-raw-change-event": True}, "output_raw_change_event", True),
        ({"integrity.integrity-check-level": "correctness"}, "row_checksum", True),
        ({"force-replicate": None}, "force_replicate", False),
    ],
)
def test_settings_have_their_names_in_toml_or_the_last_parts_of_those(
    tmp_path: Path, settings: dict[str, Any], field: str, value: Any
) -> None:
    feed = write(tmp_path, META | {"replica_config": settings}).changefeed()
    assert getattr(feed, field) == value


def test_column_selectors_are_settings(tmp_path: Path) -> None:
    selectors = [{"matcher": ["s.*"], "columns": ["*", "!secret"]}]
    feed = write(tmp_path, META | {"replica_config": {"column-selectors": selectors}}).changefeed()
    assert len(feed.dispatch.selectors) == 1


def test_a_folder_without_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a capture: it must hold meta\.json"):
        Capture(tmp_path)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({}, "meta.json: Object missing required field `sink_uri`"),
        (META | {"replica_config": {"new-option": 1}}, "unknown settings new-option"),
        (META | {"replica_config": {"output-old-value": False}}, "unknown settings output-old-value"),
        (META | {"sink_uri": "kafka://b/a?protocol=nonsense"}, "'nonsense' is not allowed"),
        (META | {"ticdc_timezone": "Mars"}, "'Mars' is not an IANA zone"),
    ],
)
def test_settings_that_are_not_understood_are_refused(tmp_path: Path, meta: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        write(tmp_path, meta).changefeed()


@pytest.mark.parametrize("broken", [{"key_b64": "A"}, {"offset": "x"}, {"value_b64": 3}])
def test_a_broken_line_is_named(tmp_path: Path, broken: Any) -> None:
    with pytest.raises(ConfigError, match=r"messages\.jsonl, line 2: "):
        write(tmp_path, lines=[LINES[0], LINES[1] | broken]).messages()


def test_an_archive_is_unpacked_but_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    def archive_with(name: str) -> Path:
        path = tmp_path / "captures.tar.xz"
        with tarfile.open(path, "w:xz") as archive:
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, BytesIO(b"abc"))
        return path

    folder = tmp_path / "unpacked"
    unpack(archive_with("classic/open/meta.json"), folder)
    assert (folder / "classic" / "open" / "meta.json").read_bytes() == b"abc"
    with pytest.raises(ConfigError, match="outside lies outside"):
        unpack(archive_with("../outside"), folder)
    assert not (tmp_path / "outside").exists()
