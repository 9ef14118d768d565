"""Loading pipeline files."""

import copy
import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
import yaml

from ticdc_replay.config.json_schema import json_schema, rendered
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.errors import ConfigError, SecretInConfigError

COMMITTED_SCHEMA = Path(__file__).parents[3] / "include" / "pipelines" / "pipeline.schema.json"

SHOP = yaml.safe_load("""
name: shop
changefeed:
  sink_uri: kafka://broker:9092/shop?protocol=open-protocol
  timezone: Asia/Shanghai
connections: {kafka: shop_kafka, artifacts: lake}
artifacts: s3://lake/replay
tables: ["shop.*"]
schedule: {cron: "0 * * * *", start: "2026-03-01T00:00:00Z"}
targets:
  - {name: warehouse, type: postgres, connection: warehouse, schema: shop}
  - {name: lake, type: parquet, uri: "s3://lake/shop", connection: lake}
""")


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "shop.yaml"
        path.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
        return path

    return write


@pytest.fixture
def error_of(write):
    def error_of(content, kind=ConfigError):
        path = write(content)
        with pytest.raises(kind) as caught:
            load_pipeline(path)
        assert str(path) in str(caught.value)
        return str(caught.value).replace(f"{path}: ", "")

    return error_of


def changed(path, value):
    document = copy.deepcopy(SHOP)
    *parents, last = path
    place = document
    for part in parents:
        place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
    place[last] = value
    return document


def test_a_complete_file_loads(write):
    loaded = load_pipeline(write(SHOP))
    assert loaded.pipeline.name == "shop"
    assert [target.name for target in loaded.pipeline.targets] == ["warehouse", "lake"]
    assert loaded.pipeline.targets[0].db_schema == "shop"
    assert loaded.changefeed.topic == "shop"
    assert loaded.changefeed.timezone == "Asia/Shanghai"
    assert loaded.warnings == ()


def test_a_moment_may_stand_without_quotes(write):
    text = yaml.safe_dump(SHOP).replace("'2026-03-01T00:00:00Z'", "2026-03-01T00:00:00Z")
    assert "'2026" not in text
    assert load_pipeline(write(text)).pipeline.schedule.start == datetime(2026, 3, 1, tzinfo=UTC)


def test_the_start_of_the_changefeed_is_optional_and_a_tso(write):
    assert load_pipeline(write(SHOP)).pipeline.changefeed.start_ts is None
    declared = load_pipeline(write(changed(("changefeed", "start_ts"), 464626526453760000)))
    assert declared.pipeline.changefeed.start_ts == 464626526453760000


def test_declaring_the_start_leaves_what_was_pinned_valid(write):
    declared = load_pipeline(write(changed(("changefeed", "start_ts"), 464626526453760000)))
    assert declared.changefeed.hash == load_pipeline(write(SHOP)).changefeed.hash


def test_messages_to_set_aside_are_named_by_place(write):
    places = ["shop[2]@4711", "shop.orders[0]@0#3"]
    assert load_pipeline(write(changed(("set_aside",), places))).pipeline.set_aside == tuple(places)
    for wrong in ("shop@4711", "shop[2]", "shop[2]@x", "shop[2]@1#", "[2]@1", "shop[2]@1 "):
        with pytest.raises(ConfigError, match=r"set_aside\[0\][\s\S]*topic\[partition\]@offset"):
            load_pipeline(write(changed(("set_aside",), [wrong])))


def test_the_toml_is_read_from_a_path_relative_to_the_file(write, tmp_path):
    (tmp_path / "changefeed.toml").write_text("[sink.kafka-config]\nmax-message-bytes = 4000\nfoo = 1\n")
    loaded = load_pipeline(write(changed(("changefeed", "config_file"), "changefeed.toml")))
    assert loaded.changefeed.max_message_bytes == 4000
    assert loaded.warnings == (f"{tmp_path}/changefeed.toml: sink.kafka-config.foo is unknown to TiCDC and ignored",)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("name",), "Shop", "name: not allowed; it must match"),
        (
            ("colour",),
            "red",
            "colour: unknown key; allowed: name, description, changefeed, connections, artifacts, tables, ",
        ),
        (("targets", 0, "schema"), 5, "targets[0].schema: Input should be a valid string"),
        (
            ("targets", 0, "shema"),
            "shop",
            "targets[0].shema: unknown key, did you mean schema? allowed: name, type, shape, schema, ",
        ),
        (
            ("schedule", "crn"),
            "@daily",
            "schedule.crn: unknown key, did you mean cron? allowed: cron, timezone, start, end, ",
        ),
        (("targets", 0, "shape"), [{"mask": "hash"}], "targets[0].shape[0].mask: Input should be a valid dictionary"),
        (("targets", 0, "type"), "oracle", "targets[0].type: not allowed; allowed: 'postgres', 'mysql', "),
        (("targets", 1), {"name": "lake"}, "targets[1].type: missing"),
        (("targets", 1), {"name": "lake", "type": "parquet"}, "targets[1].uri: missing"),
        (("targets", 1, "uri"), "hdfs://lake", "targets[1].uri: must look like s3://bucket/prefix, gs://bucket/prefix"),
        (("targets", 1, "connection"), None, "targets[1].connection: missing"),
        (("targets", 1, "name"), "warehouse", "targets: the name 'warehouse' occurs more than once"),
        (("targets",), [], "targets: empty; give at least one"),
        (("schedule", "cron"), "0 0 * *", "schedule.cron: must be a cron expression"),
        (("schedule", "cron"), "61 * * * *", "schedule.cron: must be a cron expression"),
        (("schedule", "timezone"), "Mars/Olympus", "schedule.timezone: must be an IANA time zone"),
        (("schedule", "start"), "2026-03-01T00:00:00", "schedule.start: Input should have timezone info"),
        (("window", "poll_seconds"), 1, "window.poll_seconds: too small; at least 6"),
        (("policies", "quarantine"), "ignore", "policies.quarantine: not allowed; allowed: 'stop' or 'continue'"),
        (("tables",), ["orders"], "tables[0]: must be of the form schema.table"),
        (("connections", "kafka"), "kafka://broker:9092", "connections.kafka: not allowed; it must match"),
        (("connections", "artifacts"), None, "connections.artifacts: missing"),
        (("artifacts",), "file:///var/replay", "connections.artifacts: remove it"),
        (("changefeed", "timezone"), "China", "changefeed.timezone: must be an IANA time zone"),
        (("changefeed", "start_ts"), 1772409540350, "changefeed.start_ts: must be a TSO"),
        (("changefeed", "start_ts"), 1 << 63, "changefeed.start_ts: must be a TSO"),
        (("changefeed", "start_ts"), "2026-03-01T00:00:00Z", "changefeed.start_ts: not a whole number"),
        (("changefeed", "sink_uri"), "kafka://b/t?protocol=x", "changefeed.sink_uri: parameter protocol: 'x' is not"),
        (("changefeed", "config_file"), "missing.toml", "changefeed.config_file:"),
        (("changefeed", "config"), "sink = [", "changefeed.config: not valid TOML"),
    ],
)
def test_a_wrong_value_is_told_with_its_key_and_what_is_allowed(error_of, path, value, message):
    assert message in error_of(changed(path, value))


def test_all_findings_are_told_at_once(error_of):
    document = changed(("policies",), {"quarantine": "no", "unproven": "no"})
    assert len(error_of(document).splitlines()) == 2


def test_toml_inline_and_by_path_exclude_each_other(error_of):
    document = changed(("changefeed", "config"), "")
    document["changefeed"]["config_file"] = "a.toml"
    assert "`config` and `config_file` exclude each other" in error_of(document)


CLAIM_CHECK = """
[sink.kafka-config.large-message-handle]
large-message-handle-option = "claim-check"
claim-check-storage-uri = "{uri}"
"""


def test_a_claim_check_store_needs_a_connection_and_a_local_folder_must_not_have_one(error_of, write):
    in_s3 = changed(("changefeed", "config"), CLAIM_CHECK.format(uri="s3://claims/shop"))
    assert "connections.claim_check: missing" in error_of(in_s3)
    in_s3["connections"]["claim_check"] = "claims"
    assert load_pipeline(write(in_s3)).changefeed.claim_check_uri == "s3://claims/shop"
    local = changed(("changefeed", "config"), CLAIM_CHECK.format(uri="file:///var/claims"))
    assert load_pipeline(write(local)).changefeed.large_message == "claim-check"
    local["connections"]["claim_check"] = "claims"
    assert "connections.claim_check: remove it" in error_of(local)


def test_reading_rows_again_needs_a_source_and_anything_may_have_one(error_of, write):
    reread = changed(("policies",), {"handle_key_only": "reread"})
    assert "connections.source: name the Airflow connection (type tidb or mysql)" in error_of(reread)
    reread["connections"]["source"] = "upstream"
    assert load_pipeline(write(reread)).pipeline.connections.source == "upstream"
    assert (
        load_pipeline(write(changed(("connections", "source"), "upstream"))).pipeline.connections.source == "upstream"
    )


@pytest.mark.parametrize("schema", ["_ticdc_replay", "pg_stats", "information_schema"])
def test_tables_in_a_schema_that_postgresql_reserves_need_another_in_the_target(error_of, write, schema):
    document = changed(["tables"], ["shop.*", f"{schema}.orders"])
    assert load_pipeline(write(document)).pipeline.tables[1] == f"{schema}.orders"
    del document["targets"][0]["schema"]
    assert f"{schema} is reserved in PostgreSQL; name another schema in targets[0].schema" in error_of(document)
    load_pipeline(write({**document, "tables": ["*.*", "PG_Stats.orders"]}))


def test_avro_needs_a_schema_registry_and_other_protocols_must_not_have_one(error_of, write):
    uri = "kafka://broker:9092/topic?protocol=avro"
    avro = changed(("changefeed", "sink_uri"), uri)
    assert "connections.schema_registry: missing" in error_of(avro)
    assert "(type http, or aws for AWS Glue)" in error_of(avro)
    glue = '[sink.kafka-config.glue-schema-registry-config]\nregion = "eu-west-1"\nregistry-name = "r"'
    avro["changefeed"]["config"] = glue
    assert "(type aws, for AWS Glue)" in error_of(avro)
    avro["connections"]["schema_registry"] = "registry"
    assert load_pipeline(write(avro)).pipeline.connections.schema_registry == "registry"
    other = changed(("connections", "schema_registry"), "registry")
    assert "connections.schema_registry: remove it; protocol open-protocol uses no schema registry" in error_of(other)


@pytest.mark.parametrize(
    "uri",
    [
        "kafka://broker:9092/topic?protocol=avro&schema-registry=http://reader:geheim@registry:8081",
        "kafka://broker:9092/topic?protocol=avro&schema-registry=http%3A%2F%2Freader%3Ageheim%40registry%3A8081",
    ],
)
def test_a_password_in_the_address_of_the_schema_registry_is_refused(error_of, uri):
    message = error_of(changed(("changefeed", "sink_uri"), uri))
    assert "holds a password" in message
    assert "geheim" not in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nname: b\n", "line 2, column 1: the key 'name' occurs more than once"),
        ("targets:\n  - {name: a, name: b}\n", "line 2, column 15: the key 'name' occurs more than once"),
        ("name: [\n", "line 2, column 1:"),
        ("- a\n- b\n", "must be a mapping of keys"),
        ("", "must be a mapping of keys"),
        ("!!python/object:os.system {}", "could not determine a constructor"),
        ("name: \x07", "is not valid YAML"),
    ],
)
def test_text_that_is_no_mapping_is_told_with_line_and_column(error_of, text, message):
    assert message in error_of(text)


def test_files_that_cannot_be_read_are_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_pipeline(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xfc\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_pipeline(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("connections", "password"), "hunter2", "connections.password"),
        (("targets", 0, "password"), "hunter2", "targets[0].password"),
        (("artifacts",), "s3://key:hunter2@lake/replay", "artifacts: the URI holds a password"),
        (
            ("targets", 1, "uri"),
            "s3://lake/shop?secret_access_key=hunter2",
            "targets[1].uri: parameter secret_access_key",
        ),
        (("spark", "conf"), {"spark.hadoop.fs.s3a.secret.key": "hunter2"}, "spark.conf.spark.hadoop.fs.s3a.secret.key"),
        (("changefeed", "sink_uri"), SHOP["changefeed"]["sink_uri"] + "&sasl-password=hunter2", "sasl-password"),
        (("changefeed", "config"), '[sink.kafka-config]\nsasl-password = "hunter2"', "sink.kafka-config.sasl-password"),
    ],
)
def test_a_secret_anywhere_is_refused_without_its_value(error_of, path, value, place):
    message = error_of(changed(path, value), SecretInConfigError)
    assert place in message
    assert "Airflow connection" in message
    assert "hunter2" not in message


def test_broken_yaml_is_told_without_quoting_the_file(error_of):
    assert "hunter2" not in error_of("password: hunter2: [\n")


def test_the_committed_json_schema_is_current_and_accepts_what_loads():
    assert COMMITTED_SCHEMA.read_text() == rendered(COMMITTED_SCHEMA.name), "run: make schema"
    jsonschema.Draft202012Validator.check_schema(json_schema(COMMITTED_SCHEMA.name))
    jsonschema.validate(SHOP, json.loads(rendered(COMMITTED_SCHEMA.name)))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed(("targets", 0, "type"), "oracle"), json.loads(rendered(COMMITTED_SCHEMA.name)))


INFO = json.dumps({"sink_uri": "kafka://b/shop?protocol=open-protocol", "start_ts": 464626526453760000, "config": {}})


def with_changefeed(**members):
    return {**SHOP, "changefeed": {"timezone": "UTC", **members}}


def test_a_changefeed_may_be_given_by_what_ticdc_prints_inline_or_by_path(write, tmp_path):
    (tmp_path / "info.json").write_text(INFO)
    for info in (INFO, "info.json"):
        loaded = load_pipeline(write(with_changefeed(info=info)))
        assert loaded.changefeed.topic == "shop"
        assert loaded.start_ts == 464626526453760000


def test_a_declared_start_and_end_win_over_what_ticdc_prints(write):
    start, end = 464626526453760001, 464626526453760002
    loaded = load_pipeline(write(with_changefeed(info=INFO, start_ts=start, target_ts=end)))
    assert (loaded.start_ts, loaded.target_ts) == (start, end)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "give the changefeed by `sink_uri` or by `info`"),
        ({"info": INFO, "sink_uri": "kafka://b/t?protocol=simple"}, "give the changefeed by `sink_uri` or by `info`"),
        ({"info": INFO, "config": "[sink]"}, "`info` holds the whole configuration"),
        ({"info": "missing.json"}, "changefeed.info: "),
    ],
)
def test_one_way_of_giving_the_changefeed_is_enough(error_of, members, message):
    assert message in error_of(with_changefeed(**members))


def test_the_flag_of_the_schema_registry_is_a_key(write):
    uri = "kafka://b/t?protocol=avro"
    document = with_changefeed(sink_uri=uri, schema_registry="http://registry:8081")
    document["connections"] = {**document["connections"], "schema_registry": "registry"}
    loaded = load_pipeline(write(document))
    assert (loaded.changefeed.schema_registry, loaded.registry) == ("confluent", "http://registry:8081")


@pytest.mark.parametrize(
    ("pattern", "written"),
    [("shop.order-items", "shop.order_items"), ("shop.2024_*", "shop._2024_*"), ("shop.表?", "shop._?")],
)
def test_names_that_avro_can_not_have_are_refused_with_those_it_has(error_of, write, pattern, written):
    avro = changed(("changefeed", "sink_uri"), "kafka://broker:9092/topic?protocol=avro")
    avro["connections"]["schema_registry"] = "registry"
    avro["tables"] = ["shop.orders", pattern]
    assert "tables[1]: protocol avro writes _ for characters" in error_of(avro)
    assert f"write {written}" in error_of(avro)
    avro["tables"] = [written]
    assert load_pipeline(write(avro)).pipeline.tables == (written,)
