"""What a pipeline may say of lake tables, and what is refused before anything runs."""

from typing import Any

import pytest

from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.lake.section import LakeSection

ICEBERG: dict[str, Any] = {"type": "iceberg", "name": "lake", "catalog": "lake", "ledger": "file:///ledger"}
DELTA: dict[str, Any] = {"type": "delta", "name": "lake", "path": "s3a://lake/tables/", "ledger": "file:///ledger"}


def section(base: dict[str, Any], **keys: Any) -> LakeSection:
    read = read_section({**base, **keys})
    assert isinstance(read, LakeSection)
    return read


@pytest.mark.parametrize(
    ("base", "keys", "message"),
    [
        (ICEBERG, {"settings": {"s3.secret-access-key": "x"}}, "s3.secret-access-key is or holds a secret"),
        (ICEBERG, {"settings": {"credential": "id:x"}}, "credential is or holds a secret"),
        (ICEBERG, {"settings": {"uri": "jdbc:postgresql://u:p@host/db"}}, "uri is or holds a secret"),
        (ICEBERG, {"settings": {"uri": "jdbc:mysql://host/db?user=u&password=p"}}, "uri is or holds a secret"),
        (ICEBERG, {"mode": "history", "deletes": "soft"}, "soft is of mode mirror"),
        (ICEBERG, {"deletes": "soft", "deleted_column": "_commit_ts"}, "`deleted_column` must differ"),
        (ICEBERG, {"commit_ts_column": "_pos"}, "has a column _pos in every table"),
        (ICEBERG, {"deletes": "soft", "deleted_column": "_deleted"}, "has a column _deleted in every table"),
        (ICEBERG, {"catalog": "a b"}, "catalog"),
        (DELTA, {"catalog": "unity"}, "`path` excludes"),
        (DELTA, {"path": "/lake"}, "must be a folder as Spark has it"),
        (DELTA, {"path": "s3a://lake/`x"}, "must be a folder as Spark has it"),
    ],
)
def test_what_is_refused(base: dict[str, Any], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        section(base, **keys)


def test_secrets_of_a_catalog_are_in_no_text_of_the_section() -> None:
    read = section(ICEBERG, settings={"type": "rest", "uri": "http://catalog:8181"}, connection="catalog_secrets")
    assert read.connection_ids == ("catalog_secrets",)
    assert read.place == "iceberg mirror catalog lake (http://catalog:8181)"
    assert read.description == "Iceberg (mirror) in catalog lake (http://catalog:8181)"


def test_the_first_layout_that_matches_counts() -> None:
    layouts = [{"tables": ["shop.orders"], "partition_by": ["bucket(16, id)"]}, {"sort_by": ["id"]}]
    read = section(ICEBERG, layouts=layouts)
    assert read.layout_of(TableName("shop", "orders")).partition_by == ("bucket(16, id)",)
    assert read.layout_of(TableName("shop", "items")).sort_by == ("id",)
    assert section(ICEBERG).layout_of(TableName("shop", "items")).properties == {}


@pytest.mark.parametrize(("mode", "is_mirror"), [("mirror", True), ("history", False), ("scd2", False)])
def test_only_a_mirror_is_one(mode: str, is_mirror: bool) -> None:
    assert section(ICEBERG, mode=mode).is_mirror == is_mirror


def test_two_targets_may_not_share_files_of_a_ledger() -> None:
    one, other = section(ICEBERG), section(DELTA, name="other", ledger="file:///ledger/other")
    with pytest.raises(ValueError, match=r"targets\[1\].ledger: .* may share files"):
        other.check("targets[1]", "shop", ["shop.*"], [one])
    section(DELTA, name="other", ledger="file:///elsewhere").check("targets[1]", "shop", ["shop.*"], [one])
