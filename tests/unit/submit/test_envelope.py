"""Connections that are sealed for a driver on another machine."""

import json
import time
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError, TransientError
from ticdc_replay.submit.envelope import MAX_AGE_S, EnvelopeKey, decode_key, put_envelope, take_envelope
from ticdc_replay.submit.outcome import JobFile

KAFKA = Connection("kafka", "kafka", "broker", password="planted")
CONNECTIONS = Connections({"kafka": KAFKA})


@pytest.fixture
def file(tmp_path: Path) -> JobFile:
    (tmp_path / "jobs").mkdir()
    return JobFile(f"{tmp_path.as_uri()}/jobs/abc.json", Connections())


def sealed(tmp_path: Path) -> Path:
    return tmp_path / "jobs" / "abc.one.sealed"


def test_it_is_opened_once_with_the_key_of_its_attempt(file: JobFile, tmp_path: Path) -> None:
    key = put_envelope(file, "one", CONNECTIONS)
    assert b"planted" not in sealed(tmp_path).read_bytes()
    assert take_envelope(file, "one", decode_key(key.encode(), "here")) == CONNECTIONS
    assert not sealed(tmp_path).exists()
    with pytest.raises(TransientError, match="attempt one is gone"):
        take_envelope(file, "one", key)


def test_the_key_of_another_attempt_opens_nothing(file: JobFile, tmp_path: Path) -> None:
    put_envelope(file, "one", CONNECTIONS)
    other = put_envelope(file, "two", CONNECTIONS)
    with pytest.raises(ConfigError, match="attempt one was altered, or sealed with another key"):
        take_envelope(file, "one", other)
    assert sealed(tmp_path).exists(), "its own driver may still come"


@pytest.mark.parametrize("at", [0, 1, 9, 40, -1])
def test_an_altered_one_is_refused(file: JobFile, tmp_path: Path, at: int) -> None:
    key = put_envelope(file, "one", CONNECTIONS)
    content = bytearray(sealed(tmp_path).read_bytes())
    content[at] = ord("B") if content[at] != ord("B") else ord("C")
    sealed(tmp_path).write_bytes(content)
    with pytest.raises(ConfigError, match="was altered"):
        take_envelope(file, "one", key)


def test_an_old_one_is_refused(file: JobFile, tmp_path: Path) -> None:
    key = put_envelope(file, "one", CONNECTIONS)
    plain = Fernet(key.key).decrypt(sealed(tmp_path).read_bytes())
    old = Fernet(key.key).encrypt_at_time(plain, int(time.time()) - MAX_AGE_S - 1)
    sealed(tmp_path).write_bytes(old)
    with pytest.raises(TransientError, match="older than 24 hours"):
        take_envelope(file, "one", key)


@pytest.mark.parametrize("content", [b"", b"planted", json.dumps({"key": 1, "artifacts": None}).encode()])
def test_what_is_no_key_is_not_shown(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^/run/key is not the key of an envelope$"):
        decode_key(content, "/run/key")


def test_a_key_hides_itself() -> None:
    assert "planted" not in repr(EnvelopeKey("planted", KAFKA))
