"""A broker whose listeners ask for TLS, client certificates, SASL or tokens, and what clients need to satisfy them."""

import base64
import datetime
import ipaddress
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.parse import parse_qs

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.ports import HOST, free_ports
from tests.support.waiting import PATIENCE_S

MORE = """
listeners=PLAINTEXT://{plain},SASL://{sasl},CONTROLLER://{controller},TLS://{tls},MTLS://{mtls},SASLTLS://{sasl_tls},OAUTH://{oauth}
advertised.listeners=PLAINTEXT://{plain},SASL://{sasl},TLS://{tls},MTLS://{mtls},SASLTLS://{sasl_tls},OAUTH://{oauth}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,MTLS:SSL,SASLTLS:SASL_SSL,OAUTH:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server-keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.mtls.ssl.client.auth=required
listener.name.sasltls.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512,PLAIN
listener.name.sasltls.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasltls.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasltls.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="pw";
listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oauth.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
"""


class SecuredKafka(Kafka):
    """Beside the open listener, one for TLS, one for client certificates, one for SASL over TLS, and one for tokens over TLS."""

    name: ClassVar[str] = "secured-kafka"
    tls = mtls = sasl_tls = oauth = ""

    def _properties(self) -> str:
        properties = super()._properties()
        controller = next(line for line in properties.splitlines() if line.startswith("controller.quorum.voters"))
        addresses = [f"{HOST}:{port}" for port in free_ports(4)]
        self.tls, self.mtls, self.sasl_tls, self.oauth = addresses
        return properties + MORE.format(
            plain=self.bootstrap,
            sasl=self.sasl_bootstrap,
            controller=controller.partition("@")[2],
            tls=self.tls,
            mtls=self.mtls,
            sasl_tls=self.sasl_tls,
            oauth=self.oauth,
            folder=self.folder,
        )


class Identity(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: str
    key: str


def make_certificates(folder: Path) -> tuple[str, Identity]:
    """Write the broker's key store and trust store into *folder*; the CA in PEM, and a client's identity."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
    ca = _sign(name, name, ca_key, ca_key, x509.BasicConstraints(ca=True, path_length=None))
    ca_pem = _pem(ca)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    identities = []
    for common_name in ("broker", "reader"):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        identities.append(Identity(_pem(_sign(subject, name, key, ca_key, address)), pem.decode()))
    folder.mkdir(parents=True, exist_ok=True)
    broker, reader = identities
    (folder / "ca.pem").write_text(ca_pem)
    (folder / "server-keystore.pem").write_text(broker.key + broker.certificate + ca_pem)
    return ca_pem, reader


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).add_extension(extension, critical=False)
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1))
    return builder.sign(issuer_key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def unsigned_token(subject: str, lifetime_s: float) -> str:
    """A token of *subject*, as the broker takes it."""
    now = int(time.time())
    claims = {
        "sub": subject,
        "iat": min(now, now + int(lifetime_s) - 1),
        "exp": now + int(lifetime_s),
        "scope": "kafka",
    }
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


@contextmanager
def token_endpoint(client_id: str, client_secret: str) -> Iterator[str]:
    """An OAuth 2.0 token endpoint that gives unsigned tokens to one client; its URL. The broker takes any unsigned token."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            form = parse_qs(self.rfile.read(length).decode())
            given = self.headers.get("Authorization", "").removeprefix("Basic ")
            expected = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
            right = (
                given == expected and form["grant_type"] == ["client_credentials"] and form["scope"] == ["kafka read"]
            )
            token = unsigned_token(client_id, 300)
            answer = (
                {"access_token": token, "token_type": "Bearer", "expires_in": 300} if right else {"error": "denied"}
            )
            body = json.dumps(answer).encode()
            self.send_response(200 if right else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join(PATIENCE_S)
        server.server_close()
