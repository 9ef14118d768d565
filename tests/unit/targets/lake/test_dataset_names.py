"""What OpenLineage calls a lake table, for each kind of catalog."""

import pytest

from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.connections import Connection

CASES: dict[str, tuple[dict[str, object], dict[str, str], list[tuple[str, str]]]] = {
    "hadoop": (
        {"type": "iceberg", "catalog": "lake", "settings": {"type": "hadoop", "warehouse": "file:///srv/lake"}},
        {},
        [("file", "/srv/lake/shop/orders"), ("file:///srv/lake", "shop.orders")],
    ),
    "jdbc, by connection": (
        {"type": "iceberg", "catalog": "lake", "settings": {"type": "jdbc"}},
        {"uri": "jdbc:postgresql://db/catalog?password=hunter2", "warehouse": "s3a://lake/tables/"},
        [("s3a://lake/tables", "shop.orders")],
    ),
    "rest, whose server knows where tables lie": (
        {"type": "iceberg", "catalog": "lake", "settings": {"type": "rest", "warehouse": "prod"}},
        {"uri": "https://user:hunter2@catalog:8181/iceberg/", "token": "hunter2"},
        [("https://catalog:8181/iceberg", "shop.orders")],
    ),
    "hive": (
        {"type": "iceberg", "catalog": "lake", "settings": {"type": "hive", "uri": "thrift://metastore:9083"}},
        {},
        [("hive://metastore:9083", "shop.orders")],
    ),
    "a catalog of the cluster": ({"type": "iceberg", "catalog": "lake"}, {}, [("iceberg://lake", "shop.orders")]),
    "delta by path": ({"type": "delta", "path": "s3a://lake/delta"}, {}, [("s3://lake", "delta/shop/orders")]),
    "delta in a catalog": ({"type": "delta"}, {}, [("delta://spark_catalog", "shop.orders")]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_table_has_the_name_of_its_folder_or_of_its_catalog(case: str) -> None:
    settings, extra, expected = CASES[case]
    section = read_section({"name": "mirror", "ledger": "file:///ledger", **settings})
    names = section.dataset_names(Connection("lake", "generic", extra=extra) if extra else None, '"shop"."orders"')
    assert [(each.namespace, each.name) for each in names] == expected
