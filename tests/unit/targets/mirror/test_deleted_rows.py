"""What a pipeline may say of deleted rows that stay in a database."""

from typing import Any

import pytest

from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.targets.history.section import DatabaseSection

POSTGRES: dict[str, Any] = {"type": "postgres", "name": "mirror", "connection": "target"}
MYSQL: dict[str, Any] = {"type": "mysql", "name": "mirror", "connection": "target"}


@pytest.mark.parametrize("base", [POSTGRES, MYSQL])
def test_deleted_rows_go_unless_the_target_says_otherwise(base: dict[str, Any]) -> None:
    for keys, marker in (
        ({}, None),
        ({"deleted_column": "gone"}, None),
        ({"deletes": "soft"}, "_is_deleted"),
        ({"deletes": "soft", "deleted_column": "gone"}, "gone"),
    ):
        read = read_section({**base, **keys})
        assert isinstance(read, DatabaseSection)
        assert read.marker == marker


@pytest.mark.parametrize(
    ("base", "keys", "message"),
    [
        (POSTGRES, {"mode": "history", "deletes": "soft"}, "soft is of mode mirror"),
        (MYSQL, {"mode": "scd2", "deletes": "soft"}, "soft is of mode mirror"),
        (MYSQL, {"deletes": "soft", "deleted_column": "_commit_ts"}, "`deleted_column` must differ"),
        (POSTGRES, {"deletes": "soft", "deleted_column": "_place"}, "`deleted_column` must differ"),
        (POSTGRES, {"deletes": "soft", "deleted_column": "xmin"}, "has a column xmin in every table"),
        (MYSQL, {"deletes": "marked"}, "deletes"),
    ],
)
def test_what_is_refused(base: dict[str, Any], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_section({**base, **keys})
