"""Finding secrets that stand in configuration, where everyone who can read a repository or a log sees them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ticdc_replay.changefeed.options import is_masked
from ticdc_replay.domain.errors import ConfigError, SecretInConfigError

_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|secret|token$|^token|(access|account|private|encryption|api)-key(-|$)|^sas-|^pwd$"
)
# Names of Kubernetes secrets are no secrets, nor are paths of files.
_NOT_SECRET = re.compile(r"^token-from-file$|-(path|location)$|^spark-kubernetes-.*secret")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")

_KAFKA = "of the Airflow connection named by connections.kafka"
_STORE = "of the Airflow connection of that store (type aws)"
_HOMES = {
    "sasl-password": f"field 'sasl.password' in the extra {_KAFKA}",
    "sasl-gssapi-password": f"a keytab, by 'sasl.kerberos.keytab' in the extra {_KAFKA}",
    "sasl-oauth-client-secret": f"field 'sasl.oauthbearer.client.secret' in the extra {_KAFKA}",
    "key": f"field 'ssl.key.pem' in the extra {_KAFKA}",
    "access-key": f"the login {_STORE}",
    "secret-access-key": f"the password {_STORE}",
    "session-token": f"field 'aws_session_token' in the extra {_STORE}",
}
_GLUE = "of the Airflow connection named by connections.schema_registry (type aws)"
_GLUE_HOMES = {
    "access-key": f"the login {_GLUE}",
    "secret-access-key": f"the password {_GLUE}",
    "token": f"field 'aws_session_token' in the extra {_GLUE}",
}
_ANY_HOME = "an Airflow connection, and its id into `connections`"


def is_secret_name(name: str) -> bool:
    """Whether a setting called *name* holds a secret. Case, and ``_``, ``.`` or ``-``, make no difference."""
    name = _plain(name)
    return _NOT_SECRET.search(name) is None and _SECRET_NAME.search(name) is not None


def refuse_secrets(settings: Mapping[str, Any] | Sequence[Any], where: str, path: str = "") -> None:
    """Raise SecretInConfigError if a nested document holds a secret: by a setting's name, as a private key, or inside a URI.

    The message names *where*, the path of the setting and the connection field to use instead, and never the value. Empty
    values pass.
    """
    items = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
    for name, value in items:
        here = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}".lstrip(".")
        if isinstance(value, Mapping | list):
            refuse_secrets(value, where, here)
        elif isinstance(name, str):
            _refuse_secret(name, value, f"{where}: {here}")
        elif isinstance(value, str):
            refuse_secret_in_uri(value, f"{where}: {here}")


def refuse_secret_in_uri(uri: str, where: str) -> None:
    """Raise SecretInConfigError if *uri* carries a password before its host, or a secret among its query parameters.

    Text that is no URI passes. Raises ConfigError for a malformed one.
    """
    if "://" not in uri or "\n" in uri.strip():
        return
    try:
        parts = urlsplit(uri.strip())
    except ValueError as error:
        raise ConfigError(f"{where}: malformed URI: {error}") from None
    user, at, _ = parts.netloc.rpartition("@")
    if at and ":" in user and not is_masked(user.partition(":")[2]):
        raise SecretInConfigError(
            f"{where}: the URI holds a password; remove user and password from it "
            "and put them into login and password of the Airflow connection"
        )
    for name, value in parse_qsl(parts.query):
        _refuse_secret(name, value, f"{where}: parameter {name}")


def _refuse_secret(name: str, value: object, where: str) -> None:
    if value is None or value == "" or is_masked(value):
        return
    if is_secret_name(name) or (isinstance(value, str) and _PRIVATE_KEY.search(value)):
        homes = _GLUE_HOMES if "glue-schema-registry-config" in where else _HOMES
        home = homes.get(_plain(name), _ANY_HOME)
        raise SecretInConfigError(f"{where}: a secret must not stand here; remove it and put it into {home}")
    if isinstance(value, str):
        refuse_secret_in_uri(value, where)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
