"""Which connections a store opens what with."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ticdc_replay.config.load_store import LoadedStore, load_store
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.store_stages.context import StoreContext, store_connection_ids

PIPELINE = """\
name: shop
changefeed:
  sink_uri: kafka://broker:9092/shop?protocol=open-protocol
  timezone: UTC
  config: |
    [sink.kafka-config.large-message-handle]
    large-message-handle-option = "claim-check"
    claim-check-storage-uri = "s3://bucket/claims"
connections: {kafka: kafka, claim_check: s3_shop, source: tidb, artifacts: s3_lake, state: state}
artifacts: s3://lake/replay
tables: ["s.*"]
schedule: {start: "2025-01-01T00:00:00Z"}
policies: {handle_key_only: reread}
targets: [{name: lake, type: parquet, uri: "file:///unused"}]
"""
STORE: dict[str, Any] = {
    "name": "claims",
    "uri": "s3://bucket/claims",
    "pipelines": ["shop"],
    "owners_complete": True,
    "connections": {"store": "s3_read", "deletion": "s3_delete", "artifacts": "s3_lake", "state": "state"},
    "artifacts": "s3://lake/reconciliation",
    "schedule": {"start": "2025-01-01T00:00:00Z"},
    "deletion": {"policy": "approval"},
}


def loaded(folder: Path, **changes: Any) -> LoadedStore:
    (folder / "pipelines").mkdir(exist_ok=True)
    (folder / "pipelines/shop.yaml").write_text(PIPELINE)
    (folder / "claims.yaml").write_text(yaml.safe_dump(STORE | changes))
    return load_store(folder / "claims.yaml", folder / "pipelines")


def test_a_reconciliation_resolves_no_connection_that_may_delete(tmp_path: Path) -> None:
    found = store_connection_ids(loaded(tmp_path))
    assert found == ("kafka", "s3_lake", "s3_read", "s3_shop", "state", "tidb")


def test_the_right_to_delete_is_opened_only_where_the_policy_has_it_and_it_was_resolved(tmp_path: Path) -> None:
    aws = Connections({name: Connection(name, "aws") for name in ("s3_read", "s3_delete")})
    assert StoreContext(loaded(tmp_path), aws).for_deletion().root == "s3://bucket/claims"
    with pytest.raises(ConfigError, match="s3_delete"):
        StoreContext(loaded(tmp_path), Connections({"s3_read": aws["s3_read"]})).for_deletion()
    never = loaded(
        tmp_path,
        deletion={"policy": "never"},
        connections={"store": "s3_read", "artifacts": "s3_lake", "state": "state"},
    )
    with pytest.raises(ConfigError, match="policy is never"):
        StoreContext(never, aws).for_deletion()


def test_inventory_reports_are_read_with_the_stores_connection_where_they_have_none(tmp_path: Path) -> None:
    aws = Connections({"s3_read": Connection("s3_read", "aws")})
    with pytest.raises(ConfigError, match="source is listing"):
        _ = StoreContext(loaded(tmp_path), aws).inventory_reports
    reported = loaded(tmp_path, inventory={"source": "s3_inventory", "manifest": "s3://reports/bucket/daily"})
    assert StoreContext(reported, aws).inventory_reports.root == "s3://reports/bucket/daily"


def test_artifacts_of_a_store_are_below_its_name(tmp_path: Path) -> None:
    assert StoreContext(loaded(tmp_path), Connections()).artifacts_uri == "s3://lake/reconciliation/claims"
