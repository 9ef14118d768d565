"""The example pipeline and store, which the demo runs, and their connections in the embedded stack."""

from typing import Any

from demo.embedded_stack.cache import CHECKOUT
from demo.embedded_stack.stack import DataServers

PIPELINE = CHECKOUT / "include" / "pipelines" / "shop.yaml"
STORE = CHECKOUT / "include" / "stores" / "shop_claims.yaml"
NAME, STORE_NAME = PIPELINE.stem, STORE.stem
BUCKET = "shop-changefeed"
PREFIX = "claim-check/"
TOPIC = "shop-changes"
REPLAY_BUCKET = "ticdc-replay"
"""Of artefacts and lake."""


def connections(servers: DataServers, warehouse: str, state: str) -> dict[str, dict[str, Any]]:
    """The pipeline's connections, by id, in the fields of Airflow. *warehouse* and *state* are databases of the server."""
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
        "replay_state": {**database, "schema": state},
    }
