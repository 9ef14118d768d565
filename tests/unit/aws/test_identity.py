"""An AWS identity is what the connection says; fields that contradict each other are refused."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from ticdc_replay.aws.identity import AwsIdentity
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, TicdcReplayError


def identity(login: str | None = None, password: str | None = None, **extra: Any) -> AwsIdentity:
    return AwsIdentity.of(Connection("aws_main", "aws", login=login, password=password, extra=extra))


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def test_a_key_is_used_as_it_is_unless_it_assumes_a_role() -> None:
    assert identity("key", "hidden", aws_session_token="t").static_key == ("key", "hidden", "t")
    assert identity("key", "hidden", role_arn="arn").static_key is None
    assert identity().static_key is None


def test_both_ways_to_write_an_external_id_mean_the_same() -> None:
    kwargs = {"ExternalId": "x", "DurationSeconds": 3600}
    one = identity(role_arn="arn", external_id="x", assume_role_kwargs={"DurationSeconds": 3600})
    assert one == identity(role_arn="arn", assume_role_kwargs=kwargs)
    assert dict(one.role_arguments) == kwargs


def test_the_endpoint_of_a_store_is_not_that_of_sts() -> None:
    found = identity(endpoint_url="http://store", service_config={"glue": {"endpoint_url": "http://glue"}})
    assert [found.endpoint(service) for service in ("s3", "glue", "sts")] == ["http://store", "http://glue", None]


def test_it_travels_and_shows_no_secret() -> None:
    made = identity("key", "hidden", role_arn="arn", external_id="x")
    assert pickle.loads(pickle.dumps(made)) == made
    assert "hidden" not in repr(made)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"verify": False}, "extra verify not supported; allowed: endpoint_url"),
        ({"role_arn": 1}, "role_arn must be a text"),
        ({"external_id": "x"}, "external_id needs role_arn"),
        (
            {"assume_role_method": "assume_role_with_saml", "role_arn": "a"},
            "allowed: assume_role, assume_role_with_web",
        ),
        ({"role_arn": "a", "assume_role_kwargs": {"Policy": "x"}}, "assume_role_kwargs: Policy not supported"),
        ({"role_arn": "a", "assume_role_kwargs": {"DurationSeconds": "900"}}, "DurationSeconds must be of type int"),
        ({"role_arn": "a", "assume_role_kwargs": {"DurationSeconds": 900}}, "must be 1800 to 43200"),
        ({"role_arn": "a", "assume_role_kwargs": {"DurationSeconds": -1}}, "must be 1800 to 43200"),
        ({"role_arn": "a", "assume_role_kwargs": "x"}, "assume_role_kwargs must be a JSON object"),
        ({"role_arn": "a", "external_id": "x", "assume_role_kwargs": {"ExternalId": "y"}}, "differ; remove one"),
        ({"service_config": {"ec2": {}}}, "ec2 not supported; allowed: s3, sts, glue"),
        ({"service_config": {"s3": {"verify": 1}}}, "verify not supported; allowed: endpoint_url"),
        ({"login": "key"}, "set both or neither"),
        ({"aws_session_token": "t"}, "belongs to a key"),
        ({"login": "key", "password": "hidden", "profile_name": "p"}, "two identities"),
        (
            {
                "login": "key",
                "password": "hidden",
                "role_arn": "a",
                "assume_role_method": "assume_role_with_web_identity",
            },
            "the token is the identity",
        ),
    ],
)
def test_fields_that_make_no_sense_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        identity(**fields)
    assert "aws_main" in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "kind", "said"),
    [
        ({"profile_name": "nowhere"}, ConfigError, "nowhere.*every machine that runs tasks"),
        (
            {"role_arn": "a", "assume_role_method": "assume_role_with_web_identity"},
            ConfigError,
            "set AWS_WEB_IDENTITY_TOKEN_FILE",
        ),
        (
            {
                "role_arn": "a",
                "assume_role_method": "assume_role_with_web_identity",
                "assume_role_with_web_identity_token_file": "/no/such/token",
            },
            AuthenticationError,
            "cannot read the token of the web identity.*/no/such/token",
        ),
        ({"role_arn": "arn:aws:iam::1:role/x"}, AuthenticationError, "no credentials to assume arn:aws:iam::1:role/x"),
    ],
)
def test_an_identity_that_the_machine_lacks_is_an_error_with_a_remedy(
    fields: dict[str, Any], kind: type[TicdcReplayError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        identity(region_name="eu-west-1", **fields).credentials().get_frozen_credentials()
