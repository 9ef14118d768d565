"""What the one-shot scripts of the composed system share: its secrets and its S3 server."""

from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

SECRETS = Path("/run/secrets")
S3_ENDPOINT = "http://s3:7070"
S3_REGION = "us-east-1"
SAMPLE_BUCKET = "shop-changefeed"
ARTIFACTS_BUCKET = "ticdc-replay"
KAFKA = "kafka:9092"
LAKEHOUSE = "/opt/lakehouse"
"""A volume of all drivers and executors."""


def secret(name: str) -> str:
    """The secret *name* that compose mounted."""
    return (SECRETS / name).read_text().strip()


def s3_client() -> Any:
    """A client of the S3 server."""
    return boto3.client(
        "s3",
        endpoint_url=S3_ENDPOINT,
        region_name=S3_REGION,
        aws_access_key_id=secret("s3_access_key"),
        aws_secret_access_key=secret("s3_secret_key"),
        config=Config(s3={"addressing_style": "path"}),
    )
