"""A bucket, or the part of it below a prefix: how it is reached, and what errors of its client mean."""

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pyarrow import fs

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.storage.abilities import is_probe
from ticdc_replay.storage.names import check_name
from ticdc_replay.storage.s3.errors import translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_EXTRA = ("endpoint_url", "region_name", "aws_session_token")
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
_ATTEMPTS = 6
_POOL_CONNECTIONS = 64
"""Above the largest number of threads that share one store: inventory listing and claim-check fetches."""

_one_at_a_time = threading.Lock()


def _aws_environment() -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))


@lru_cache(maxsize=1)
def _shared_session(environment: tuple[tuple[str, str], ...]) -> boto3.session.Session:
    """The session of this process's stores while *environment* is as it is: another takes 0.06 s to read what S3 is."""
    return boto3.session.Session()


class S3Bucket:
    """What ``s3://bucket/prefix`` names, with a client of its own. boto3 retries what is worth retrying (adaptive mode) before an
    error shows.

    The connection is Airflow's of type ``aws``: login and password are the key id and its secret; ``extra`` may hold
    ``endpoint_url`` (then addresses are path-style), ``region_name`` and ``aws_session_token``.

    Raises ConfigError for a malformed *uri*, or a connection with other fields.
    """

    def __init__(self, uri: str, connection: Connection | None) -> None:
        parts = urlsplit(uri)
        if not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment:
            raise ConfigError(f"{uri!r} must look like s3://bucket/prefix, without key, query or fragment")
        prefix = parts.path.strip("/")
        self.name = parts.netloc
        self.prefix = f"{check_name(prefix)}/" if prefix else ""
        """Of the keys of objects, with a slash at its end; empty for a whole bucket."""
        self.root = f"s3://{self.name}/{prefix}".rstrip("/")
        self._connection = connection
        self._where = f"connection {connection.conn_id!r}" if connection else "no connection, default credentials"
        extra = connection.extra if connection else {}
        unknown = sorted(set(extra) - set(_EXTRA))
        if unknown:
            raise ConfigError(f"{self._where}: extra {', '.join(unknown)} not supported; allowed: {', '.join(_EXTRA)}")
        self.endpoint: str | None = extra.get("endpoint_url") or None
        """None for AWS."""
        self._session_token: str | None = extra.get("aws_session_token") or None
        self._region: str | None = extra.get("region_name") or None
        # Without credentials of its own a store asks a session for them, and a new one looks for them again.
        self.own_key: tuple[str, str | None, str | None] | None = None
        """Key id, secret and session token; None where the credentials of ``session`` are used."""
        if connection is not None and connection.login:
            self.own_key = (connection.login, connection.password, self._session_token)
        self.session = _shared_session(_aws_environment()) if self.own_key else boto3.session.Session()
        with _one_at_a_time:  # a session makes clients in one thread at a time
            self.client = self._connect()
        self.place = (self.root, self.endpoint or "")
        """What it was tried as (``abilities.TRIED``)."""

    def uri(self, name: str) -> str:
        """The URI of the object *name*."""
        return f"{self.root}/{name}"

    def key(self, name: str) -> str:
        """The key of the object *name*. Raises PermanentError where it can't be one."""
        return self.prefix + check_name(name)

    def name_of(self, key: str) -> str:
        """The name of the object at *key*; empty where it is none: consoles and Arrow mark folders by empty objects, and probes
        try the store."""
        name = key[len(self.prefix) :]
        return "" if name.endswith("/") or is_probe(name) else name

    @contextlib.contextmanager
    def errors(self, doing: str, name: str = "") -> Iterator[None]:
        """Raise what boto3 raises as one of the library's errors; *doing* is a verb, *name* the object or prefix."""
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise translate(error, f"cannot {doing} {self.uri(name)} ({self._where})") from error

    def arrow_filesystem(self) -> tuple[Any, str]:
        """As ``ObjectStore.arrow_filesystem``."""
        names = ("access_key", "secret_key", "session_token")
        options: dict[str, Any] = dict(zip(names, self.own_key, strict=True)) if self.own_key else {}
        if self.endpoint:
            endpoint = urlsplit(self.endpoint)
            options["scheme"] = endpoint.scheme
            options["endpoint_override"] = endpoint.netloc + endpoint.path.rstrip("/")
        filesystem = fs.S3FileSystem(
            region=self._found_region(),
            connect_timeout=_CONNECT_TIMEOUT_S,
            request_timeout=_READ_TIMEOUT_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            **options,
        )
        return filesystem, f"{self.name}/{self.prefix}".rstrip("/")

    def _connect(self) -> "S3Client":
        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            retries={"mode": "adaptive", "total_max_attempts": _ATTEMPTS},
            max_pool_connections=_POOL_CONNECTIONS,
        )
        if self.endpoint:
            # Compatible servers often know neither virtual hosts nor the newer trailing checksums.
            config = config.merge(
                Config(
                    s3={"addressing_style": "path"},
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                )
            )
        connection = self._connection
        try:
            return self.session.client(
                "s3",
                endpoint_url=self.endpoint,
                region_name=self._region or ("us-east-1" if self.endpoint else None),
                aws_access_key_id=(connection.login or None) if connection else None,
                aws_secret_access_key=(connection.password or None) if connection else None,
                aws_session_token=self._session_token,
                config=config,
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"{self.root} ({self._where}): {error}") from error

    def _found_region(self) -> str:
        """Arrow follows no redirect to another region, so it needs the bucket's own."""
        if self._region:
            return self._region
        if self.endpoint:
            return "us-east-1"
        with self.errors("look up"):
            return self.client.head_bucket(Bucket=self.name).get("BucketRegion", "us-east-1")
