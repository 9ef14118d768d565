"""Registries with Confluent's HTTP interface: Confluent's own, Apicurio (``/apis/ccompat/v7``), Karapace, Redpanda.

One request is all that decoding needs of it, so this is httpx: confluent-kafka's client would bring another package, repeats
without telling what went wrong, and takes certificates by path only.
"""

import json
import time
from contextlib import suppress
from ssl import SSLCertVerificationError, SSLContext, SSLError
from typing import Any
from urllib.parse import urlsplit

import httpx
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, PermanentError, TransientError
from ticdc_replay.registry import tls
from ticdc_replay.registry.used import MAX_SCHEMA_BYTES
from ticdc_replay.schemas.lookup import UnusableAnswerError

_BEARER = "bearer.auth.token"
_EXTRA = (_BEARER, *tls.OPTIONS)
_ATTEMPTS = 5
_TIMEOUT = httpx.Timeout(30, connect=10)
_SCHEMA_NOT_FOUND = 40403
_MAX_ID = (1 << 31) - 1
_ANSWER_S = 60.0
"""For all of an answer: a server that sends a byte now and then never meets the limit of a single read."""
_PROBES = ("1", "2")
"""Ids that a registry gives a schema for, or says that it has none."""


class ConfluentRegistry:
    """A registry at *url*, the address below which ``/schemas/ids/<id>`` is. *where* names the connection in errors."""

    def __init__(
        self, url: str, where: str, context: SSLContext | None, auth: httpx.Auth | None = None, token: str | None = None
    ) -> None:
        self._where = f"schema registry {url} ({where})"
        headers = {
            "Accept": "application/vnd.schemaregistry.v1+json, application/json",
            "Accept-Encoding": "identity",  # a small answer could unpack to any size
        }
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(
            base_url=url, auth=auth, headers=headers, timeout=_TIMEOUT, verify=context if context is not None else True
        )
        self._is_registry = False

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
        """The schema *schema_id*; None if the registry has none, or *schema_id* is no id of Confluent's (up to 2³¹-1).

        Raises TransientError while the registry is away, after some attempts; AuthenticationError if it refuses the
        credentials; PermanentError if the answer is not that of a schema registry. Raises UnusableAnswerError for an answer of
        more than ``MAX_SCHEMA_BYTES``, and for HTTP 404 without a registry's error code if the address answers for other ids.
        """
        if not schema_id.isdecimal() or int(schema_id) > _MAX_ID:
            return None
        try:
            return self._answer(schema_id)
        except _PlainNotFoundError as error:
            # A wrong address gives this for every id, and then the job must stop; a proxy may give it for one.
            if not self._is_registry:
                with suppress(_PlainNotFoundError):
                    self._answer(next(probe for probe in _PROBES if probe != schema_id))
            if self._is_registry:
                raise UnusableAnswerError(str(error)) from None
            raise PermanentError(f"{error}; {_NO_REGISTRY}") from None

    @retry(
        retry=retry_if_exception_type(TransientError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        reraise=True,
    )
    def _answer(self, schema_id: str) -> str | None:
        what = f"{self._where}: schema {schema_id}"
        try:
            with self._client.stream("GET", f"schemas/ids/{schema_id}") as answer:
                status, content = answer.status_code, _content(answer, what)
        except httpx.TransportError as error:
            raise _broken(error, what) from error
        if content is None:
            if status == 200:
                raise UnusableAnswerError(f"{what}: an answer of more than {MAX_SCHEMA_BYTES} bytes")
            content = b""
        document = _json(content)
        if status == 200 and isinstance(document.get("schema"), str):
            self._is_registry = True
            return str(document["schema"])
        if status == 404 and document.get("error_code") == _SCHEMA_NOT_FOUND:
            self._is_registry = True
            return None
        detail = f"{what}: HTTP {status} {document.get('message', content.decode(errors='replace'))!s:.300}"
        if status in (401, 403):
            raise AuthenticationError(f"{detail}; check login and password, or extra {_BEARER}, of the connection")
        if status in (408, 429) or status >= 500:
            raise TransientError(detail)
        if status == 404:
            raise _PlainNotFoundError(detail)
        raise PermanentError(f"{detail}; {_NO_REGISTRY}")


class _PlainNotFoundError(PermanentError):
    """HTTP 404 that does not say what was not found."""


_NO_REGISTRY = "this is not an answer of a schema registry: check host, schema and port, and the path"


def _content(answer: httpx.Response, what: str) -> bytes | None:
    """The body of *answer*; None if it is larger than a schema may be. Raises TransientError if it takes too long."""
    until = time.monotonic() + _ANSWER_S
    parts, size = [], 0
    for part in answer.iter_raw():
        parts.append(part)
        size += len(part)
        if size > MAX_SCHEMA_BYTES:
            return None
        if time.monotonic() > until:
            raise TransientError(f"{what}: the answer did not end within {_ANSWER_S:.0f} s")
    return b"".join(parts)


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


def _json(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
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
