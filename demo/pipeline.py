"""The sample changefeed as a pipeline and its claim checks as a store, with the connections of the embedded stack."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.embedded_stack.stack import DataServers
from demo.sample import contents

NAME = "shop"
BUCKET = "shop-changefeed"
PREFIX = "claim-check/"
TOPIC = "shop-changes"
STORE = "shop_claims"

PIPELINE = """\
# yaml-language-server: $schema={schema}
name: {name}
description: Orders and large documents of the shop, hour by hour
changefeed:
  sink_uri: kafka://broker:9092/{topic}?protocol=open-protocol&partition-num=3&max-message-bytes=4000&max-batch-size=16
  timezone: Asia/Shanghai
  config: |
    [sink.kafka-config.large-message-handle]
    large-message-handle-option = "claim-check"
    claim-check-storage-uri = "s3://{bucket}/{prefix}"
connections:
  kafka: shop_kafka
  claim_check: shop_claim_check
  state: replay_state
artifacts: file://{artifacts}
tables: ["shop.*", "devlarge.*"]
schedule:
  cron: "0 * * * *"
  start: {start}
  end: {end}
  max_active_runs: 2
targets:
  - name: warehouse
    type: postgres
    connection: warehouse
  - name: lake
    type: parquet
    uri: file://{lake}
"""

STORE_YAML = """\
# yaml-language-server: $schema={schema}
name: {store}
description: Large messages of the shop
uri: s3://{bucket}/{prefix}
pipelines: [{name}]
owners_complete: true
connections:
  store: shop_claim_check
  state: replay_state
artifacts: file://{artifacts}/stores
schedule:
  cron: "0 3 * * *"
  start: {start}
rules:
  young_hours: 0.02  # the demo has no time to wait; a day, the default, is right elsewhere
  clock_skew_seconds: 5
"""


def pipeline_yaml(artifacts: Path, lake: Path, schema: Path) -> str:
    """The pipeline file; artefacts and the lake are folders of this machine. *schema* is the JSON Schema for editors."""
    windows = contents.summary()["windows"]
    return PIPELINE.format(
        name=NAME,
        topic=TOPIC,
        bucket=BUCKET,
        prefix=PREFIX.rstrip("/"),
        artifacts=artifacts,
        lake=lake,
        start=windows[0]["from"],
        end=windows[-1]["from"],
        schema=schema,
    )


def store_yaml(artifacts: Path, schema: Path) -> str:
    """The file of the claim-check store; it knows the pipeline by its name."""
    return STORE_YAML.format(
        store=STORE,
        name=NAME,
        bucket=BUCKET,
        prefix=PREFIX.rstrip("/"),
        artifacts=artifacts,
        start=contents.summary()["windows"][0]["from"],
        schema=schema,
    )


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
    return {
        "shop_kafka": {"conn_type": "kafka", "extra": {"bootstrap.servers": servers.kafka.bootstrap}},
        "shop_claim_check": {
            "conn_type": "aws",
            "login": servers.s3.access_key,
            "password": servers.s3.secret_key,
            "extra": {"endpoint_url": servers.s3.endpoint, "region_name": servers.s3.region},
        },
        "warehouse": {**database, "schema": warehouse},
        "replay_state": {**database, "schema": state},
    }


def airflow_variables(by_id: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The connections as the environment variables that Airflow reads."""
    return {f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(fields) for conn_id, fields in by_id.items()}
