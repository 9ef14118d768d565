"""Tokens for MSK: which connections select them, and what is in one."""

import base64
import pickle
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support import sts as fake
from tests.support.sts import BASE_KEY, BASE_SECRET, EXTERNAL_ID, ROLE
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, ConfigError
from ticdc_replay.kafka.msk import MskTokens
from ticdc_replay.kafka.settings import KafkaSettings

BROKERS = "b-1.demo.abcde1.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.demo.abcde1.c2.kafka.eu-west-1.amazonaws.com:9098"


def settings(login: str | None = BASE_KEY, password: str | None = BASE_SECRET, **extra: Any) -> KafkaSettings:
    fields = {"bootstrap.servers": BROKERS, "sasl.mechanisms": "AWS_MSK_IAM"} | extra
    return KafkaSettings.from_connection(Connection("msk", "kafka", login=login, password=password, extra=fields))


def url_in(token: str) -> str:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


def signature(url: str, credentials: Credentials, monkeypatch: pytest.MonkeyPatch) -> str:
    """What botocore signs the same question with, at the time and for as long as *url* says."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    signed = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda remove_tzinfo=True: signed.replace(tzinfo=None))
    region = query["X-Amz-Credential"].split("/")[2]
    request = AWSRequest("GET", f"https://kafka.{region}.amazonaws.com/", params={"Action": "kafka-cluster:Connect"})
    SigV4QueryAuth(credentials, "kafka-cluster", region, expires=int(query["X-Amz-Expires"])).add_auth(request)
    return parse_qs(urlsplit(request.url).query)["X-Amz-Signature"][0]


def test_a_token_file_that_is_gone_is_an_error_of_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/such/token")
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    tokens = settings(None, None).tokens
    assert tokens is not None
    with pytest.raises(AuthenticationError, match="/no/such/token"):
        tokens("")


def test_a_token_is_a_signed_url_in_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = settings().tokens
    assert isinstance(tokens, MskTokens)
    token, expires = tokens("")
    assert not set(token) & set("=+/"), "the alphabet for URLs, without padding"
    url = url_in(token)
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    assert urlsplit(url)[:3] == ("https", "kafka.eu-west-1.amazonaws.com", "/")
    assert (query["Action"], query["User-Agent"]) == ("kafka-cluster:Connect", "ticdc-replay")
    assert query["X-Amz-Credential"].split("/")[0] == BASE_KEY
    assert query["X-Amz-Credential"].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert query["X-Amz-SignedHeaders"] == "host"
    assert 890 <= int(query["X-Amz-Expires"]) <= 900
    assert 880 < expires - time.time() <= 900
    assert BASE_SECRET not in url
    assert query["X-Amz-Signature"] == signature(url, Credentials(BASE_KEY, BASE_SECRET), monkeypatch)


def test_a_token_of_a_role_ends_with_the_role_s_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake.sts() as sts:
        service = {"sts": {"endpoint_url": sts.url}}
        tokens = settings(role_arn=ROLE, external_id=EXTERNAL_ID, service_config=service).tokens
        assert tokens is not None
        token, expires = tokens("")
        (issued,) = sts.issued
        query = parse_qs(urlsplit(url_in(token)).query)
        assert query["X-Amz-Security-Token"] == [issued.token]
        assert query["X-Amz-Credential"][0].startswith(issued.key_id)
        assert abs(expires - issued.expires.timestamp()) < 1
        assert int(query["X-Amz-Expires"][0]) <= sts.lifetime_s
        made = signature(url_in(token), Credentials(issued.key_id, issued.secret, issued.token), monkeypatch)
        assert query["X-Amz-Signature"] == [made]
        _, later = tokens("")
        assert later > expires - 1
        assert len(sts.issued) == 2, "credentials that end within ten minutes are not signed with again"
        wrong = settings(role_arn=ROLE, external_id="another", service_config=service).tokens
        assert wrong is not None
        with pytest.raises(AuthenticationError, match=r"token for MSK.*'msk'.*check role_arn, external_id"):
            wrong("")


def test_clients_are_told_to_use_tokens_over_tls_and_get_no_field_of_aws() -> None:
    made = settings(role_arn=ROLE, external_id=EXTERNAL_ID)
    for rendered in (made.consumer(), made.admin()):
        assert rendered["sasl.mechanisms"] == "OAUTHBEARER"
        assert rendered["security.protocol"] == "SASL_SSL"
        assert not {"role_arn", "external_id", "sasl.username", "sasl.password"} & set(rendered)
    assert pickle.loads(pickle.dumps(made)) == made
    assert BASE_SECRET not in repr(made.tokens)


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        ("boot-abc.c2.kafka-serverless.us-east-2.amazonaws.com:9098", "us-east-2"),
        ("b-1.x.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
    ],
)
def test_the_region_is_that_of_the_brokers(servers: str, region: str) -> None:
    tokens = settings(**{"bootstrap.servers": servers}).tokens
    assert isinstance(tokens, MskTokens)
    assert tokens.region == region


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"bootstrap.servers": "broker:9098"}, "no region for AWS_MSK_IAM: set extra region_name"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "must not be sent without TLS"),
        ({"external_id": "x"}, "external_id needs role_arn"),
        ({"role_arn": ["a"]}, "role_arn must be a text"),
    ],
)
def test_a_connection_that_makes_no_sense_is_refused(extra: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings(**extra)


def test_other_mechanisms_make_no_tokens() -> None:
    made = settings(**{"sasl.mechanisms": "SCRAM-SHA-512"})
    assert made.tokens is None
    assert made.consumer()["sasl.password"] == BASE_SECRET


def test_credentials_that_have_expired_sign_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake.sts() as sts:
        sts.lifetime_s = -timedelta(seconds=5).total_seconds()
        service = {"sts": {"endpoint_url": sts.url}}
        tokens = settings(role_arn=ROLE, external_id=EXTERNAL_ID, service_config=service).tokens
        assert tokens is not None
        with pytest.raises(Exception, match="expired"):
            tokens("")
