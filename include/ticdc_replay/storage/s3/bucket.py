"""A bucket, or the part of it below a prefix: how it is reached, and what errors of its client mean."""

import contextlib
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.store import S3Store
from pyarrow import fs

from ticdc_replay.aws.errors import UNREADABLE_FILES, translate
from ticdc_replay.aws.identity import AwsIdentity
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.storage.abilities import is_probe
from ticdc_replay.storage.names import check_name
from ticdc_replay.storage.obstores.arrow import arrow_files
from ticdc_replay.storage.obstores.options import client_options

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_AWS_HOST = re.compile(r"s3(?:[.-][a-z0-9-]+)*\.amazonaws\.com(?:\.cn)?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
_ATTEMPTS = 6
_POOL_CONNECTIONS = 64
"""Above the largest number of threads that share one store: inventory listing and claim-check fetches."""


class S3Bucket:
    """What ``s3://bucket/prefix`` names, with a client of its own. boto3 retries what is worth retrying (adaptive mode) before an
    error shows.

    The connection is Airflow's of type ``aws`` (``AwsIdentity.of``). With an endpoint of its own, addresses are path-style.

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
        self.identity = AwsIdentity.of(connection)
        self._where = self.identity.where
        self.endpoint = self.identity.endpoint("s3")
        """None for AWS."""
        self.client: S3Client = self._connect()
        self.endpoint = self.endpoint or _configured_endpoint(self.client)
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
        except (BotoCoreError, ClientError, *UNREADABLE_FILES) as error:
            raise translate(error, f"cannot {doing} {self.uri(name)} ({self._where})") from error

    def arrow_filesystem(self) -> tuple[Any, str]:
        """As ``ObjectStore.arrow_filesystem``. Arrow's own client knows keys, but not every way to credentials that expire."""
        path = f"{self.name}/{self.prefix}".rstrip("/")
        key = self.identity.static_key
        if key is None:
            return arrow_files(self.obstore(self._found_region(), _ATTEMPTS - 1), self.name), path
        options: dict[str, Any] = dict(zip(("access_key", "secret_key", "session_token"), key, strict=True))
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
        return filesystem, path

    def obstore(self, region: str, retries: int) -> S3Store:
        """The bucket in *region* for obstore, which repeats a request *retries* times.

        Raises ValueError where there are no credentials.
        """
        access: dict[str, Any]
        key = self.identity.static_key
        if key is None:
            # Asked before each request: botocore knows when its credentials expire, and obstore would only guess.
            access = {"credential_provider": Boto3CredentialProvider(self.identity.session(), ttl=timedelta(0))}
        else:
            names = ("access_key_id", "secret_access_key", "session_token")
            access = {name: value for name, value in zip(names, key, strict=True) if value is not None}
        if self.endpoint is not None:
            access["endpoint"] = self.endpoint
        return S3Store(
            self.name,
            region=region,
            virtual_hosted_style_request=self.endpoint is None,
            client_options=client_options(self.endpoint),  # type: ignore[arg-type]
            retry_config={"max_retries": retries},
            **access,
        )

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
        client: S3Client = self.identity.client("s3", config)
        return client

    def _found_region(self) -> str:
        """Arrow follows no redirect to another region, so it needs the bucket's own."""
        if self.identity.region:
            return self.identity.region
        if self.endpoint:
            return self.client.meta.region_name or "us-east-1"
        with self.errors("look up"):
            return self.client.head_bucket(Bucket=self.name).get("BucketRegion", "us-east-1")


def _configured_endpoint(client: "S3Client") -> str | None:
    """The URL that botocore found in the environment or a profile, which neither obstore nor Arrow reads; None for AWS."""
    url = client.meta.endpoint_url
    return None if _AWS_HOST.fullmatch(urlsplit(url).hostname or "") else url
