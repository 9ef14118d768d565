"""AWS Glue's registry, against moto."""

import uuid

import boto3
import msgspec
import pytest

from tests.support import sts
from tests.support.schema_registry import Registry, serve
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, TransientError
from ticdc_replay.registry import glue, open_registry

pytestmark = pytest.mark.integration

TEXT = '{"type":"record","name":"t","fields":[{"name":"id","type":"long"}]}'
LATER = TEXT.replace("long", "string")


def opened(endpoint):
    extra = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    return open_registry(Connection("glue", "aws", login="replay", password="secret", extra=extra))


def test_each_version_of_a_schema_is_found_by_its_uuid(s3):
    client = boto3.client(
        "glue", endpoint_url=s3.endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    name = f"registry-{uuid.uuid4().hex[:12]}"
    client.create_registry(RegistryName=name)
    schema = {"RegistryName": name, "SchemaName": "topic-value"}
    first = client.create_schema(
        RegistryId={"RegistryName": name},
        SchemaName="topic-value",
        DataFormat="AVRO",
        Compatibility="NONE",
        SchemaDefinition=TEXT,
    )["SchemaVersionId"]
    second = client.register_schema_version(SchemaId=schema, SchemaDefinition=LATER)["SchemaVersionId"]
    registry = opened(s3.endpoint)
    assert [registry.text(version) for version in (first, second)] == [TEXT, LATER]


def test_an_unknown_uuid_is_no_error(s3):
    assert opened(s3.endpoint).text(str(uuid.uuid4())) is None


def test_what_is_no_uuid_is_not_asked_for():
    assert opened("http://127.0.0.1:9").text("1") is None


@pytest.mark.parametrize("code", ["UnrecognizedClientException", "AccessDeniedException", "ExpiredTokenException"])
def test_credentials_that_are_refused(code):
    refusal = (400, f'{{"__type": "{code}", "message": "no"}}')
    with serve(Registry(answers=[refusal])) as aws, pytest.raises(AuthenticationError, match="connection 'glue'"):
        opened(f"http://127.0.0.1:{aws.port}").text(str(uuid.uuid4()))


def test_a_service_that_is_away_is_transient(monkeypatch):
    monkeypatch.setattr(glue, "_CONFIG", glue._CONFIG.merge(glue.Config(retries={"total_max_attempts": 1})))
    with pytest.raises(TransientError):
        opened("http://127.0.0.1:9").text(str(uuid.uuid4()))


def test_a_role_is_assumed_and_assumed_again(s3):
    with sts.sts() as identities, sts.gate(s3, identities) as gate:
        extra = {
            "endpoint_url": gate.endpoint,
            "region_name": "us-east-1",
            "role_arn": sts.ROLE,
            "external_id": sts.EXTERNAL_ID,
            "service_config": {"sts": {"endpoint_url": identities.url}},
        }
        connection = Connection("glue", "aws", login=sts.BASE_KEY, password=sts.BASE_SECRET, extra=extra)
        registry = open_registry(connection)
        assert registry.text(str(uuid.uuid4())) is None
        identities.expire()
        assert registry.text(str(uuid.uuid4())) is None
        assert len(identities.issued) >= 2
        assert (gate.refused, len(gate.requests)) == (0, 2)
        wrong = open_registry(msgspec.structs.replace(connection, extra=extra | {"external_id": "another"}))
        with pytest.raises(AuthenticationError, match="check role_arn, external_id"):
            wrong.text(str(uuid.uuid4()))
