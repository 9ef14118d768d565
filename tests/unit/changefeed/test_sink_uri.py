"""What a changefeed's own configuration means for a reader."""

import msgspec
import pytest
from msgspec import UNSET

from ticdc_replay.changefeed.rules import Dispatch
from ticdc_replay.changefeed.sink_uri import from_sink_uri
from ticdc_replay.domain.errors import ConfigError, SecretInConfigError

URI = "kafka://broker-1:9092,broker-2:9092/orders?protocol=open-protocol"


def parse(sink_uri=URI, toml="", timezone="UTC"):
    return from_sink_uri(sink_uri, toml, timezone, where="shop.yaml: changefeed.sink_uri")


def large_message(**settings):
    lines = "\n".join(f"{name} = {value}" for name, value in settings.items()).replace("_", "-")
    return f"[sink.kafka-config.large-message-handle]\n{lines}\n"


def test_nothing_but_the_protocol_gives_ticdc_s_own_defaults():
    changefeed = parse().changefeed
    assert (changefeed.protocol, changefeed.topic, changefeed.timezone) == ("open-protocol", "orders", "UTC")
    assert (changefeed.max_message_bytes, changefeed.max_batch_size, changefeed.required_acks) == (10485760, 16, -1)
    assert (changefeed.compression, changefeed.large_message, changefeed.claim_check_uri) == ("none", "none", None)
    assert changefeed.output_old_value
    assert changefeed.dispatch == Dispatch()
    assert changefeed.partition_num is None


def test_parameters_of_the_sink_uri_are_understood():
    changefeed = parse(
        URI + "&partition-num=6&max-message-bytes=4000&max-batch-size=1&required-acks=1"
        "&only-output-updated-columns=T&kafka-version=2.4.0&compression=zstd&replication-factor=3"
    ).changefeed
    assert changefeed.partition_num == 6
    assert changefeed.max_message_bytes == 4000
    assert changefeed.max_batch_size == 1
    assert changefeed.required_acks == 1
    assert changefeed.only_output_updated_columns
    assert changefeed.compression == "none", "the producer's own compression is not the events' compression"


def test_settings_of_the_toml_are_understood():
    toml = """
    force-replicate = true
    [sink]
    only-output-updated-columns = true
    [sink.open]
    output-old-value = false
    [sink.kafka-config]
    partition-num = 3
    max-message-bytes = 5000
    required-acks = 0
    output-raw-change-event = true
    [sink.kafka-config.codec-config]
    max-batch-size = 8
    [sink.kafka-config.large-message-handle]
    large-message-handle-option = "claim-check"
    large-message-handle-compression = "snappy"
    claim-check-storage-uri = "s3://claims/shop/?region=eu-central-1&endpoint=http://minio:9000"
    """
    changefeed = parse(toml=toml).changefeed
    assert changefeed.force_replicate
    assert changefeed.only_output_updated_columns
    assert not changefeed.output_old_value
    assert (changefeed.partition_num, changefeed.max_message_bytes, changefeed.required_acks) == (3, 5000, 0)
    assert changefeed.output_raw_change_event
    assert changefeed.max_batch_size == 8
    assert (changefeed.large_message, changefeed.compression) == ("claim-check", "snappy")
    assert changefeed.claim_check_uri == "s3://claims/shop", "endpoint and region come from the connection"


DEBEZIUM = URI.replace("open-protocol", "debezium")


@pytest.mark.parametrize(
    ("uri", "toml", "told"),
    [
        ("&debezium-decimal-handling-mode=string&debezium-bigint-unsigned-handling-mode=string", "",
         ("string", "string", UNSET)),
        ("&debezium-binary-handling-mode=hex", "", (UNSET, UNSET, "hex")),
        ("", "decimal-handling-mode = 'string'\nbigint-unsigned-handling-mode = 'long'\n"
         "binary-handling-mode = 'base64-url-safe'", ("string", UNSET, "base64-url-safe")),
        ("&debezium-decimal-handling-mode=double&debezium-binary-handling-mode=bytes",
         "decimal-handling-mode = 'string'\nbinary-handling-mode = 'hex'\ninclude-start-ts = true", (UNSET, UNSET, UNSET)),
    ],
)  # fmt: skip
def test_forms_of_debezium_cells_are_understood(uri, toml, told):
    found = parse(DEBEZIUM + uri, f"[sink.debezium]\n{toml}")
    changefeed = found.changefeed
    assert found.warnings == ()
    assert told == (
        changefeed.debezium_decimal_handling_mode,
        changefeed.debezium_bigint_unsigned_handling_mode,
        changefeed.debezium_binary_handling_mode,
    )
    assert changefeed.debezium_include_start_ts is ("include-start-ts" in toml)


def test_a_form_of_debezium_cells_changes_the_hash_where_it_is_another():
    plain = parse(DEBEZIUM).changefeed.hash
    assert parse(DEBEZIUM + "&debezium-binary-handling-mode=bytes").changefeed.hash == plain
    assert parse(DEBEZIUM + "&debezium-binary-handling-mode=hex").changefeed.hash != plain
    assert "debezium_binary_handling_mode" not in msgspec.to_builtins(parse(DEBEZIUM).changefeed)


def test_settings_of_newer_releases_are_known():
    simple = parse(URI.replace("open-protocol", "simple") + "&simple-include-start-ts=true")
    assert simple.warnings == ()
    codec = "[sink.kafka-config.codec-config]\navro-include-before-value = true"
    avro = parse(URI.replace("open-protocol", "avro"), codec)
    assert avro.changefeed.avro_include_before_value


def test_the_sink_uri_wins_over_the_toml():
    toml = '[sink]\nprotocol = "avro"\n[sink.kafka-config]\nmax-message-bytes = 5000\n'
    changefeed = parse(URI + "&max-message-bytes=4000", toml).changefeed
    assert (changefeed.protocol, changefeed.max_message_bytes) == ("open-protocol", 4000)


def test_the_protocol_may_stand_in_the_toml_alone_and_default_means_open():
    changefeed = parse("kafka://broker:9092/orders", '[sink]\nprotocol = "default"').changefeed
    assert changefeed.protocol == "open-protocol"


@pytest.mark.parametrize(
    ("sink_uri", "toml", "message"),
    [
        ("mysql://root@db:3306/", "", "scheme 'mysql' is not allowed; allowed: kafka, kafka+ssl"),
        ("kafka://broker:9092/?protocol=open-protocol", "", "must name the default topic"),
        ("kafka://broker:9092/orders", "", "parameter protocol: missing"),
        (
            "kafka://broker:9092/orders?protocol=maxwell",
            "",
            "'maxwell' is not allowed; allowed: default, open-protocol",
        ),
        ("kafka://[broker/orders?protocol=open-protocol", "", "malformed URI"),
        (URI + "&partition-num=0", "", "parameter partition-num: 0 is not allowed; allowed: whole numbers from 1"),
        (URI + "&max-message-bytes=10MB", "", "parameter max-message-bytes: '10MB' is not allowed"),
        (URI + "&required-acks=2", "", "required-acks: 2 is not allowed; allowed: -1, 0, 1"),
        (URI + "&only-output-updated-columns=yes", "", "'yes' is not a boolean; allowed: true, false"),
        (URI, "enable-old-value = 'no'", "enable-old-value: 'no' is not a boolean"),
        (
            URI,
            "enable-old-value = false\nforce-replicate = true",
            "and with enable-old-value = false",
        ),
        (URI, "[sink.open]\noutput-old-value = 'false'", "sink.open.output-old-value: 'false' is not a boolean"),
        ("kafka://b/t", "[sink]\nprotocol = 5", "sink.protocol: must be a text"),
        (URI, "sink = 5", "below something that is not a TOML table"),
        (URI, "[sink", "not valid TOML"),
        (URI, large_message(large_message_handle_option='"claimcheck"'), "allowed: none, handle-key-only, claim-check"),
        (URI, large_message(large_message_handle_compression='"gzip"'), "allowed: none, snappy, lz4"),
        (URI, large_message(large_message_handle_option='"claim-check"'), "claim-check-storage-uri: missing"),
        (URI, large_message(claim_check_storage_uri='"bucket"'), "not a URI such as s3://bucket/prefix"),
        (URI, large_message(claim_check_raw_value="true"), "TiCDC refuses it with open-protocol"),
        (
            "kafka://b/t?protocol=avro",
            large_message(large_message_handle_option='"handle-key-only"'),
            "TiCDC refuses 'handle-key-only' with protocol avro",
        ),
        (URI, "force-replicate = true\n[sink]\ndelete-only-output-handle-key-columns = true", "force-replicate"),
    ],
)
def test_a_wrong_value_is_told_with_place_and_allowed_values(sink_uri, toml, message):
    with pytest.raises(ConfigError) as caught:
        parse(sink_uri, toml)
    assert message in str(caught.value)
    assert "shop.yaml" in str(caught.value)


def test_a_zone_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="'Asia/Peking' is not an IANA zone"):
        parse(timezone="Asia/Peking")


@pytest.mark.parametrize(
    ("sink_uri", "toml", "place", "home"),
    [
        (URI + "&sasl-user=me&sasl-password=hunter2", "", "sasl-password", "'sasl.password' in the extra"),
        (URI + "&SASL_Password=hunter2", "", "SASL_Password", "connections.kafka"),
        (URI + "&sasl-gssapi-password=hunter2", "", "sasl-gssapi-password", "sasl.kerberos.keytab"),
        ("kafka://me:hunter2@broker/orders?protocol=open-protocol", "", "URI holds a password", "login and password"),
        (URI, '[sink.kafka-config]\nsasl-password = "hunter2"', "sink.kafka-config.sasl-password", "sasl.password"),
        (URI, '[sink.kafka-config]\nsasl-oauth-client-secret = "hunter2"', "sasl-oauth-client-secret", "client.secret"),
        (
            URI,
            '[sink.kafka-config]\nkey = """-----BEGIN RSA PRIVATE KEY-----\nhunter2"""',
            "sink.kafka-config.key",
            "ssl.key.pem",
        ),
        (
            URI,
            large_message(claim_check_storage_uri='"s3://claims/a?access-key=AKIA&secret-access-key=hunter2"'),
            "claim-check-storage-uri: parameter access-key",
            "the login of the Airflow connection",
        ),
        (
            URI,
            large_message(claim_check_storage_uri='"azure://c/a?account-name=n&SAS-Token=hunter2"'),
            "parameter SAS-Token",
            "an Airflow connection",
        ),
        (
            URI,
            '[sink]\nschema-registry = "https://me:hunter2@registry:8081"',
            "sink.schema-registry",
            "login and password",
        ),
        (
            "kafka://b/t?protocol=avro",
            '[sink.kafka-config.glue-schema-registry-config]\nregion = "a"\nsecret-access-key = "hunter2"',
            "glue-schema-registry-config.secret-access-key",
            "the password of the Airflow connection named by connections.schema_registry",
        ),
        (
            "kafka://b/t?protocol=avro",
            '[sink.kafka-config.glue-schema-registry-config]\nregion = "a"\ntoken = "hunter2"',
            "glue-schema-registry-config.token",
            "'aws_session_token' in the extra of the Airflow connection named by connections.schema_registry",
        ),
        (URI, '[sink.kafka-config]\nsasl-oauth-token-url = "https://me:hunter2@id/t"', "sasl-oauth-token-url", "login"),
        (URI, "[consistent]\nstorage = 's3://logs/redo?secret-access-key=hunter2'", "consistent.storage", "password"),
    ],
)
def test_a_secret_is_refused_with_the_field_to_use_and_without_its_value(sink_uri, toml, place, home):
    with pytest.raises(SecretInConfigError) as caught:
        parse(sink_uri, toml)
    assert place in str(caught.value)
    assert home in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_paths_of_key_files_and_names_of_users_are_no_secrets():
    parse(URI + "&sasl-user=me&sasl-mechanism=plain&enable-tls=true&ca=/etc/ca.pem&cert=/etc/c.pem&key=/etc/k.pem")
    parse(toml='[sink.kafka-config]\nsasl-password = ""')


def test_unknown_options_are_warnings_and_known_ones_are_not():
    toml = """
    memory-quota = 1
    enable-old-valu = true
    [filter]
    rules = ["*.*"]
    [mounter]
    worker-num = 16
    [sink.kafka-config]
    kafka-version = "2.4.0"
    partitions = 4
    """
    warnings = parse(URI + "&partiton-num=6&auto-create-topic=false&max-batch-size=1&max-batch-size=2", toml).warnings
    assert [warning.split(": ", 2)[-1] for warning in warnings] == [
        "parameter partiton-num is unknown to TiCDC and ignored",
        "parameter max-batch-size occurs more than once; the first counts",
        "enable-old-valu is unknown to TiCDC and ignored",
        "sink.kafka-config.partitions is unknown to TiCDC and ignored",
    ]


def test_equal_configuration_has_one_hash_and_other_configuration_another():
    assert parse().changefeed.hash == parse(URI + "&kafka-version=3.0.0").changefeed.hash
    assert parse().changefeed.hash != parse(timezone="Asia/Tokyo").changefeed.hash


def test_the_schema_registry_is_told_by_flag_toml_or_section_and_the_flag_wins():
    toml = '[sink]\nschema-registry = "http://old:8081"'
    assert parse(toml=toml).registry == "http://old:8081"
    parsed = from_sink_uri(URI, toml, "UTC", "shop.yaml", schema_registry="http://new:8081")
    assert (parsed.registry, parsed.changefeed.schema_registry) == ("http://new:8081", "confluent")
    glue = '[sink.kafka-config.glue-schema-registry-config]\nregion = "eu-central-1"\nregistry-name = "shop"'
    parsed = parse("kafka://b/t?protocol=avro", glue)
    assert (parsed.registry, parsed.changefeed.schema_registry) == ("shop in eu-central-1", "glue")
    with pytest.raises(ConfigError, match="refuses it together with schema-registry"):
        parse("kafka://b/t?protocol=avro&schema-registry=http://r:8081", glue)


def test_a_secret_in_the_flag_of_the_schema_registry_is_refused():
    with pytest.raises(SecretInConfigError, match="login and password") as caught:
        from_sink_uri(URI, "", "UTC", "shop.yaml", schema_registry="http://me:hunter2@registry:8081")
    assert "hunter2" not in str(caught.value)


def test_bootstrap_and_scheduler_settings_are_understood():
    toml = """
    [sink]
    send-bootstrap-interval-in-sec = -1
    send-bootstrap-in-msg-count = 500
    send-bootstrap-to-all-partition = false
    [scheduler]
    enable-table-across-nodes = true
    """
    changefeed = parse("kafka://b/t?protocol=simple", toml).changefeed
    assert (changefeed.send_bootstrap_interval_in_sec, changefeed.send_bootstrap_in_msg_count) == (-1, 500)
    assert not changefeed.send_bootstrap_to_all_partition
    assert changefeed.table_across_nodes


def test_raw_changes_without_old_values_are_a_warning():
    toml = "[sink.open]\noutput-old-value = false\n[sink.kafka-config]\noutput-raw-change-event = true"
    (warning,) = parse(toml=toml).warnings
    assert "the old row stays in mirrors" in warning
    assert parse(toml="[sink.kafka-config]\noutput-raw-change-event = true").warnings == ()


@pytest.mark.parametrize(
    ("protocol", "toml", "old_values", "keys_only"),
    [
        ("open-protocol", "enable-old-value = false", False, True),
        ("open-protocol", "enable-old-value = true", True, False),
        ("open-protocol", "enable-old-value = true\n[sink.open]\noutput-old-value = false", False, False),
        ("canal-json", "enable-old-value = false", True, False),
        ("simple", "enable-old-value = false", True, False),
    ],
)
def test_without_old_values_updates_have_no_old_image_and_deletes_only_the_key(protocol, toml, old_values, keys_only):
    """TiCDC up to 7.1; Canal-JSON has old values whatever it says, and no other protocol had any then."""
    changefeed = parse(URI.replace("open-protocol", protocol), toml).changefeed
    assert changefeed.output_old_value is old_values
    assert changefeed.delete_only_output_handle_key_columns is keys_only


def test_column_selectors_exclude_the_integrity_check():
    toml = """
    integrity.integrity-check-level = "correctness"
    sink.column-selectors = [{matcher = ["*.*"], columns = ["*", "!secret"]}]
    """
    with pytest.raises(ConfigError, match="TiCDC refuses them with the integrity check"):
        parse(toml=toml)


@pytest.mark.parametrize(
    ("options", "toml", "lost"),
    [
        ("avro", "", True),
        ("avro&enable-tidb-extension=true&avro-include-before-value=true", "", False),
        ("debezium", "[sink.debezium]\noutput-old-value = false\n", True),
        ("debezium-avro", "[sink.debezium]\noutput-old-value = false\n", True),
        ("debezium-avro", "", False),
        ("canal-json", "", False),
    ],
)
def test_raw_changes_lose_the_old_key_where_there_is_no_old_image(options, toml, lost):
    raw = toml + "[sink.kafka-config]\noutput-raw-change-event = true"
    uri = URI.replace("open-protocol", options)
    assert parse(uri, raw).changefeed.loses_old_keys is lost
    assert parse(uri, toml).changefeed.loses_old_keys is False


@pytest.mark.parametrize(
    ("uri", "toml", "message"),
    [
        (URI.replace("open-protocol", "canal-json"), large_message(large_message_handle_option='"handle-key-only"'),
         "with canal-json without enable-tidb-extension"),
        (URI.replace("open-protocol", "avro"), "force-replicate = true", "TiCDC refuses it with protocol avro"),
    ],
)  # fmt: skip
def test_combinations_that_ticdc_refuses_are_refused(uri, toml, message):
    with pytest.raises(ConfigError, match=message):
        parse(uri, toml)


@pytest.mark.parametrize(
    ("rule", "filters"),
    [
        ('ignore-event = ["delete", "Truncate Table", "drop table"]', False),
        ('ignore-event = ["add column"]', True),
        ('ignore-event = ["all ddl"]', True),
        ('ignore-event = ["insert", "alter table"]', True),
        ('ignore-sql = ["^alter"]', True),
        ('ignore-sql = []\nignore-insert-value-expr = "id > 5"', False),
    ],
)
def test_event_filters_that_leave_out_changes_of_tables_are_noticed(rule: str, filters: bool) -> None:
    toml = f'[filter]\nrules = ["*.*"]\n[[filter.event-filters]]\nmatcher = ["shop.*"]\n{rule}\n'
    assert parse(toml=toml).filters_ddl is filters
    assert parse().filters_ddl is False


def test_transactions_that_are_left_out_may_be_ddl() -> None:
    assert parse(toml="[filter]\nignore-txn-start-ts = [461373442621440000]\n").filters_ddl
    assert not parse(toml="[filter]\nignore-txn-start-ts = []\n").filters_ddl
