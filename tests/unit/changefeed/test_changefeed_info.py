"""A changefeed from what ``cdc cli changefeed create`` and ``query`` print."""

import json

import pytest

from ticdc_replay.changefeed.sink_uri import from_info, from_sink_uri
from ticdc_replay.domain.errors import ConfigError, SecretInConfigError

URI = "kafka://b:9092/shop?protocol=simple&partition-num=3"
TOML = """
case-sensitive = true
[sink]
dispatchers = [{matcher = ["shop.*"], partition = "index-value", topic = "cdc_{schema}"}]
send-bootstrap-in-msg-count = 5
[sink.kafka-config]
max-message-bytes = 4000
[sink.kafka-config.codec-config]
encoding-format = "avro"
[sink.kafka-config.large-message-handle]
large-message-handle-option = "claim-check"
claim-check-storage-uri = "s3://claims/shop"
[integrity]
integrity-check-level = "correctness"
"""
INFO = {
    "upstream_id": 7277814241002263370,
    "namespace": "default",
    "id": "shop",
    "sink_uri": URI,
    "create_time": "2026-03-01T00:00:00Z",
    "start_ts": 464626526453760000,
    "config": {
        "memory_quota": 1073741824,
        "case_sensitive": True,
        "filter": {"rules": ["*.*"]},
        "sink": {
            "protocol": "simple",
            "csv": {"delimiter": ","},
            "dispatchers": [{"matcher": ["shop.*"], "partition": "index-value", "topic": "cdc_{schema}"}],
            "column_selectors": None,
            "advance_timeout": 150,
            "send_bootstrap_in_msg_count": 5,
            "kafka_config": {
                "max_message_bytes": 4000,
                "sasl_password": "******",
                "codec_config": {"encoding_format": "avro"},
                "large_message_handle": {
                    "large_message_handle_option": "claim-check",
                    "large_message_handle_compression": "",
                    "claim_check_storage_uri": "s3://claims/shop",
                    "claim_check_raw_value": False,
                },
                "glue_schema_registry_config": None,
            },
        },
        "integrity": {"integrity_check_level": "correctness", "corruption_handle_level": "warn"},
        "scheduler": {"enable_table_across_nodes": False},
        "changefeed_error_stuck_duration": 1800000000000,
        "synced_status": {"synced_check_interval": 300, "checkpoint_interval": 15},
    },
    "state": "normal",
    "creator_version": "v8.5.0",
    "resolved_ts": 464626526453760001,
    "checkpoint_ts": 464626526453760001,
}


def parse(info):
    return from_info(info if isinstance(info, str) else json.dumps(info), "Asia/Shanghai", "shop.yaml: changefeed.info")


def test_what_is_printed_means_what_was_configured():
    parsed = parse(INFO)
    configured = from_sink_uri(URI, TOML, "Asia/Shanghai", "shop.yaml: changefeed.sink_uri")
    assert parsed.changefeed == configured.changefeed
    assert parsed.changefeed.dispatch.rules[0].matcher.case_sensitive
    assert parsed.warnings == ()
    assert (parsed.start_ts, parsed.target_ts) == (464626526453760000, None)


def test_the_line_that_create_prints_may_be_given_whole():
    text = f"Create changefeed successfully!\nID: shop\nInfo: {json.dumps(INFO)}\n"
    assert parse(text).changefeed == parse(INFO).changefeed


def test_older_releases_print_the_names_of_the_toml():
    old = {
        "info": {
            "sink-uri": URI,
            "opts": {},
            "start-ts": 464626526453760000,
            "target-ts": 464626526453769999,
            "config": {"case-sensitive": False, "sink": {"dispatchers": [{"matcher": ["*.*"], "dispatcher": "ts"}]}},
        },
        "status": {"resolved-ts": 1},
    }
    parsed = parse(old)
    assert parsed.changefeed.scatters("a", "b")
    assert (parsed.start_ts, parsed.target_ts) == (464626526453760000, 464626526453769999)


def test_what_ticdc_masks_is_no_secret_and_no_value():
    uri = "kafka://me:xxxxx@b/t?protocol=simple&sasl-password=xxxxx&kafka-client-id=xxxxx&output-row-key=xxxxx"
    parsed = parse({**INFO, "sink_uri": uri})
    assert not parsed.changefeed.output_row_key
    (warning,) = parsed.warnings
    assert "parameter output-row-key was masked by TiCDC" in warning


def test_a_secret_that_is_not_masked_is_refused_with_its_place():
    config = {**INFO["config"], "sink": {"kafka_config": {"sasl_password": "hunter2"}}}
    with pytest.raises(SecretInConfigError, match=r"config: sink\.kafka-config\.sasl-password") as caught:
        parse({**INFO, "config": config})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "not the JSON that"),
        ('{"sink_uri": "kafka://b/t"', "not the JSON that"),
        ('{"id": "shop"}', "has no sink_uri"),
        ('{"sink_uri": "kafka://b/t?protocol=simple", "config": 5}', "config: must be an object"),
        ('{"sink_uri": "kafka://b/t?protocol=simple", "start_ts": "soon"}', "start_ts: must be a TSO"),
    ],
)
def test_what_is_no_info_is_told(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse(text)
    assert "shop.yaml: changefeed.info" in str(caught.value)
