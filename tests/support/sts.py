"""AWS in small: an STS whose credentials expire in seconds, and a gate before an S3 server that lets in who they are good for.

moto checks no signatures, and real roles live for a quarter of an hour at least, so both stand here. The gate computes the
signature of each request itself, as the documentation of Signature Version 4 has it.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import NamedTuple
from urllib.parse import parse_qs

from demo.embedded_stack.ports import HOST
from demo.embedded_stack.s3 import S3Server
from tests.support import s3_proxy
from tests.support.s3_proxy import Proxy, Refusal

ROLE = "arn:aws:iam::123456789012:role/replay"
EXTERNAL_ID = "ours-alone"
BASE_KEY, BASE_SECRET = "AKIABASE", "base-secret"
WEB_TOKEN = "token-of-the-pod"


class Issued(NamedTuple):
    """Credentials that the STS gave."""

    key_id: str
    secret: str
    token: str
    expires: datetime


@dataclass
class Sts:
    """``url`` is its address. ``lifetime_s`` and ``away`` may be changed while it runs."""

    url: str = ""
    lifetime_s: float = 60.0
    away: bool = False
    issued: list[Issued] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """The action of each request, also of those that were refused."""
    lock: Lock = field(default_factory=Lock)

    def issue(self) -> Issued:
        """New credentials."""
        key, secret, token = (secrets.token_hex(8) for _ in range(3))
        made = Issued(f"ASIA{key}", secret, token, datetime.now(UTC) + timedelta(seconds=self.lifetime_s))
        self.issued.append(made)
        return made

    def expire(self) -> None:
        """End what was given until now, without a word to who has it."""
        with self.lock:
            self.issued = [each._replace(expires=datetime.now(UTC)) for each in self.issued]

    def refusal(self, method: str, path: str, headers: dict[str, str]) -> Refusal | None:
        """Why an S3 request is not let in; None where it is signed with credentials that have not expired."""
        key_id = _credential(headers)[0]
        with self.lock:
            found = next((each for each in self.issued if each.key_id == key_id), None)
        if found is None or headers.get("x-amz-security-token") != found.token:
            return Refusal(403, "InvalidAccessKeyId")
        if datetime.now(UTC) >= found.expires:
            return Refusal(400, "ExpiredToken")
        return None if _is_signed_with(found.secret, method, path, headers) else Refusal(403, "SignatureDoesNotMatch")


@contextmanager
def sts() -> Iterator[Sts]:
    """Run it on a free loopback port. It gives ``ROLE`` to ``BASE_KEY`` with ``EXTERNAL_ID``, and to who has ``WEB_TOKEN``."""
    server = Sts()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            action = form.get("Action", "")
            headers = {name.lower(): value for name, value in self.headers.items()}
            headers["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
            with server.lock:
                server.calls.append(action)
                if server.away:
                    self._answer(503, _error("ServiceUnavailable"))
                elif action == "AssumeRole" and not self._is_ours(form, headers):
                    self._answer(403, _error("AccessDenied"))
                elif action == "AssumeRoleWithWebIdentity" and form.get("WebIdentityToken") != WEB_TOKEN:
                    self._answer(400, _error("InvalidIdentityToken"))
                else:
                    self._answer(200, _granted(action, server.issue()))

        def _is_ours(self, form: dict[str, str], headers: dict[str, str]) -> bool:
            signed = _credential(headers)[0] == BASE_KEY and _is_signed_with(BASE_SECRET, "POST", "/", headers)
            return signed and form.get("RoleArn") == ROLE and form.get("ExternalId") == EXTERNAL_ID

        def _answer(self, status: int, text: str) -> None:
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    listener = ThreadingHTTPServer((HOST, 0), Handler)
    listener.daemon_threads = True
    server.url = f"http://{HOST}:{listener.server_port}"
    thread = Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


@contextmanager
def gate(server: S3Server, identities: Sts) -> Iterator[Proxy]:
    """A proxy before *server* that lets in only requests with credentials of *identities*."""
    with s3_proxy.before(server) as proxy:
        proxy.admit = identities.refusal
        yield proxy


def _credential(headers: dict[str, str]) -> list[str]:
    """Key id, date, region, service and the constant of a request's signature; empty texts where it has none."""
    _, _, fields = headers.get("authorization", "").partition("Credential=")
    return (fields.partition(",")[0].split("/") + [""] * 5)[:5]


def _is_signed_with(secret: str, method: str, path: str, headers: dict[str, str]) -> bool:
    authorization = headers.get("authorization", "")
    names = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    given = authorization.partition("Signature=")[2]
    path, _, query = path.partition("?")
    parameters = sorted(part if "=" in part else f"{part}=" for part in query.split("&") if part)
    lines = [f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in names]
    canonical = "\n".join(
        (method, path, "&".join(parameters), "".join(lines), ";".join(names), headers.get("x-amz-content-sha256", ""))
    )
    _, *scope = _credential(headers)
    text = "\n".join(
        (
            "AWS4-HMAC-SHA256",
            headers.get("x-amz-date", ""),
            "/".join(scope),
            hashlib.sha256(canonical.encode()).hexdigest(),
        )
    )
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), given)


def _granted(action: str, made: Issued) -> str:
    return f"""<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>
<AccessKeyId>{made.key_id}</AccessKeyId><SecretAccessKey>{made.secret}</SecretAccessKey>
<SessionToken>{made.token}</SessionToken><Expiration>{made.expires.isoformat()}</Expiration></Credentials>
<AssumedRoleUser><AssumedRoleId>AROA:s</AssumedRoleId><Arn>{ROLE}/s</Arn></AssumedRoleUser>
</{action}Result><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></{action}Response>"""


def _error(code: str) -> str:
    return f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"
