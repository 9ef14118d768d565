"""A state store in a SQLite file is on one machine, on a local disk, and without a write-ahead log."""

import logging
import sqlite3
from pathlib import Path

import pytest

from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.domain.window import Window
from ticdc_replay.state import open_state
from ticdc_replay.state import sqlite_file as files
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.storage.mounts import Mount

PINNED = WindowManifest("shop", Window(0, 100), "hash", "manifests/hash.json", 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "state.db"


def opened(file: Path) -> None:
    open_state(f"sqlite:///{file}").close()


def test_the_file_has_no_write_ahead_log(file: Path) -> None:
    state = open_state(f"sqlite:///{file}")
    state.manifests.register(PINNED)
    assert [path.name for path in file.parent.iterdir()] == ["state.db"]
    state.close()
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_file_that_an_earlier_version_kept_with_a_write_ahead_log_is_converted_and_keeps_what_it_has(
    file: Path,
) -> None:
    state = open_state(f"sqlite:///{file}")
    state.manifests.register(PINNED)
    state.close()
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    connection.close()
    state = open_state(f"sqlite:///{file}")
    assert state.manifests.of_window("shop", Window(0, 100)) == PINNED
    state.close()
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_file_on_a_network_file_system_is_refused_before_it_is_made(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "mount_of", lambda path: Mount("/srv/shared", "nfs4", ("rw",)))
    with pytest.raises(ConfigError, match=r"network file system \(nfs4 at /srv/shared\).*connections\.state.*postgres"):
        opened(file)
    assert not file.parent.exists()


def test_where_the_system_does_not_tell_what_a_file_is_on_a_warning_says_so(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "mount_of", lambda path: None)
    with caplog.at_level(logging.WARNING):
        opened(file)
    assert "can't be known on this system" in caplog.text
    assert "SQLite is for one machine" in caplog.text


def on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, boot: str, host: str) -> None:
    """From now on this is another machine, or another start of one."""
    (tmp_path / "boot_id").write_text(boot + "\n")
    monkeypatch.setattr(files, "_BOOT_ID", tmp_path / "boot_id")
    monkeypatch.setattr("platform.node", lambda: host)


def test_use_by_a_second_machine_is_noticed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    on(monkeypatch, tmp_path, "1", "alpha")
    opened(file)
    on(monkeypatch, tmp_path, "2", "beta")
    with caplog.at_level(logging.WARNING):
        opened(file)
    assert "was used by alpha before, and is used by beta now" in caplog.text
    on(monkeypatch, tmp_path, "1", "alpha")
    for _ in range(2):
        with pytest.raises(PermanentError, match="is used by two machines: beta has opened it since alpha did"):
            opened(file)
    on(monkeypatch, tmp_path, "2", "beta")
    opened(file)


def test_a_machine_may_be_restarted_and_have_containers(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for boot, host in (("1", "scheduler"), ("1", "worker"), ("1", "scheduler"), ("2", "scheduler"), ("3", "worker")):
        on(monkeypatch, tmp_path, boot, host)
        opened(file)
