"""What fake-gcs-server lacks of Google's XML API: a front that hands writes to the emulator's JSON API, conditions with them.

The emulator judges the conditions and keeps the objects. The front checks who asks: each request has a token that the service
account of the tests signed.
"""

import base64
import http.client
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from demo.embedded_stack.emulators import FakeGcs
from demo.embedded_stack.ports import HOST
from tests.support.waiting import PATIENCE_S

_KEY = rsa.generate_private_key(65537, 2048)
KEYFILE: dict[str, Any] = {
    "type": "service_account",
    "client_email": "replay@tests.iam.gserviceaccount.com",
    "private_key_id": "1",
    "private_key": _KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode(),
}


@dataclass
class Front:
    """``endpoint`` takes the emulator's place."""

    endpoint: str = ""
    ignores_conditions: bool = False
    """As the emulator itself would, which does not know the header."""
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


@contextmanager
def before(emulator: FakeGcs) -> Iterator[Front]:
    """Run it on a free loopback port."""
    front = Front()
    upstream = urlsplit(emulator.endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
            query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
            if not self._is_known():
                self._answer(401, {}, _error("AuthenticationRequired"))
            elif self.command == "POST" and "uploads" in query:
                upload = uuid.uuid4().hex
                front.uploads[upload] = {}
                self._answer(200, {}, f"<R><UploadId>{upload}</UploadId></R>".encode())
            elif self.command == "PUT" and "uploadId" in query:
                with front.lock:
                    front.uploads[query["uploadId"]][int(query["partNumber"])] = body
                self._answer(200, {"ETag": f'"{query["partNumber"]}"'}, b"")
            elif self.command == "POST" and "uploadId" in query:
                stored = front.uploads.pop(query["uploadId"])
                self._put(bucket, name, b"".join(stored[number] for number in sorted(stored)))
            elif self.command == "PUT":
                self._put(bucket, name, body)
            elif not name and self._ask("GET", f"/storage/v1/b/{bucket}")[0] == 404:
                self._answer(404, {}, _error("NoSuchBucket"))
            else:
                self._answer(*self._ask(self.command, self.path, body))

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 (http.server asks for these names)

        def _put(self, bucket: str, name: str, body: bytes) -> None:
            generation = self.headers.get("x-goog-if-generation-match")
            condition = f"&ifGenerationMatch={generation}" if generation and not front.ignores_conditions else ""
            url = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}{condition}"
            status, _, content = self._ask("POST", url, body)
            if status != 200:
                self._answer(status, {}, _error({404: "NoSuchBucket", 412: "PreconditionFailed"}.get(status, "Other")))
                return
            made = json.loads(content)
            headers = {"ETag": f'"{made["etag"]}"', "x-goog-generation": made["generation"]}
            tag = f"<R><ETag>&quot;{made['etag']}&quot;</ETag></R>".encode()
            self._answer(200, headers, tag if self.command == "POST" else b"")

        def _is_known(self) -> bool:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            signed, _, signature = token.rpartition(".")
            try:
                _KEY.public_key().verify(_unpadded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            except InvalidSignature:
                return False
            return bool(json.loads(_unpadded(signed.split(".")[1]))["iss"] == KEYFILE["client_email"])

        def _ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection(str(upstream.hostname), upstream.port, timeout=PATIENCE_S)
            try:
                given = {name: value for name, value in self.headers.items() if name.lower() in ("range", "if-match")}
                connection.request(method, path, body, given)
                answer = connection.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                connection.close()

        def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            if "Date" not in headers:
                self.send_header("Date", self.date_time_string())
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    listener = ThreadingHTTPServer((HOST, 0), Handler)
    listener.daemon_threads = True
    front.endpoint = f"http://{HOST}:{listener.server_port}"
    thread = Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield front
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(re.sub(r"[^A-Za-z0-9_-]", "", text) + "=" * (-len(text) % 4))


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
