"""The upstream database of these tests."""

from collections.abc import Iterator

import pytest

from tests.support import mariadb
from ticdc_replay.domain.connections import Connection


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory, mariadb_programs: mariadb.Programs) -> Iterator[Connection]:
    """A MariaDB server, which plays the changefeed's upstream."""
    with mariadb.running(tmp_path_factory.mktemp("mariadb"), mariadb_programs) as connection:
        yield connection
