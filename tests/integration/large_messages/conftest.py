"""The upstream database of these tests."""

from collections.abc import Iterator

import pytest

from tests import mariadb
from ticdc_replay.domain.connections import Connection


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A MariaDB server, which plays the changefeed's upstream."""
    if not mariadb.installed():
        pytest.skip("mariadbd is not installed (Debian: apt-get install mariadb-server)")
    with mariadb.running(tmp_path_factory.mktemp("mariadb")) as connection:
        yield connection
