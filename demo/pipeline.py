"""The example pipeline and store, which the demo runs, and their connections in the embedded stack."""

from pathlib import Path
from typing import Any

from demo.embedded_stack.cache import CHECKOUT
from demo.embedded_stack.stack import DataServers
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection

PIPELINE = CHECKOUT / "include" / "pipelines" / "shop.yaml"
STORE = CHECKOUT / "include" / "stores" / "shop_claims.yaml"
NAME, STORE_NAME = PIPELINE.stem, STORE.stem
BUCKET = "shop-changefeed"
PREFIX = "claim-check/"
TOPIC = "shop-changes"
REPLAY_BUCKET = "ticdc-replay"
"""Of artefacts, the lake, and the ledger of Iceberg's tables."""
CATALOG = "lakehouse"
"""Of Iceberg's tables: its name in Spark, and the connection that has its settings."""


def catalog_database(lakehouse: Path) -> Path:
    """The SQLite database of the catalog whose tables are in the folder *lakehouse*."""
    return lakehouse / "catalog.db"


def catalog_settings(lakehouse: Path) -> dict[str, str]:
    """Those of the catalog, as Spark has them below its name."""
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{catalog_database(lakehouse)}",
        "jdbc.schema-version": "V1",  # as pyiceberg reads it
        "warehouse": lakehouse.as_uri(),
    }


def server_properties(lakehouse: Path) -> dict[str, str]:
    """What a Spark Connect server needs to write the pipeline's Iceberg tables."""
    (iceberg,) = (target for target in load_pipeline(PIPELINE).pipeline.targets if target.connection_id == CATALOG)
    catalog = Connection(CATALOG, "generic", extra=catalog_settings(lakehouse))
    return {**iceberg.spark_properties, **iceberg.secret_settings(catalog)}


def connections(servers: DataServers, warehouse: str, state: str, lakehouse: Path) -> dict[str, dict[str, Any]]:
    """The pipeline's connections, by id, in the fields of Airflow. *warehouse* and *state* are databases of the server,
    *lakehouse* is the folder of Iceberg's catalog."""
    postgres = servers.postgres
    database = {
        "conn_type": "postgres",
        "host": postgres.host,
        "port": postgres.port,
        "login": postgres.user,
        "password": postgres.password,
    }
    s3 = {
        "conn_type": "aws",
        "login": servers.s3.access_key,
        "password": servers.s3.secret_key,
        "extra": {"endpoint_url": servers.s3.endpoint, "region_name": servers.s3.region},
    }
    return {
        "shop_kafka": {"conn_type": "kafka", "extra": {"bootstrap.servers": servers.kafka.bootstrap}},
        "shop_s3": s3,
        "replay_s3": s3,
        "warehouse": {**database, "schema": warehouse},
        CATALOG: {"conn_type": "generic", "extra": catalog_settings(lakehouse)},
        "replay_state": {**database, "schema": state},
    }
