"""A state store on each database that it can be in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ticdc_replay.state import StateStore, open_state


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new/folder/state.db"
    made: str = request.getfixturevalue("make_database")()
    return made


@pytest.fixture
def state(url: str) -> Iterator[StateStore]:
    store = open_state(url)
    yield store
    store.close()
