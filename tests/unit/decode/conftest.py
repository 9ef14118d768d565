"""What tests of decoding share."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.native_decoding import Written, writing


@pytest.fixture
def write(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Written]]:
    """Decodes messages with and without the native extension, see ``tests.support.native_decoding.writing``."""
    with writing(tmp_path_factory, monkeypatch) as write:
        yield write
