"""Where a driver on another machine finds its connections."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.changelogs import Changelog
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.drivers.connections import open_job
from ticdc_replay.submit.envelope import put_envelope
from ticdc_replay.submit.hadoop_credentials import credentials_file
from ticdc_replay.submit.outcome import JobFile

WAREHOUSE = Connection("warehouse", "postgres", "db", 5432, "replay", "planted", "shop", {"sslmode": "require"})
AS_JSON = json.dumps(
    {
        "conn_type": "postgres",
        "host": "db",
        "port": 5432,
        "login": "replay",
        "password": "planted",
        "schema": "shop",
        "extra": {"sslmode": "require"},
    }
)
AS_URI = "postgresql://replay:planted@db:5432/shop?sslmode=require"

Find = Callable[..., Connections]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """The spec of a load into PostgreSQL."""
    target = {"name": "pg", "type": "postgres", "connection": "warehouse"}
    job = tmp_path / "job.json"
    job.write_bytes(canonical.encode(Changelog(tmp_path / "changelog", 0, 100).job(target)))
    return job.as_uri()


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("AIRFLOW", "TICDC_REPLAY_")):
            monkeypatch.delenv(name)


def found(uri: str, *attempt: str) -> Connections:
    return open_job([uri, *attempt]).connections()


@pytest.mark.parametrize("text", [AS_JSON, AS_URI], ids=["JSON", "URI"])
class TestText:
    def test_variables(self, monkeypatch: pytest.MonkeyPatch, uri: str, text: str) -> None:
        monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", "backends")
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", text)
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", text)
        assert found(uri) == Connections({"warehouse": WAREHOUSE})

    def test_a_folder(self, monkeypatch: pytest.MonkeyPatch, uri: str, text: str, tmp_path: Path) -> None:
        folder = tmp_path / "secrets"
        folder.mkdir()
        (folder / "warehouse").touch(0o600)
        (folder / "warehouse").write_text(f"{text}\n")
        (folder / "other").write_text("not asked for")
        monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", f"folder:{folder}")
        assert found(uri) == Connections({"warehouse": WAREHOUSE})


class TestFolder:
    def test_a_missing_file(self, monkeypatch: pytest.MonkeyPatch, uri: str, tmp_path: Path) -> None:
        monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", f"folder:{tmp_path}")
        with pytest.raises(ConfigError, match=f"'warehouse' is missing: {tmp_path} has no file of this name"):
            found(uri)

    def test_a_file_that_others_can_read(self, monkeypatch: pytest.MonkeyPatch, uri: str, tmp_path: Path) -> None:
        (tmp_path / "warehouse").write_text(AS_JSON)
        (tmp_path / "warehouse").chmod(0o644)
        monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", f"folder:{tmp_path}")
        with pytest.raises(ConfigError, match="can be read by others: chmod 600"):
            found(uri)

    def test_a_mount_may_have_the_mode_that_kubernetes_gives_it(
        self, monkeypatch: pytest.MonkeyPatch, uri: str, tmp_path: Path
    ) -> None:
        (tmp_path / "warehouse").write_text(AS_JSON)
        (tmp_path / "warehouse").chmod(0o644)
        monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path)
        monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", f"folder:{tmp_path}")
        assert found(uri)["warehouse"] == WAREHOUSE

    def test_an_id_is_no_path(self, monkeypatch: pytest.MonkeyPatch, uri: str, tmp_path: Path) -> None:
        (tmp_path / "secrets").mkdir()
        monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", f"folder:{tmp_path / 'secrets'}")
        monkeypatch.setenv("TICDC_REPLAY_ARTIFACTS_CONNECTION", "../job.json")
        with pytest.raises(ConfigError, match="has no file of this name"):
            open_job([uri])


class TestEnvelope:
    def test_a_key_in_a_file_and_in_hadoop_s_credentials(
        self, monkeypatch: pytest.MonkeyPatch, uri: str, tmp_path: Path
    ) -> None:
        for way in ("file", "hadoop"):
            key = put_envelope(JobFile(uri, Connections()), "one", Connections({"warehouse": WAREHOUSE})).encode()
            path = tmp_path / way
            path.write_bytes(credentials_file(key) if way == "hadoop" else key)
            monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", f"envelope:{'hadoop' if way == 'hadoop' else path}")
            monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(path))
            assert found(uri, "one") == Connections({"warehouse": WAREHOUSE})

    def test_no_credentials(self, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
        monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", "envelope:hadoop")
        monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION", raising=False)
        with pytest.raises(ConfigError, match="HADOOP_TOKEN_FILE_LOCATION"):
            found(uri, "one")

    def test_no_key(self, monkeypatch: pytest.MonkeyPatch, uri: str, tmp_path: Path) -> None:
        monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", f"envelope:{tmp_path}/none")
        with pytest.raises(ConfigError, match="none, the key of the envelope, is not a file"):
            found(uri, "one")


class TestBackends:
    def test_a_missing_connection(self, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
        monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", "backends")
        with pytest.raises(ConfigError, match=r"'warehouse' is missing: .* AIRFLOW_CONN_WAREHOUSE is not set"):
            found(uri)

    def test_a_driver_without_airflow(self, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
        monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", "backends")
        monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", "airflow.providers.hashicorp.secrets.vault.VaultBackend")
        for name in [name for name in sys.modules if name.startswith(("airflow.", "ticdc_replay.airflow.backends"))]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "airflow", None)  # as if it was not installed
        with pytest.raises(ConfigError, match=r"AIRFLOW__SECRETS__BACKEND is set, and .* lacks airflow"):
            found(uri)


@pytest.mark.parametrize("way", ["", "folder:", "vault", "envelope:", "envelope:/key"])
def test_no_place_of_connections(monkeypatch: pytest.MonkeyPatch, uri: str, way: str) -> None:
    monkeypatch.setenv("TICDC_REPLAY_CONNECTIONS", way)
    with pytest.raises(ConfigError, match="names no place of connections"):
        open_job([uri])
