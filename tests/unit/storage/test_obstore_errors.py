"""What errors of Google's and Azure's stores mean, as obstore itself raises them for answers of a server."""

import base64
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import obstore
import pyarrow.parquet as pq
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore as Objects

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, PermanentError, TransientError
from ticdc_replay.storage import open_store
from ticdc_replay.storage.obstores.arrow import arrow_files
from ticdc_replay.storage.obstores.errors import is_lost_condition, translate
from ticdc_replay.storage.obstores.options import client_options
from ticdc_replay.targets.files import file_errors

KEY = base64.b64encode(b"key").decode()
AWAY = "http://127.0.0.1:9"


class Answers(ThreadingHTTPServer):
    """Answers each request with ``status``, with ``code`` as Azure writes it; ``headers`` are the last one's."""

    status = 201
    code = "Some"
    headers: Message | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def objects(self, container: str = "cont", **access: Any) -> Objects:
        return Objects(
            container,
            client_options=client_options(self.url),  # type: ignore[arg-type]
            retry_config={"max_retries": 0},
            **{"account_name": "account", "endpoint": f"{self.url}/account"} | access,
        )


class Handler(BaseHTTPRequestHandler):
    server: Answers

    def answer(self) -> None:
        self.server.headers = self.headers
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = f'<?xml version="1.0"?><Error><Code>{self.server.code}</Code></Error>'.encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing: pytest shows standard error."""


@pytest.fixture
def server() -> Iterator[Answers]:
    with Answers(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No certificates and no proxy of whoever runs the tests."""
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


def caught(store: Objects, name: str = "a") -> BaseError:
    with pytest.raises(BaseError) as error:
        obstore.get(store, name)
    return error.value


def application(authority: str) -> dict[str, str]:
    return {"client_id": "id", "client_secret": "secret", "tenant_id": "tenant", "authority_host": authority}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((429, TransientError), (500, TransientError), (503, TransientError)),
        *((400, AuthenticationError), (401, AuthenticationError), (404, AuthenticationError), (405, PermanentError)),
    ],
)
def test_a_server_of_tokens_that_is_away_is_transient_and_one_that_refuses_is_not(
    server: Answers, status: int, kind: type[Exception]
) -> None:
    server.status = status
    for access in (application(server.url), {"msi_endpoint": f"{server.url}/metadata/identity"}):
        assert type(translate(caught(server.objects(**access)), "cannot read")) is kind


def test_a_server_of_tokens_that_takes_no_connection_is_transient(server: Answers) -> None:
    assert type(translate(caught(server.objects(**application(AWAY))), "cannot read")) is TransientError


@pytest.mark.parametrize(
    ("container", "name"),
    [("cont", "metadata/a"), ("credentials", "a"), ("certificates", "token request"), ("cont", "invalid_grant/AADSTS")],
)
def test_the_name_of_an_object_says_nothing(server: Answers, container: str, name: str) -> None:
    store = server.objects(container, account_key=KEY)
    for status, kind in ((503, TransientError), (400, PermanentError), (403, PermanentError)):
        server.status = status
        assert type(translate(caught(store, name), "cannot read")) is kind
    away = server.objects(container, account_key=KEY, endpoint=f"{AWAY}/account")
    assert type(translate(caught(away, f"UnknownIssuer/{name}"), "cannot read")) is TransientError


def test_a_conflict_is_a_lost_condition_only_where_azure_says_so(server: Answers) -> None:
    server.status, server.code = 409, "BlobArchived"
    store = server.objects(account_key=KEY)
    archived = caught(store)
    assert isinstance(archived, AlreadyExistsError)
    assert not is_lost_condition(archived)
    assert "already exists" not in str(translate(archived, "cannot read"))
    server.code = "BlobAlreadyExists"
    with pytest.raises(AlreadyExistsError) as error:
        obstore.put(store, "a", b"x", mode="create", use_multipart=False)
    assert is_lost_condition(error.value)


@pytest.mark.parametrize(("status", "kind"), [(401, AuthenticationError), (403, PermanentError), (503, TransientError)])
def test_what_is_refused_through_arrow_is_not_tried_again(server: Answers, status: int, kind: type[Exception]) -> None:
    server.status = status
    files = arrow_files(server.objects(account_key=KEY), "cont")
    with pytest.raises(kind) as read, file_errors("read"):
        pq.read_table("cont/a.parquet", filesystem=files)
    with pytest.raises(kind) as write, file_errors("write"), files.open_output_stream("cont/a") as stream:
        stream.write(b"x")
    assert (type(read.value), type(write.value)) == (kind, kind)


@pytest.fixture
def secure(server: Answers, tmp_path: Path) -> Path:
    """Makes *server* speak TLS. Returns the file of the authority that signed its certificate."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("authority", "localhost")]
    now = datetime.now(UTC)
    files = [tmp_path / "ca.crt", tmp_path / "tls.crt"]
    for name, key, is_authority, file in zip(names, keys, (True, False), files, strict=True):
        certificate = (
            x509.CertificateBuilder(names[0], name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .sign(keys[0], hashes.SHA256())
        )
        file.write_bytes(certificate.public_bytes(Encoding.PEM))
    private = tmp_path / "key"
    private.write_bytes(keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[1], private)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return files[0]


def test_certificates_to_trust_are_one_choice_for_objects_and_the_clock(
    server: Answers, secure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.status = 404
    url = f"https://localhost:{server.server_port}/account"
    connection = Connection("azure", "wasb", host=url, login="account", password=KEY)
    store = open_store("az://cont", connection)
    for ask in (lambda: store.get("a"), store.now):
        with pytest.raises(PermanentError, match="certificate is not trusted"):
            ask()
    monkeypatch.setenv("AWS_CA_BUNDLE", str(secure))
    store = open_store("az://cont", connection)
    assert abs(store.now() - datetime.now(UTC)) < timedelta(minutes=5)
    with pytest.raises(PermanentError, match="container does not exist"):
        store.get("a")
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/file")
    with pytest.raises(ConfigError, match="AWS_CA_BUNDLE"):
        open_store("az://cont", connection)


def test_variables_of_the_client_do_not_beat_a_connection(server: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
    connection = Connection("azure", "wasb", host=f"{server.url}/account", login="account", password=KEY)
    open_store("az://cont", connection).put("a", b"")
    assert server.headers is not None
    assert server.headers["Authorization"].startswith("SharedKey account:")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "/key.json")
    for extra in ({"keyfile_dict": '{"private_key": "x"}'}, {"key_path": "/other.json"}):
        with pytest.raises(ConfigError, match="the environment has GOOGLE_SERVICE_ACCOUNT"):
            open_store("gs://bucket", Connection("google", "google_cloud_platform", extra=extra))
