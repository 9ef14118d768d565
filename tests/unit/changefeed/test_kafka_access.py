"""How TiCDC reaches its brokers, as fields of a connection; tests/integration/kafka/test_security.py tries them."""

import pytest

from ticdc_replay.changefeed.sink_uri import from_sink_uri
from ticdc_replay.domain.errors import ConfigError


def access(parameters="", kafka_config=""):
    toml = f"[sink.kafka-config]\n{kafka_config}"
    return from_sink_uri(f"kafka://b-1:9092,b-2:9092/t?protocol=simple{parameters}", toml, "UTC", "shop.yaml").access


def fields(found):
    return {field.name: field.value for field in found.fields}


def test_without_security_a_connection_needs_the_brokers():
    assert fields(access()) == {"bootstrap.servers": "b-1:9092,b-2:9092", "security.protocol": "PLAINTEXT"}


def test_gssapi_asks_for_a_keytab_of_the_readers_own():
    found = access(
        "&sasl-mechanism=GSSAPI&sasl-gssapi-service-name=kfk&sasl-gssapi-user=cdc&sasl-gssapi-realm=EXAMPLE.ORG",
        'sasl-gssapi-keytab-path = "/etc/cdc.keytab"\n'
        'sasl-gssapi-kerberos-config-path = "/etc/krb5.conf"\nsasl-gssapi-auth-type = "KEYTAB"',
    )
    assert fields(found) == {
        "bootstrap.servers": "b-1:9092,b-2:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kfk",
        "sasl.kerberos.principal": None,
        "sasl.kerberos.keytab": None,
    }
    assert "TiCDC's own is cdc@EXAMPLE.ORG" in found.hint()
    assert "krb5.conf must be as TiCDC's /etc/krb5.conf" in found.hint()
    assert "/etc/cdc.keytab" not in found.hint(), "a path of TiCDC's machines"


def test_gssapi_by_password_is_told_to_be_impossible_for_readers():
    assert "by password, which readers can't" in access("&sasl-mechanism=gssapi&sasl-gssapi-auth-type=USER").hint()


def test_an_audience_is_told_although_the_client_can_not_ask_for_it():
    found = access(
        "&sasl-mechanism=OAUTHBEARER",
        'sasl-oauth-client-id = "cdc"\nsasl-oauth-token-url = "https://id/token"\nsasl-oauth-audience = "kafka"',
    )
    assert "audience kafka" in found.hint()


@pytest.mark.parametrize(
    ("parameters", "kafka_config", "protocol"),
    [
        ("&enable-tls=true", "", "SSL"),
        ("", "enable-tls = true", "SSL"),
        ("&ca=/ca&cert=/c&key=/k", "", "SSL"),
        ("&ca=/ca&cert=/c&key=xxxxx", "", "SSL"),
        ("&ca=/ca", "", "PLAINTEXT"),
        ("&enable-tls=false", "enable-tls = true", "PLAINTEXT"),
        ("&enable-tls=true&sasl-mechanism=PLAIN", 'sasl-user = "cdc"', "SASL_SSL"),
    ],
)
def test_tls_is_on_where_ticdc_turns_it_on(parameters, kafka_config, protocol):
    assert fields(access(parameters, kafka_config))["security.protocol"] == protocol


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("&sasl-mechanism=DIGEST-MD5", "'DIGEST-MD5' is not allowed; allowed: PLAIN, SCRAM-SHA-256"),
        ("&sasl-user=cdc", "sasl-mechanism: missing, though sasl-user is given"),
        ("&ca=/ca&cert=/c&key=/k&enable-tls=false", "TiCDC refuses false where ca, cert and key are given"),
    ],
)
def test_what_ticdc_refuses_is_refused(parameters, message):
    with pytest.raises(ConfigError, match=message):
        access(parameters)
