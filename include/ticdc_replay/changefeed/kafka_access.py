"""How TiCDC reaches its brokers, as the fields that an Airflow connection of type ``kafka`` needs to reach them the same way.

The fields are librdkafka's own keys in the connection's extra. Paths and accounts in a sink-uri are TiCDC's own. They are
named in notes and never copied: readers have files and, best, an account of their own.
"""

from typing import Literal
from urllib.parse import SplitResult

import msgspec

from ticdc_replay.changefeed.options import Options
from ticdc_replay.domain.errors import ConfigError

SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"]

_MECHANISMS: tuple[SaslMechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")
_KAFKA = "sink.kafka-config"


class ConnectionField(msgspec.Struct, frozen=True):
    """A field of the connection: a key of its extra. ``value`` is None for secrets and for what only the reader's side knows."""

    name: str
    value: str | None
    note: str = ""
    """What to put there, or what to mind."""

    def __str__(self) -> str:
        text = self.name if self.value is None else f"{self.name}={self.value}"
        return f"{text} ({self.note})" if self.note else text


class KafkaAccess(msgspec.Struct, frozen=True):
    """The fields that a connection needs to use the brokers' listener that TiCDC uses."""

    fields: tuple[ConnectionField, ...]

    def hint(self) -> str:
        """One line for errors of a client whose credentials or TLS the brokers refuse."""
        fields = "; ".join(str(field) for field in self.fields if field.name != "bootstrap.servers")
        return f"TiCDC itself reaches the brokers like this: {fields}"


def kafka_access(options: Options, uri: SplitResult) -> KafkaAccess:
    """What sink-uri and TOML say of brokers, SASL and TLS. Raises ConfigError for what TiCDC refuses."""
    brokers = uri.netloc.rpartition("@")[2]
    tls = _tls(options)
    mechanism = _mechanism(options)
    protocol = ("SASL_" if mechanism else "") + ("SSL" if tls else "PLAINTEXT")
    fields = [
        ConnectionField("bootstrap.servers", brokers or None, "as TiCDC's machines name them"),
        ConnectionField("security.protocol", protocol),
        *(_sasl_fields(options, mechanism) if mechanism else ()),
        *(_tls_fields(options) if tls else ()),
    ]
    return KafkaAccess(tuple(fields))


def _tls(options: Options) -> bool:
    """TLS is on by ``enable-tls``, or by ca, cert and key together; the scheme ``kafka+ssl`` alone turns nothing on."""
    # Where TiCDC printed the configuration, the key's path is masked.
    given = _text(options, "ca") is not None and _text(options, "cert") is not None
    enabled = options.flag(given, parameter="enable-tls", key=f"{_KAFKA}.enable-tls")
    if given and not enabled:
        raise ConfigError(
            f"{options.parameter_place('enable-tls')}: TiCDC refuses false where ca, cert and key are given"
        )
    return enabled


def _mechanism(options: Options) -> SaslMechanism | None:
    text = _text(options, "sasl-mechanism")
    if text is None:
        if _text(options, "sasl-user") is not None:
            raise ConfigError(
                f"{options.parameter_place('sasl-mechanism')}: missing, though sasl-user is given; "
                f"allowed: {', '.join(_MECHANISMS)}"
            )
        return None
    for mechanism in _MECHANISMS:
        if text.upper() == mechanism:
            return mechanism
    raise ConfigError(
        f"{options.parameter_place('sasl-mechanism')}: {text!r} is not allowed; allowed: {', '.join(_MECHANISMS)}"
    )


def _sasl_fields(options: Options, mechanism: SaslMechanism) -> list[ConnectionField]:
    head = ConnectionField("sasl.mechanism", mechanism)
    if mechanism == "GSSAPI":
        return [head, *_gssapi_fields(options)]
    if mechanism == "OAUTHBEARER":
        return [head, *_oauth_fields(options)]
    return [
        head,
        ConnectionField(
            "sasl.username", None, f"or the login; TiCDC's own is {_text(options, 'sasl-user') or 'unknown'}"
        ),
        ConnectionField("sasl.password", None, "or the password"),
    ]


def _gssapi_fields(options: Options) -> list[ConnectionField]:
    user, realm = _text(options, "sasl-gssapi-user"), _text(options, "sasl-gssapi-realm")
    notes = "a keytab file on every worker"
    if (_text(options, "sasl-gssapi-auth-type") or "").upper() == "USER":
        notes += "; TiCDC signs in by password, which readers can't"
    own = f"{user}@{realm}" if user and realm else user or "unknown"
    krb5 = _text(options, "sasl-gssapi-kerberos-config-path")
    return [
        ConnectionField("sasl.kerberos.service.name", _text(options, "sasl-gssapi-service-name") or "kafka"),
        ConnectionField("sasl.kerberos.principal", None, f"TiCDC's own is {own}"),
        ConnectionField(
            "sasl.kerberos.keytab",
            None,
            notes + (f"; the workers' krb5.conf must be as TiCDC's {krb5}" if krb5 else ""),
        ),
    ]


def _oauth_fields(options: Options) -> list[ConnectionField]:
    scopes = options.texts(key=f"{_KAFKA}.sasl-oauth-scopes")
    audience = options.text(key=f"{_KAFKA}.sasl-oauth-audience")
    own = options.text(key=f"{_KAFKA}.sasl-oauth-client-id")
    fields = [
        ConnectionField("sasl.oauthbearer.method", "oidc"),
        ConnectionField("sasl.oauthbearer.client.id", None, f"TiCDC's own is {own or 'unknown'}"),
        ConnectionField("sasl.oauthbearer.client.secret", None, "as it is: TiCDC has it in base64"),
        ConnectionField("sasl.oauthbearer.token.endpoint.url", options.text(key=f"{_KAFKA}.sasl-oauth-token-url")),
    ]
    if scopes:
        fields.append(ConnectionField("sasl.oauthbearer.scope", " ".join(scopes)))
    if audience:
        note = f"TiCDC asks for audience {audience}; let the identity provider give it to the client by default"
        fields.append(ConnectionField("sasl.oauthbearer.extensions", None, note))
    return fields


def _tls_fields(options: Options) -> list[ConnectionField]:
    fields = []
    ca = _text(options, "ca")
    if ca is not None:
        fields.append(ConnectionField("ssl.ca.pem", None, f"or ssl.ca.location; TiCDC's own is {ca}"))
    if _text(options, "cert") is not None:
        fields += [
            ConnectionField("ssl.certificate.pem", None, "or ssl.certificate.location"),
            ConnectionField("ssl.key.pem", None, "or ssl.key.location; with ssl.key.password where it is encrypted"),
        ]
    if options.flag(False, parameter="insecure-skip-verify", key=f"{_KAFKA}.insecure-skip-verify"):
        fields.append(
            ConnectionField("enable.ssl.certificate.verification", "false", "better: a CA that can be verified")
        )
    return fields


def _text(options: Options, name: str) -> str | None:
    return options.text(parameter=name, key=f"{_KAFKA}.{name}")
