"""What is Google's and Azure's alone: who asks, what is refused, and conditions that a server does not keep."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from demo.embedded_stack.emulators import Azurite, FakeGcs
from tests.support import stores
from tests.support.stores import Place, azure_connection, gcs_connection
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import (
    AuthenticationError,
    ConfigError,
    MissingAbilityError,
    PermanentError,
    TransientError,
)
from ticdc_replay.storage import open_store

pytestmark = pytest.mark.integration


@pytest.fixture
def gcs(fake_gcs: FakeGcs) -> Iterator[Place]:
    with stores.of_gcs(fake_gcs) as place:
        yield place


@pytest.fixture
def azure(azurite: Azurite) -> Place:
    return stores.of_azure(azurite)


def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written(gcs: Place) -> None:
    assert gcs.front is not None
    gcs.front.ignores_conditions = True
    store = gcs.open()
    store.put("runs/a/index.json", b"first")
    for _ in range(2):
        with pytest.raises(MissingAbilityError, match="conditional put of a new object"):
            store.put_once("runs/a/index.json", b"second")
    with pytest.raises(MissingAbilityError, match="conditional put"):
        store.update("runs/a/index.json", lambda found: b"second")
    assert store.get("runs/a/index.json") == b"first"
    assert [found.name for found in store.list()] == ["runs/a/index.json"]


def test_the_emulator_without_its_front_is_refused_too(fake_gcs: FakeGcs, gcs: Place) -> None:
    bucket = open_store(gcs.root, gcs_connection(fake_gcs.endpoint))
    with pytest.raises(PermanentError, match="400"):
        bucket.put_once("a", b"first")


def test_objects_of_neither_are_deleted_under_a_condition(gcs: Place, azure: Place) -> None:
    for place in (gcs, azure):
        with pytest.raises(MissingAbilityError, match="can't delete an object on the condition that it did not change"):
            place.open().deletion()


def test_a_key_of_another_service_account_is_refused(gcs: Place) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    other = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    assert gcs.connection is not None
    keyfile = gcs.connection.extra["keyfile_dict"] | {"private_key": other.decode()}
    endpoint = gcs.connection.extra["endpoint_url"]
    wrong = open_store(gcs.root, gcs_connection(endpoint, keyfile_dict=keyfile))
    for ask in (lambda: wrong.get("a"), lambda: wrong.put("a", b""), lambda: list(wrong.list())):
        with pytest.raises(AuthenticationError, match="store_test") as caught:
            ask()
        assert "PRIVATE KEY" not in str(caught.value)


def test_a_wrong_account_key_is_refused_by_name_and_without_the_key(azurite: Azurite, azure: Place) -> None:
    key = azurite.key[:8][::-1] + azurite.key[8:]
    wrong = open_store(azure.root, azure_connection(azurite, password=key))
    for ask in (lambda: wrong.get("a"), lambda: wrong.put("a", b""), lambda: list(wrong.list())):
        with pytest.raises(PermanentError, match=r"store_test.*the secret is wrong") as caught:
            ask()
        assert key not in str(caught.value)


def sas(azurite: Azurite, permissions: str, lifetime: timedelta) -> str:
    """A signature for the account's containers and objects, as Azure's portal makes it."""
    import base64
    import hashlib
    import hmac

    ends = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = f"{azurite.account}\n{permissions}\nb\nco\n\n{ends}\n\nhttps,http\n2019-02-02\n"
    digest = hmac.digest(base64.b64decode(azurite.key), text.encode(), hashlib.sha256)
    signature = quote(base64.b64encode(digest).decode(), safe="")
    return f"sv=2019-02-02&ss=b&srt=co&sp={permissions}&se={quote(ends, safe='')}&spr=https,http&sig={signature}"


def test_a_shared_access_signature_is_an_identity_and_shows_nowhere(azurite: Azurite, azure: Place) -> None:
    azure.open().put("a", b"there")
    reading = sas(azurite, "rl", timedelta(hours=1))
    connection = azure_connection(azurite, login=None, password=None, extra={"sas_token": reading})
    store = azure._replace(connection=connection).open()
    assert store.get("a") == b"there"
    assert [found.name for found in store.list()] == ["a"]
    signature = reading.rpartition("sig=")[2]
    with pytest.raises(PermanentError, match="lack the permission") as caught:
        store.put("b", b"")
    assert signature not in str(caught.value)
    assert caught.value.__cause__ is None, "the text of obstore's error is not shown below it"
    ended = azure_connection(azurite, login=None, password=None, extra={"sas_token": sas(azurite, "rl", timedelta(-1))})
    with pytest.raises((AuthenticationError, PermanentError)):
        azure._replace(connection=ended).open().get("a")


def test_a_container_may_be_named_with_its_account(azurite: Azurite, azure: Place) -> None:
    container = azure.root.removeprefix("az://")
    uri = f"abfss://{container}@{azurite.account}.dfs.core.windows.net/some"
    open_store(uri, azure.connection).put("a", b"1")
    assert azure.open("some").get("a") == b"1"
    with pytest.raises(ConfigError, match="must name one storage account; found: devstoreaccount1, other"):
        open_store(f"abfss://{container}@other.dfs.core.windows.net/some", azure.connection)


def test_a_server_that_is_away_is_transient(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_replay.storage.obstores.azure.RETRIES", 0)
    monkeypatch.setattr("ticdc_replay.storage.obstores.gcs.RETRIES", 0)
    away = Connection("away", "wasb", host="http://127.0.0.1:9/abc", login="abc", password=azurite.key)
    with pytest.raises(TransientError, match="away"):
        open_store("az://container", away).get("a")
    with pytest.raises(TransientError, match="store_test"):
        open_store("gs://bucket", gcs_connection("http://127.0.0.1:9")).get("a")


@pytest.mark.parametrize(
    ("uri", "connection", "said"),
    [
        ("gs://bucket", Connection("c", "aws"), "needs one of type google_cloud_platform"),
        ("az://cont", Connection("c", "aws"), "needs one of type wasb"),
        ("gs://bucket", Connection("c", "google_cloud_platform", extra={"impersonation_chain": "x"}), "allowed: keyf"),
        ("gs://bucket", Connection("c", "google_cloud_platform", extra={"keyfile_dict": "{"}), "not the JSON key"),
        (
            "gs://bucket",
            Connection("c", "google_cloud_platform", extra={"keyfile_dict": "{}", "key_path": "/k"}),
            "two identities",
        ),
        ("gs://bucket", Connection("c", "google_cloud_platform", extra={"key_path": "/nowhere.json"}), "nowhere"),
        ("az://cont", None, "needs a connection of type wasb"),
        ("az://cont", Connection("c", "wasb"), "must name one storage account; found: none"),
        ("az://cont", Connection("c", "wasb", host="acc", extra={"connection_string": "x"}), "allowed: sas_token"),
        ("az://cont", Connection("c", "wasb", login="acc", password="a", extra={"sas_token": "s"}), "several identit"),
        ("az://cont", Connection("c", "wasb", host="acc", login="id", extra={"tenant_id": "t"}), "client secret"),
        ("az://cont", Connection("c", "wasb", host="acc", login="client-id"), "nothing uses it"),
        ("az://cont", Connection("c", "wasb", host="acc", login="id", extra={"sas_token": "s"}), "nothing uses it"),
        ("az://cont@acc.dfs.core.windows.net/x", None, "must look like az://container/prefix"),
        ("abfss://cont/x", None, "must look like az://container/prefix"),
        ("gs://bucket/a/../b", None, "not a name"),
    ],
)
def test_a_connection_that_makes_no_sense_is_refused(uri: str, connection: Connection | None, said: str) -> None:
    with pytest.raises(PermanentError, match=said):
        open_store(uri, connection)
