"""A peer with the HTTP interface of Confluent's schema registry, and certificates to reach it by TLS.

It answers ``GET /schemas/ids/<id>`` as Confluent documents it, in its media type and with its error codes.
"""

import datetime
import ipaddress
import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Registry:
    """What the peer does; may be changed while it runs."""

    schemas: dict[int, str] = field(default_factory=dict)
    path: str = ""
    """Where its interface starts."""
    authorization: str | None = None
    """The header that it wants."""
    answers: list[tuple[int, str] | None] = field(default_factory=list)
    """What it gives instead, one after the other: status and body, or None to hang up."""
    refused: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Status and body that it gives for these ids, always."""
    requests: list[str] = field(default_factory=list)
    port: int = 0

    def basic(self, login: str, password: str) -> None:
        """Want basic authentication."""
        self.authorization = "Basic " + b64encode(f"{login}:{password}".encode()).decode()


class Certificate(NamedTuple):
    """PEM texts."""

    certificate: str
    key: str


@contextmanager
def serve(registry: Registry, tls: ssl.SSLContext | None = None) -> Iterator[Registry]:
    """Run *registry* on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def do_GET(self) -> None:
            registry.requests.append(self.path)
            if registry.answers:
                prepared = registry.answers.pop(0)
                if prepared is None:
                    self.close_connection = True
                    return
                self._answer(*prepared)
            elif self.headers.get("Authorization") != registry.authorization:
                self._answer(401, json.dumps({"error_code": 401, "message": "Unauthorized"}))
            elif not self.path.startswith(f"{registry.path}/schemas/ids/"):
                self._answer(404, "<html>Not Found</html>")
            elif (number := int(self.path.rpartition("/")[2])) in registry.refused:
                self._answer(*registry.refused[number])
            else:
                text = registry.schemas.get(number)
                found = {"schema": text} if text is not None else {"error_code": 40403, "message": "Schema not found"}
                self._answer(200 if text is not None else 404, json.dumps(found))

        def _answer(self, status: int, body: str) -> None:
            content = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that does not trust this server hangs up: no trace of it."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registry.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def make_authority() -> Certificate:
    """An authority that signs itself."""
    return _certificate("authority", None)


def make_certificate(name: str, authority: Certificate) -> Certificate:
    """A certificate of *authority* for *name*, and for 127.0.0.1."""
    return _certificate(name, authority)


def server_context(server: Certificate, folder: Path, client_authority: Certificate | None = None) -> ssl.SSLContext:
    """TLS of a server that shows *server*, and wants a certificate of *client_authority* where there is one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = folder / "server.pem", folder / "server.key"
    certificate.write_text(server.certificate)
    key.write_text(server.key)
    context.load_cert_chain(certificate, key)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_authority.certificate)
    return context


def _certificate(name: str, authority: Certificate | None) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, issuer_key = subject, key
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority.certificate.encode()).subject
        issuer_key = serialization.load_pem_private_key(authority.key.encode(), None)
    now = datetime.datetime.now(datetime.UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(alternative, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certificate(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())
