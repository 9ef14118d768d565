"""A proxy in front of an S3 server that answers itself where a test wants it to: throttled, denied, or cut off."""

import hashlib
import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import NamedTuple
from urllib.parse import urlsplit

from demo.embedded_stack.ports import HOST
from demo.embedded_stack.s3 import S3Server
from tests.support.waiting import PATIENCE_S


class Refusal(NamedTuple):
    """An error of S3. ``after``: the server does what was asked for before, and its answer is lost."""

    status: int
    code: str
    after: bool = False


@dataclass
class Proxy:
    """``endpoint`` takes the server's place; ``refuse`` may be changed while it runs."""

    server: S3Server
    endpoint: str = ""
    refuse: Callable[[str, str], Refusal | None] = lambda _method, _path: None
    """Method and path with query → what is answered instead."""
    admit: Callable[[str, str, dict[str, str]], Refusal | None] = lambda _method, _path, _headers: None
    """As ``refuse``, with the headers too (in lower case), the hash of the content among them."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    refused: int = 0
    ignored: frozenset[str] = frozenset()
    """Headers (in lower case) that the server never gets, as if it did not know them. For one that checks no signatures."""
    ahead_s: int = 0
    """How far the clock that its Date headers tell is ahead of the server's."""
    lock: Lock = field(default_factory=Lock)


@contextmanager
def before(server: S3Server) -> Iterator[Proxy]:
    """Run a proxy of *server* on a free loopback port. Hosts are passed on as they came, so signatures stay good."""
    proxy = Proxy(server)
    upstream = urlsplit(server.endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers_given = {name.lower(): value for name, value in self.headers.items()}
            headers_given.setdefault("x-amz-content-sha256", hashlib.sha256(body).hexdigest())
            with proxy.lock:
                proxy.requests.append((self.command, self.path))
                refusal = proxy.refuse(self.command, self.path)
                refusal = refusal or proxy.admit(self.command, self.path, headers_given)
                proxy.refused += refusal is not None
            if refusal is None or refusal.after:
                status, headers, content = self._ask(body)
            if refusal is not None:
                status, headers = refusal.status, [("Content-Type", "application/xml")]
                content = f"<Error><Code>{refusal.code}</Code><Message>as the test asks</Message></Error>".encode()
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() == "date" and proxy.ahead_s:
                    shifted = parsedate_to_datetime(value) + timedelta(seconds=proxy.ahead_s)
                    value = format_datetime(shifted, usegmt=True)
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            if not any(name.lower() == "content-length" for name, _ in headers):
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 (http.server asks for these names)

        def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(str(upstream.hostname), upstream.port, timeout=PATIENCE_S)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in proxy.ignored:
                        connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            finally:
                connection.close()

        def log_message(self, format: str, *args: object) -> None:
            pass

    listener = ThreadingHTTPServer((HOST, 0), Handler)
    listener.daemon_threads = True
    proxy.endpoint = f"http://{HOST}:{listener.server_port}"
    thread = Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
