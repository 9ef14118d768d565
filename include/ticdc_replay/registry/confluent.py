"""Registries with Confluent's HTTP interface: Confluent's own, Apicurio (``/apis/ccompat/v7``), Karapace, Redpanda.

One request is all that decoding needs of it, so this is httpx: confluent-kafka's client would bring another package, repeats
without telling what went wrong, and takes certificates by path only.
"""

from json import JSONDecodeError
from ssl import SSLCertVerificationError, SSLContext, SSLError
from typing import Any
from urllib.parse import urlsplit

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, PermanentError, TransientError
from ticdc_replay.registry import tls

_BEARER = "bearer.auth.token"
_EXTRA = (_BEARER, *tls.OPTIONS)
_ATTEMPTS = 5
_TIMEOUT = httpx.Timeout(30, connect=10)
_SCHEMA_NOT_FOUND = 40403
_MAX_ID = (1 << 32) - 1


class ConfluentRegistry:
    """A registry at *url*, the address below which ``/schemas/ids/<id>`` is. *where* tells people which connection it is."""

    def __init__(
        self, url: str, where: str, context: SSLContext | None, auth: httpx.Auth | None = None, token: str | None = None
    ) -> None:
        self._where = f"schema registry {url} ({where})"
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(
            base_url=url, auth=auth, headers=headers, timeout=_TIMEOUT, verify=context if context is not None else True
        )

    @classmethod
    def from_connection(cls, connection: Connection) -> "ConfluentRegistry":
        """The registry of an Airflow connection of type ``http``.

        ``host`` is a name, or a URL with a path; ``schema`` is http or https where the host does not say; login and password
        are for basic authentication. ``extra`` may hold ``bearer.auth.token`` instead, and certificates (``tls.OPTIONS``), in
        the names of Confluent's clients. Raises ConfigError.
        """
        where = f"connection {connection.conn_id!r}"
        url = _url(connection, where)
        extra = _extra(connection, where)
        token = extra.get(_BEARER)
        auth = None
        if connection.login or connection.password:
            if token is not None:
                raise ConfigError(f"{where}: login and password exclude extra {_BEARER}")
            auth = httpx.BasicAuth(connection.login or "", connection.password or "")
        context = tls.tls_context(extra, where) if url.startswith("https:") else None
        if context is None and any(name in extra for name in tls.OPTIONS):
            raise ConfigError(f"{where}: certificates in extra, but no TLS: set schema to https")
        return cls(url, where, context, auth, token)

    def text(self, schema_id: str) -> str | None:
        """The schema *schema_id*; None where the registry has none, or the id is none of Confluent's.

        Raises TransientError while the registry is away, after some attempts; AuthenticationError where it refuses the
        credentials; PermanentError for an answer that is none of a schema registry.
        """
        if not schema_id.isdecimal() or int(schema_id) > _MAX_ID:
            return None
        for attempt in Retrying(
            retry=retry_if_exception_type(TransientError),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            reraise=True,
        ):
            with attempt:
                return self._fetch(schema_id)
        raise AssertionError("a retry loop ends by return or raise")

    def _fetch(self, schema_id: str) -> str | None:
        what = f"{self._where}: schema {schema_id}"
        try:
            answer = self._client.get(f"schemas/ids/{schema_id}")
        except httpx.TransportError as error:
            raise _broken(error, what) from error
        status = answer.status_code
        document = _json(answer)
        if status == 200 and isinstance(document.get("schema"), str):
            return str(document["schema"])
        if status == 404 and document.get("error_code") == _SCHEMA_NOT_FOUND:
            return None
        told = f"{what}: HTTP {status} {document.get('message', answer.text)!s:.300}"
        if status in (401, 403):
            raise AuthenticationError(f"{told}; check login and password, or extra {_BEARER}, of the connection")
        if status in (408, 429) or status >= 500:
            raise TransientError(told)
        raise PermanentError(
            f"{told}; this is no answer of a schema registry: check host, schema and port, and the path"
        )


def _url(connection: Connection, where: str) -> str:
    host = connection.host or ""
    if "://" not in host:
        host = f"{connection.schema or 'http'}://{host}"
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{where}: host must be a name, or a URL such as https://registry:8081/path without query")
    if "@" in parts.netloc:
        raise ConfigError(f"{where}: host holds credentials; put them into login and password")
    port = f":{connection.port}" if connection.port and parts.port is None else ""
    return f"{parts.scheme}://{parts.netloc}{port}{parts.path.rstrip('/')}/"


def _extra(connection: Connection, where: str) -> dict[str, str]:
    unknown = sorted(set(connection.extra) - set(_EXTRA))
    if unknown:
        raise ConfigError(f"{where}: extra {', '.join(unknown)} not supported; allowed: {', '.join(_EXTRA)}")
    for name, value in connection.extra.items():
        if not isinstance(value, str):
            raise ConfigError(f"{where}: extra {name} must be a text")
    return connection.extra


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except (JSONDecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _broken(error: httpx.TransportError, what: str) -> PermanentError | TransientError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SSLCertVerificationError):
            return PermanentError(f"{what}: {error}; put the authority into extra ssl.ca.pem of the connection")
        if isinstance(cause, SSLError) and "ALERT" in (cause.reason or ""):
            return AuthenticationError(
                f"{what}: {error}; check ssl.certificate and ssl.key in the extra of the connection"
            )
        cause = cause.__cause__ or cause.__context__
    return TransientError(f"{what}: {type(error).__name__} {error}")
