"""The whole system of the demo: servers, the sample in them, Airflow with its connections."""

import shutil
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import boto3
import yaml
from botocore.config import Config
from pyarrow import fs

from demo import pipeline
from demo.airflow_api import AirflowApi
from demo.embedded_stack import jars
from demo.embedded_stack.airflow import Airflow
from demo.embedded_stack.cache import CHECKOUT
from demo.embedded_stack.secret_file import write_secret
from demo.embedded_stack.spark import SparkConnect
from demo.embedded_stack.stack import DataServers
from demo.sample.ageing import Aged, age, leave_foreign_objects
from demo.sample.publish import Published, publish

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


Runner = Literal["spark", "connect"]
"""How jobs run: each by ``spark-submit``, or all at a Spark Connect server."""


class System:
    """Start with ``start_data`` and ``begin_airflow``; leaving it as a context manager stops everything."""

    def __init__(self, folder: Path, runner: Runner = "spark") -> None:
        self._folder = folder
        self.runner = runner
        self._exit = ExitStack()
        self.data = DataServers(folder / "data")
        self.connections_file = folder / "connections.yaml"
        """The connections for the command line; nobody else may read it."""
        self.warehouse = ""
        """DSN of the target database, once the data servers run."""
        self.lakehouse = folder / "lakehouse"
        """Iceberg's catalog and tables."""
        self.airflow: Airflow | None = None
        self.spark: SparkConnect | None = None
        """The server that jobs run at, once it is started; None where each job is submitted."""

    def start_data(self) -> None:
        """Kafka, S3, PostgreSQL; empty."""
        for old in ("data", "airflow", "lakehouse", "spark-connect"):
            shutil.rmtree(self._folder / old, ignore_errors=True)
        self.lakehouse.mkdir()
        self._exit.enter_context(self.data)
        self.warehouse = self.data.postgres.create_database("warehouse")

    def start_spark(self) -> None:
        """A Spark Connect server, which has the catalog of Iceberg's tables."""
        environment = {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(CHECKOUT / "include"),
            "SPARK_DIST_CLASSPATH": lake_class_path(),
        }
        properties = pipeline.server_properties(self.lakehouse)
        server = SparkConnect(self._folder / "spark-connect", environment=environment, properties=properties)
        self.spark = self._exit.enter_context(server)

    def begin_airflow(self) -> "Future[Airflow]":
        """Start Airflow in the background, with the DAGs of this checkout."""
        airflow = Airflow(
            self._folder / "airflow",
            dags_folder=CHECKOUT / "dags",
            plugins_folder=CHECKOUT / "plugins",
            database_dsn=self.data.postgres.create_database("airflow"),
            environment={"SPARK_DIST_CLASSPATH": lake_class_path()},
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
        client.create_bucket(Bucket=pipeline.BUCKET)
        client.create_bucket(Bucket=pipeline.REPLAY_BUCKET)
        leave_foreign_objects(client, pipeline.BUCKET, pipeline.PREFIX)
        return publish(self.data.kafka.bootstrap, pipeline.TOPIC, client, pipeline.BUCKET, pipeline.PREFIX)

    def age_store(self) -> Aged:
        """Do to the topic and the store of the claim checks what months do."""
        return age(self.data.kafka.bootstrap, pipeline.TOPIC, self.s3_client(), pipeline.BUCKET, pipeline.PREFIX)

    def add_connections(self, api: AirflowApi) -> None:
        """What the pipeline names, as an administrator would add it."""
        self.data.postgres.create_database("replay_state")
        connections = pipeline.connections(self.data, "warehouse", "replay_state", self.lakehouse)
        if self.spark is None:
            spark = {"conn_type": "spark", "host": "local[2]", "extra": {"spark-binary": "spark-submit"}}
        else:
            spark = {"conn_type": "spark_connect", "host": self.spark.url}
        connections["spark_default"] = spark
        write_secret(self.connections_file, yaml.safe_dump(connections, sort_keys=False))
        for conn_id, fields in connections.items():
            api.add_connection(conn_id, **fields)

    def stored(self, name: str) -> bytes:
        """The object *name* of what the pipeline and the store leave behind."""
        return self.s3_client().get_object(Bucket=pipeline.REPLAY_BUCKET, Key=name)["Body"].read()

    def arrow_filesystem(self) -> fs.S3FileSystem:
        """The S3 server, for pyarrow."""
        server = self.data.s3
        return fs.S3FileSystem(
            access_key=server.access_key,
            secret_key=server.secret_key,
            endpoint_override=server.endpoint,
            region=server.region,
        )

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


def lake_class_path() -> str:
    """The jars that Iceberg's tables need, for the end of the class path of every Spark: only there they leave the archive
    of Spark's classes in use."""
    return ":".join(str(jar) for jar in sorted(jars.fetch(jars.LAKE).glob("*.jar")))
