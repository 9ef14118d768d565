"""The sample changefeed in real servers, a pipeline for it, and an Airflow environment in which its DAG can be run."""

import json
import os
import re
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from demo.sample import contents, publish
from ticdc_replay.domain import tso

S3_SECRET, S3_TOKEN = "s3-secret-Qm7x", "session-token-Vb4n"


class Stage:
    """One bucket, topic and pair of databases. Every connection holds a secret; Kafka and PostgreSQL check theirs."""

    def __init__(self, folder, kafka, s3, s3_client, postgres):
        self.folder = folder
        self.home = Path(os.environ["AIRFLOW_HOME"])
        self.programs = Path(sys.executable).parent
        self.postgres = postgres
        self.lineage = folder / "openlineage.jsonl"
        self.event_log = folder / "spark-events"
        self.windows = contents.windows()
        name = uuid.uuid4().hex[:8]
        self.bucket, self.topic = f"stage-{name}", f"stage-{name}"
        self.databases = [f"warehouse_{name}", f"state_{name}"]
        self.warehouse, state = (postgres.create_database(database) for database in self.databases)
        s3_client.create_bucket(Bucket=self.bucket)
        publish.publish(kafka.bootstrap, self.topic, s3_client, self.bucket, "claim-check/")
        self.event_log.mkdir()
        (folder / "pipelines").mkdir()
        self.pipeline_file = folder / "pipelines" / "shop.yaml"
        self.pipeline_file.write_text(yaml.safe_dump(self._pipeline()))
        self.connections = {
            "AIRFLOW_CONN_STAGE_KAFKA": _kafka(kafka),
            "AIRFLOW_CONN_STAGE_LAKE": _lake(s3),
            "AIRFLOW_CONN_STAGE_WAREHOUSE": _postgres(self.warehouse),
            "AIRFLOW_CONN_STAGE_STATE": _postgres(state),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        }
        self.secrets = (S3_SECRET, S3_TOKEN, kafka.sasl_password, postgres.password)

    @property
    def declared(self):
        """The pipeline's file."""
        return yaml.safe_load(self.pipeline_file.read_text())

    @contextmanager
    def jobs_by(self, **declared):
        """Inside, the pipeline's file has these keys as well, such as ``runner``."""
        before = self.pipeline_file.read_text()
        self.pipeline_file.write_text(yaml.safe_dump({**self.declared, **declared}))
        try:
            yield
        finally:
            self.pipeline_file.write_text(before)

    def close(self):
        for database in self.databases:
            self.postgres.drop_database(database)

    def run(self, window, dag="ticdc_replay_shop", fails=False, **answers):
        """``run_dag`` for *window*."""
        return self.run_dag(dag, fails, **answers, **{"from": _iso(window.from_ts), "to": _iso(window.to_ts)})

    def run_dag(self, dag, fails=False, **conf):
        """A manual run of *dag*. Returns what it printed, with the log of every task; it must end as *fails* says."""
        command = [
            self.programs / "airflow",
            "dags",
            "test",
            dag,
            "--conf",
            json.dumps(conf),
        ]
        done = subprocess.run(command, env=self.environment, cwd=self.folder, capture_output=True, text=True)
        log = self.folder / "run.log"
        log.write_text(done.stdout + done.stderr)
        sys.stdout.write(log.read_text())  # shown where the test fails
        assert (done.returncode != 0) is fails, f"exit code {done.returncode}, see {log}"
        return log.read_text()

    @property
    def environment(self):
        return {
            **os.environ,
            **self.connections,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": str(self.programs / "python"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TICDC_REPLAY_PIPELINES": str(self.pipeline_file.parent),
            "TICDC_REPLAY_STORES": str(self.folder / "stores"),
            "AIRFLOW__OPENLINEAGE__TRANSPORT": self.transport,
        }

    @property
    def transport(self):
        return json.dumps({"type": "file", "log_file_path": str(self.lineage), "append": True})

    def _pipeline(self):
        return {
            "name": "shop",
            "changefeed": {
                "sink_uri": f"kafka://broker:9092/{self.topic}?protocol=open-protocol&partition-num=3",
                "config": "[sink]\n"
                "dispatchers = [{matcher = ['*.*'], partition = 'index-value'}]\n"
                "[sink.kafka-config.large-message-handle]\n"
                "large-message-handle-option = 'claim-check'\n"
                f"claim-check-storage-uri = 's3://{self.bucket}/claim-check'\n",
                "timezone": contents.meta()["ticdc_timezone"],
            },
            "connections": {
                "kafka": "stage_kafka",
                "claim_check": "stage_lake",
                "artifacts": "stage_lake",
                "state": "stage_state",
            },
            "artifacts": f"s3://{self.bucket}/replay",
            "schedule": {"cron": "0 * * * *", "start": "2026-01-01T00:00:00Z"},
            "spark": {"conf": {"spark.eventLog.enabled": "true", "spark.eventLog.dir": self.event_log.as_uri()}},
            "targets": [
                {"name": "warehouse", "type": "postgres", "connection": "stage_warehouse"},
                {"name": "lake", "type": "parquet", "uri": f"s3://{self.bucket}/lake", "connection": "stage_lake"},
            ],
        }


def submitted(log):
    """The kind of each job that a run submitted, sorted, whose *log* is given; one that was tried again counts once."""
    by_spark = re.findall(r"Spark-(?:Submit|Connect) cmd: .*/spark/jobs/(\w+)\.py (\S+)", log)
    local = re.findall(r"Local cmd: .* -m ticdc_replay\.drivers (\S+) \S+ ticdc_replay\.drivers\.(\w+)", log)
    return sorted(kind for kind, _ in {*by_spark, *((kind, uri) for uri, kind in local)})


def objects_of(client, bucket, prefix):
    """The objects below *prefix*, by key, as text."""
    found = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [entry["Key"] for page in found for entry in page.get("Contents", ())]
    return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read().decode(errors="replace") for key in keys}


def _kafka(kafka):
    extra = {
        "bootstrap.servers": kafka.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": kafka.sasl_mechanism,
        "sasl.username": kafka.sasl_username,
        "sasl.password": kafka.sasl_password,
    }
    return json.dumps({"conn_type": "kafka", "extra": extra})


def _lake(s3):
    extra = {"endpoint_url": s3.endpoint, "region_name": s3.region, "aws_session_token": S3_TOKEN}
    return json.dumps({"conn_type": "aws", "login": s3.access_key, "password": S3_SECRET, "extra": extra})


def _postgres(dsn):
    parts = urlsplit(dsn)
    return json.dumps(
        {
            "conn_type": "postgres",
            "host": parts.hostname,
            "port": parts.port,
            "login": parts.username,
            "password": parts.password,
            "schema": parts.path.lstrip("/"),
        }
    )


def _iso(ts):
    return tso.to_datetime(ts).isoformat()
