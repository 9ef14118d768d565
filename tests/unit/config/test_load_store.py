"""Loading store files."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from ticdc_replay.config.json_schema import json_schema, rendered
from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain.errors import ConfigError, SecretInConfigError

COMMITTED_SCHEMA = Path(__file__).parents[3] / "include" / "stores" / "store.schema.json"

STORE = yaml.safe_load("""
name: shop_claims
uri: s3://shop/claims/
pipelines: [shop, stock]
owners_complete: true
connections: {store: shop_s3, deletion: shop_s3_delete, artifacts: lake}
artifacts: s3://lake/reconciliation
schedule: {start: "2026-03-01T00:00:00Z"}
deletion: {policy: approval}
""")


def pipeline(name, uri):
    document = yaml.safe_load(f"""
name: {name}
changefeed:
  sink_uri: kafka://broker:9092/{name}?protocol=open-protocol
  timezone: UTC
connections: {{kafka: shop_kafka, artifacts: lake, claim_check: shop_s3}}
artifacts: s3://lake/replay
schedule: {{start: "2026-03-01T00:00:00Z"}}
targets: [{{name: lake, type: parquet, uri: "s3://lake/{name}", connection: lake}}]
""")
    if uri is None:
        del document["connections"]["claim_check"]
        return document
    large = f'large-message-handle-option = "claim-check"\nclaim-check-storage-uri = "{uri}"'
    document["changefeed"]["config"] = f"[sink.kafka-config.large-message-handle]\n{large}\n"
    return document


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name, uri in (
        ("shop", "s3://shop/claims"),
        ("stock", "s3://shop/claims/?region=eu"),
        ("else", "s3://shop/other"),
    ):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(pipeline(name, uri)))
    return folder


@pytest.fixture
def load(tmp_path, folder):
    def load(**changes):
        document = copy.deepcopy(STORE)
        for path, value in changes.items():
            *parents, last = path.split("__")
            place = document
            for part in parents:
                place = place.setdefault(part, {})
            place[last] = value
        file = tmp_path / "claims.yaml"
        file.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not None}))
        return load_store(file, folder)

    return load


def test_a_complete_file_loads_with_its_pipelines(load):
    loaded = load()
    assert loaded.store.uri == "s3://shop/claims"
    assert [found.pipeline.name for found in loaded.pipelines] == ["shop", "stock"]
    assert loaded.unlisted == ()
    assert loaded.owners_complete


def test_nothing_is_deleted_by_default_and_nobody_knows_all_owners(load):
    store = load(deletion=None, owners_complete=None, connections__deletion=None).store
    assert store.deletion.policy == "never"
    assert store.owners_complete is False
    assert (store.deletion.grace_hours, store.rules.young_hours) == (168, 24)


def test_to_stop_a_deletion_nothing_but_the_policy_has_to_change(load):
    assert load(connections__undo="shop_s3_undo", deletion__policy="never").store.deletion.policy == "never"


def test_a_folder_takes_no_connection(load, folder):
    (folder / "shop.yaml").write_text(
        yaml.safe_dump(pipeline("shop", "file:///claims") | {"connections": {"kafka": "k", "artifacts": "l"}})
    )
    loaded = load(uri="file:///claims", pipelines=["shop"], connections={"artifacts": "lake"}, deletion=None)
    assert loaded.owners_complete


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pipelines": ["shop", "else"]}, "the changefeed of else (*) writes to s3://shop/other, not to s3://shop/claims"),
        ({"pipelines": ["shop", "none"]}, "pipelines: no file in * has the pipeline none"),
        ({"pipelines": ["shop"]}, "owners_complete: is true, but: *stock.yaml writes to s3://shop/claims and is not listed"),
        ({"pipelines": ["shop", "shop"]}, "pipelines: the name 'shop' occurs more than once"),
        ({"pipelines": []}, "pipelines: empty; give at least one"),
        ({"deletion__grace_hours": 0}, "deletion.grace_hours: too small; at least 1"),
        ({"former_pipelines": ["shop"]}, "former_pipelines: 'shop' is listed in pipelines, too"),
        ({"owners_complete": False}, "owners_complete: must be true where deletion.policy is approval"),
        ({"connections__deletion": None}, "connections.deletion: missing"),
        ({"connections__deletion": "shop_s3"}, "connections: store, deletion and undo must differ, and 'shop_s3' occurs"),
        ({"connections__undo": "shop_s3_delete"}, "store, deletion and undo must differ, and 'shop_s3_delete' occurs"),
        ({"deletion__policy": "always"}, "deletion.policy: not allowed; allowed: 'never', 'approval' or 'automatic'"),
        ({"connections__store": None}, "connections.store: missing; name the Airflow connection (type aws) for uri"),
        ({"connections__inventory": "x"}, "connections.inventory: remove it; inventory.source is listing"),
        ({"inventory": {"source": "s3_inventory"}}, "inventory: manifest: give it where source is s3_inventory"),
        ({"inventory": {"manifest": "s3://a/b"}}, "inventory: manifest: give it where source is s3_inventory"),
        ({"rules": {"young_hour": 3}}, "rules.young_hour: unknown key, did you mean young_hours?"),
        ({"rules": {"young_hours": 0}}, "rules.young_hours: "),
        ({"schedule": None}, "schedule: missing"),
        ({"uri": "hdfs://a/b"}, "uri: must look like s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"),
        ({"uri": "gs://a/b"}, "uri: gs://a/b can't be reconciled"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_file_and_key(load, tmp_path, changes, message):
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    first, *rest = message.split("*")
    said = str(caught.value).removeprefix(f"{tmp_path / 'claims.yaml'}: ")
    assert first in said
    assert all(part in said for part in rest)


def test_a_pipeline_that_uses_no_store_is_refused(load, folder):
    (folder / "else.yaml").write_text(yaml.safe_dump(pipeline("else", None)))
    with pytest.raises(ConfigError, match="uses no claim-check store, not to"):
        load(pipelines=["shop", "else"])


def test_two_files_of_one_pipeline_are_refused(load, folder):
    (folder / "again.yml").write_text((folder / "shop.yaml").read_text())
    with pytest.raises(ConfigError, match=r"has the name shop too"):
        load()


def test_an_owner_that_is_not_listed_is_named_where_nothing_may_be_deleted(load):
    loaded = load(pipelines=["shop"], owners_complete=False, deletion=None, connections__deletion=None)
    assert not loaded.owners_complete
    assert [text for text in loaded.unlisted if "stock.yaml" in text] == list(loaded.unlisted)


@pytest.mark.parametrize(
    "uri", ["s3://shop//claims", "s3://shop/claims//", "s3://shop/./claims", "s3://shop/a/../claims"]
)
def test_an_owner_that_spells_the_store_in_another_way_is_an_owner(load, folder, uri):
    (folder / "else.yaml").write_text(yaml.safe_dump(pipeline("else", uri)))
    with pytest.raises(ConfigError, match=r"else.yaml writes to .* and is not listed"):
        load()


@pytest.mark.parametrize("path", ["{}//claims/", "{}/./claims", "/{}/claims", "{}/link"])
def test_a_folder_is_one_folder_however_it_is_spelled(load, folder, tmp_path, path):
    (tmp_path / "link").symlink_to(tmp_path / "claims")
    for name, uri in (("shop", f"file://{tmp_path}/claims"), ("else", f"file://{path.format(tmp_path)}")):
        connections = {"connections": {"kafka": "k", "artifacts": "l"}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(pipeline(name, uri) | connections))
    with pytest.raises(ConfigError, match=r"else.yaml writes to .* and is not listed"):
        load(uri=f"file://{tmp_path}/claims", pipelines=["shop"], connections={"artifacts": "lake"}, deletion=None)


def test_a_listed_pipeline_may_have_slashes_that_mean_nothing(load, folder):
    (folder / "stock.yaml").write_text(yaml.safe_dump(pipeline("stock", "s3://shop//claims//")))
    assert [found.changefeed.claim_check_uri for found in load().pipelines] == ["s3://shop/claims"] * 2


def test_a_pipeline_that_cannot_be_loaded_may_be_an_owner(load, folder):
    (folder / "broken.yaml").write_text("name: broken")
    loaded = load()
    assert loaded.store.owners_complete
    assert not loaded.owners_complete, "nothing may be deleted"
    assert "broken.yaml can't be loaded" in loaded.unlisted[0]


def test_a_secret_is_refused(load):
    with pytest.raises(SecretInConfigError):
        load(spark={"conf": {"spark.hadoop.fs.s3a.secret.key": "hunter2"}})


def test_the_committed_json_schema_is_current_and_accepts_what_loads():
    schema = json_schema(COMMITTED_SCHEMA.name)
    assert COMMITTED_SCHEMA.read_text() == rendered(COMMITTED_SCHEMA.name), "run: make schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(STORE, json.loads(rendered(COMMITTED_SCHEMA.name)))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(STORE | {"deletion": {"policy": "always"}}, schema)
