"""Hadoop's file of credentials; ``tests/spark/test_yarn.py`` has YARN itself read and write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.submit.hadoop_credentials import credentials_file, secret_in

WITH_A_TOKEN = (
    b"HDTS\x00\x01\x05alias\x02id\x03pwd\x04kind\x07service\x02\x05other\x01x\x19ticdc-replay.envelope-key\x06sealed"
)
"""As ``Credentials.writeTokenStorageToStream`` writes it."""


@given(st.binary(max_size=70_000))
def test_a_secret_of_any_length_comes_back(secret: bytes) -> None:
    assert secret_in(credentials_file(secret), "here") == secret


@pytest.mark.parametrize("length", [0, 127, 128, 255, 256, 65_535, 65_536])
def test_lengths_at_the_bounds_of_the_number_s_form(length: int) -> None:
    assert secret_in(credentials_file(b"x" * length), "here") == b"x" * length


def test_tokens_and_other_secrets_are_passed_over() -> None:
    assert secret_in(WITH_A_TOKEN, "here") == b"sealed"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a file of Hadoop's credentials"),
        (b"HDTS\x01", "another version"),
        (b"HDTS\x00\x00\x00", "has no secret ticdc-replay.envelope-key"),
        (WITH_A_TOKEN[:-1], "ends too early"),
        (b"HDTS\x00", "ends too early"),
    ],
)
def test_other_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        secret_in(content, "here")
