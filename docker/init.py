"""One-shot set-up of the composed system: Airflow's database and connections, and the buckets. Safe to repeat."""

import json
import subprocess
import tempfile

from common import ARTIFACTS_BUCKET, KAFKA, LAKEHOUSE, S3_ENDPOINT, S3_REGION, SAMPLE_BUCKET, s3_client, secret


def main() -> None:
    airflow("db", "migrate")
    import_connections(connections())
    create_buckets()


def connections() -> dict[str, dict[str, object]]:
    """What the pipeline files of this system name."""
    store = {
        "conn_type": "aws",
        "login": secret("s3_access_key"),
        "password": secret("s3_secret_key"),
        "extra": {"endpoint_url": S3_ENDPOINT, "region_name": S3_REGION},
    }
    return {
        "shop_kafka": {"conn_type": "kafka", "extra": {"bootstrap.servers": KAFKA}},
        "shop_s3": store,
        "replay_s3": store,
        "replay_state": database("metadata-db", "replay_state", "state_db_password"),
        "warehouse": database("target-db", "replay", "target_db_password"),
        "lakehouse": {
            "conn_type": "generic",
            "extra": {
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{LAKEHOUSE}/catalog.db",
                "jdbc.schema-version": "V1",
                "warehouse": f"file://{LAKEHOUSE}",
            },
        },
        "spark_default": {"conn_type": "spark", "host": "spark://spark-master", "port": 7077},
        "spark_connect": {"conn_type": "spark_connect", "host": "sc://spark-connect", "port": 15002},
    }


def database(host: str, name: str, password: str) -> dict[str, object]:
    """A PostgreSQL connection; user and database have the same *name*."""
    return {
        "conn_type": "postgres",
        "host": host,
        "port": 5432,
        "login": name,
        "password": secret(password),
        "schema": name,
    }


def import_connections(definitions: dict[str, dict[str, object]]) -> None:
    """Through a private file: a command line can be read by everybody."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir="/run/ticdc-replay") as file:
        json.dump(definitions, file)
        file.flush()
        airflow("connections", "import", "--overwrite", file.name)


def create_buckets() -> None:
    client = s3_client()
    existing = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
    for bucket in (ARTIFACTS_BUCKET, SAMPLE_BUCKET):
        if bucket not in existing:
            client.create_bucket(Bucket=bucket)


def airflow(*arguments: str) -> None:
    subprocess.run(["airflow", *arguments], check=True)


if __name__ == "__main__":
    main()
