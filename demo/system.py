"""The whole system of the demo: servers, the sample in them, Airflow with its connections."""

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import boto3
from botocore.config import Config

from demo.airflow_api import AirflowApi
from demo.embedded_stack.airflow import Airflow
from demo.embedded_stack.cache import CHECKOUT
from demo.embedded_stack.stack import DataServers
from demo.sample.publish import Published, publish

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

TOPIC = "shop-changes"
SAMPLE_BUCKET, SAMPLE_PREFIX = "shop-changefeed", "claim-check/"
ARTIFACTS_BUCKET = "ticdc-replay"
BUNDLES = '[{"name": "ticdc_replay", "classpath": "ticdc_replay.airflow.bundle.PipelineBundle", "kwargs": {}}]'


class System:
    """Start with ``start_data`` and ``start_airflow``; leaving it as a context manager stops everything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._exit = ExitStack()
        self.data = DataServers(folder / "data")
        self.warehouse = ""
        """DSN of the target database, once the data servers run."""
        self.airflow: Airflow | None = None

    def start_data(self) -> None:
        """Kafka, S3, PostgreSQL; empty."""
        for old in ("data", "airflow"):
            shutil.rmtree(self._folder / old, ignore_errors=True)
        self._exit.enter_context(self.data)
        self.warehouse = self.data.postgres.create_database("warehouse")

    def begin_airflow(self) -> "Future[Airflow]":
        """Start Airflow, with nothing in it, in the background."""
        airflow = Airflow(
            self._folder / "airflow",
            dags_folder=CHECKOUT / "dags",
            plugins_folder=CHECKOUT / "plugins",
            database_dsn=self.data.postgres.create_database("airflow"),
            environment={"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": BUNDLES},
        )
        self.airflow = airflow
        pool = ThreadPoolExecutor(1)
        # In reverse order: end a start that is under way, wait for it, stop what had not begun then.
        for stop in (airflow.stop, pool.shutdown, airflow.stop):
            self._exit.callback(stop)
        return pool.submit(airflow.start)

    def publish_sample(self) -> Published:
        """Bring the sample changefeed into Kafka and S3."""
        client = self.s3_client()
        for bucket in (SAMPLE_BUCKET, ARTIFACTS_BUCKET):
            client.create_bucket(Bucket=bucket)
        return publish(self.data.kafka.bootstrap, TOPIC, client, SAMPLE_BUCKET, SAMPLE_PREFIX)

    def add_connections(self, api: AirflowApi) -> None:
        """What the pipeline names, as an administrator would add it."""
        s3, postgres = self.data.s3, self.data.postgres
        api.add_connection("kafka_sample", "kafka", {"bootstrap.servers": self.data.kafka.bootstrap})
        for conn_id in ("s3_sample", "s3_artifacts"):
            address = {"endpoint_url": s3.endpoint, "region_name": s3.region}
            api.add_connection(conn_id, "aws", address, login=s3.access_key, password=s3.secret_key)
        postgres.create_database("replay_state")
        for conn_id, database in (("replay_state", "replay_state"), ("target_postgres", "warehouse")):
            account = {"login": postgres.user, "password": postgres.password}
            api.add_connection(conn_id, "postgres", host=postgres.host, port=postgres.port, schema=database, **account)
        api.add_connection("spark_default", "spark", {"spark-binary": "spark-submit"}, host="local[2]")

    def s3_client(self) -> "S3Client":
        """A client of the S3 server."""
        server = self.data.s3
        return boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
            region_name=server.region,
            config=Config(s3={"addressing_style": "path"}),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()
