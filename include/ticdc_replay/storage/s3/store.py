"""Objects in S3 or a compatible server, through boto3."""

import contextlib
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pyarrow import fs
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import (
    ArtifactExistsError,
    ArtifactNotFoundError,
    ConfigError,
    ObjectAlteredError,
    ObjectTooLargeError,
    PermanentError,
    TransientError,
)
from ticdc_replay.storage.abilities import TRIED, Ability, is_probe
from ticdc_replay.storage.base import DeleteMarker, Deletion, DeletionOutcome, ObjectInfo, ObjectStore
from ticdc_replay.storage.facts import StoreFacts
from ticdc_replay.storage.names import check_name
from ticdc_replay.storage.s3.abilities import Probe
from ticdc_replay.storage.s3.deletion import delete_unchanged, marker_of, undelete
from ticdc_replay.storage.s3.errors import (
    BROKEN_TRANSFERS,
    CHANGED_BY_OTHERS,
    NOT_FOUND,
    PRECONDITION_FAILED,
    error_code,
    translate,
)
from ticdc_replay.storage.s3.facts import facts_of
from ticdc_replay.storage.s3.fetching import Address, Fetcher

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_EXTRA = ("endpoint_url", "region_name", "aws_session_token")
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
_FETCH_TIMEOUTS = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "1h"}
_ATTEMPTS = 6
_BODY_ATTEMPTS = 3
_UPDATE_ATTEMPTS = 16
_UPDATE_PAUSE_S = 0.2
_POOL_CONNECTIONS = 64
"""Above the largest number of threads that share one store: inventory listing and claim-check fetches."""


_one_at_a_time = threading.Lock()


def _aws_environment() -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))


@lru_cache(maxsize=1)
def _shared_session(environment: tuple[tuple[str, str], ...]) -> boto3.session.Session:
    """The session of this process's stores while *environment* is as it is: another takes 0.06 s to read what S3 is."""
    return boto3.session.Session()


class S3Store(ObjectStore):
    """A bucket, or the part of it below a prefix. boto3 retries what is worth retrying (adaptive mode) before an error shows.

    The connection is Airflow's of type ``aws``: login and password are the key id and its secret; ``extra`` may hold
    ``endpoint_url`` (then addresses are path-style), ``region_name`` and ``aws_session_token``.
    """

    scheme: ClassVar[str] = "s3"

    def __init__(self, bucket: str, prefix: str, connection: Connection | None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._connection = connection
        self._where = f"connection {connection.conn_id!r}" if connection else "no connection, default credentials"
        self.root = f"s3://{bucket}/{prefix}".rstrip("/")
        extra = connection.extra if connection else {}
        unknown = sorted(set(extra) - set(_EXTRA))
        if unknown:
            raise ConfigError(f"{self._where}: extra {', '.join(unknown)} not supported; allowed: {', '.join(_EXTRA)}")
        self._endpoint: str | None = extra.get("endpoint_url") or None
        self._session_token: str | None = extra.get("aws_session_token") or None
        self._region: str | None = extra.get("region_name") or None
        # Without credentials of its own a store asks a session for them, and a new one looks for them anew.
        own = connection is not None and connection.login
        self._session = _shared_session(_aws_environment()) if own else boto3.session.Session()
        with _one_at_a_time:  # a session makes clients in one thread at a time
            self._client = self._connect()
        self._place = (self.root, self._endpoint or "")
        self._probe = Probe(self._client, bucket, self._prefix, self.root)
        self._fetcher = Fetcher(self._address(), _FETCH_TIMEOUTS)

    @classmethod
    def open(cls, uri: str, connection: Connection | None) -> "S3Store":
        """The store of ``s3://bucket/prefix``."""
        parts = urlsplit(uri)
        if not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment:
            raise ConfigError(f"{uri!r} must look like s3://bucket/prefix, without key, query or fragment")
        prefix = parts.path.strip("/")
        return cls(parts.netloc, check_name(prefix) if prefix else "", connection)

    def get(self, name: str, max_bytes: int | None = None, etag: str | None = None) -> bytes:
        with self._errors("read", name):
            # boto3 repeats requests, but not the reading of a body that broke off.
            for attempt in Retrying(
                retry=retry_if_exception_type(BROKEN_TRANSFERS),
                stop=stop_after_attempt(_BODY_ATTEMPTS),
                wait=wait_random_exponential(multiplier=0.2, max=5),
                reraise=True,
            ):
                with attempt:
                    return self._read(name, max_bytes, etag)
        raise AssertionError("a retry loop ends by return or raise")

    def fetch(self, name: str, max_bytes: int | None = None, etag: str | None = None) -> bytes:
        found = self._fetcher.find(self._key(name))
        if found is not None:
            self._check(name, found.size, max_bytes, found.etag, etag)
            content = found.content()
            if content is not None:
                return content
        return self.get(name, max_bytes, etag)

    def info(self, name: str) -> ObjectInfo | None:
        with self._errors("look up", name):
            try:
                answer = self._client.head_object(Bucket=self._bucket, Key=self._key(name))
            except ClientError as error:
                if error_code(error) not in NOT_FOUND:
                    raise
                self._client.head_bucket(Bucket=self._bucket)  # a missing bucket looks the same, and must not pass
                return None
            version = answer.get("VersionId")
            return ObjectInfo(name, answer["ContentLength"], answer["ETag"].strip('"'), answer["LastModified"], version)

    def put(self, name: str, content: bytes) -> None:
        with self._errors("write", name):
            self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=content)

    def put_once(self, name: str, content: bytes) -> bool:
        with self._errors("write", name):
            TRIED.once(self._place, Ability.CREATE, self._probe.create)
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=content, IfNoneMatch="*")
            except ClientError as error:
                if error_code(error) not in PRECONDITION_FAILED:
                    raise
            else:
                return True
        # Also where an attempt of ours succeeded and its answer was lost: then the content is equal.
        if self.get(name) == content:
            return False
        raise ArtifactExistsError(f"{self.uri(name)} exists with other content; it is never replaced")

    def update(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        with self._errors("write", name):
            TRIED.once(self._place, Ability.CREATE, self._probe.create)
            TRIED.once(self._place, Ability.REPLACE, self._probe.replace)
        for _ in range(_UPDATE_ATTEMPTS):
            found, etag = self._current(name)
            wanted = change(found)
            # Also where a request of ours succeeded and its answer was lost: the condition fails, and the content is ours.
            if wanted == found:
                return
            condition = {"IfMatch": f'"{etag}"'} if etag is not None else {"IfNoneMatch": "*"}
            with self._errors("write", name):
                try:
                    self._client.put_object(
                        Bucket=self._bucket,
                        Key=self._key(name),
                        Body=wanted,
                        **condition,  # type: ignore[arg-type]
                    )
                except ClientError as error:
                    if error_code(error) not in CHANGED_BY_OTHERS:
                        raise
                else:
                    return
            time.sleep(random.uniform(0, _UPDATE_PAUSE_S))
        raise TransientError(f"{self.uri(name)} was changed by others {_UPDATE_ATTEMPTS} times in a row; try again")

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        pages = self._client.get_paginator("list_objects_v2")
        start = {"StartAfter": self._prefix + after} if after else {}
        with self._errors("list", prefix):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix, **start):  # type: ignore[arg-type]
                for found in page.get("Contents", ()):
                    name = found["Key"][len(self._prefix) :]
                    if name and not _is_none(name):
                        yield ObjectInfo(name, found["Size"], found["ETag"].strip('"'), found["LastModified"])

    def folders(self, prefix: str) -> Iterator[str]:
        pages = self._client.get_paginator("list_objects_v2")
        with self._errors("list", prefix):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix, Delimiter="/"):
                for found in page.get("CommonPrefixes", ()):
                    yield found["Prefix"][len(self._prefix) :]

    def list_versions(self, after: str = "") -> Iterator[ObjectInfo]:
        if after:
            # Servers differ in what they give behind a marker that is no object's key (one leaves out the next object), but not
            # behind one that is. So the first object behind *after* is found by the other listing, and read by itself.
            first = next(self.list(after=after), None)
            if first is None:
                return
            after = first.name
            found = next(self._current_versions(after), None)
            if found is not None and found.name == after:
                yield found
        for found in self._current_versions("", after):
            if found.name > after:
                yield found

    def _current_versions(self, prefix: str, marker: str = "") -> Iterator[ObjectInfo]:
        """The current versions of objects whose name starts with *prefix*, about from *marker* on, in order of name."""
        pages = self._client.get_paginator("list_object_versions")
        start = {"KeyMarker": self._prefix + marker} if marker else {}
        last = ""
        with self._errors("list the versions of", prefix):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix, **start):  # type: ignore[arg-type]
                for found in page.get("Versions", ()):
                    name = found["Key"][len(self._prefix) :]
                    # Servers repeat a key's versions at the marker, and the latest one at the start of a page.
                    if found["IsLatest"] and name and name != last and not _is_none(name):
                        last = name
                        yield ObjectInfo(
                            name, found["Size"], found["ETag"].strip('"'), found["LastModified"], found["VersionId"]
                        )

    def delete(self, name: str) -> None:
        with self._errors("delete", name):
            self._client.delete_object(Bucket=self._bucket, Key=self._key(name))

    def delete_unchanged(self, expected: ObjectInfo) -> Deletion:
        try:
            key = self._key(expected.name)
        except PermanentError as error:
            return Deletion(DeletionOutcome.REFUSED, detail=str(error))
        with self._errors("delete", expected.name):
            once = partial(TRIED.once, self._place, Ability.DELETE)
            return delete_unchanged(self._client, self._bucket, key, expected, once, self.root)

    def undelete(self, name: str, marker: str) -> bool:
        with self._errors("undelete", name):
            return undelete(self._client, self._bucket, self._key(name), marker)

    def marker_of(self, name: str) -> DeleteMarker | None:
        with self._errors("list the versions of", name):
            return marker_of(self._client, self._bucket, self._key(name))

    def now(self) -> datetime:
        with self._errors("look up", ""):
            answer = self._client.head_bucket(Bucket=self._bucket)
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])

    def facts(self) -> StoreFacts:
        with self._errors("look up", ""):
            return facts_of(self._client, self._bucket, self._prefix)

    def arrow_filesystem(self) -> tuple[Any, str]:
        options: dict[str, Any] = {}
        if self._connection and self._connection.login:
            options["access_key"] = self._connection.login
            options["secret_key"] = self._connection.password
            options["session_token"] = self._session_token
        if self._endpoint:
            endpoint = urlsplit(self._endpoint)
            options["scheme"] = endpoint.scheme
            options["endpoint_override"] = endpoint.netloc + endpoint.path.rstrip("/")
        filesystem = fs.S3FileSystem(
            region=self._bucket_region(),
            connect_timeout=_CONNECT_TIMEOUT_S,
            request_timeout=_READ_TIMEOUT_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            **options,
        )
        return filesystem, f"{self._bucket}/{self._prefix}".rstrip("/")

    def _read(self, name: str, max_bytes: int | None, etag: str | None) -> bytes:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(name))
        except self._client.exceptions.NoSuchKey:
            raise ArtifactNotFoundError(f"{self.uri(name)} does not exist") from None
        with contextlib.closing(answer["Body"]) as body:
            self._check(name, answer["ContentLength"], max_bytes, answer["ETag"].strip('"'), etag)
            return body.read()

    def _current(self, name: str) -> tuple[bytes | None, str | None]:
        """Content and ETag of *name*; None for both where it does not exist."""
        with self._errors("read", name):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._key(name))
            except self._client.exceptions.NoSuchKey:
                return None, None
            with contextlib.closing(answer["Body"]) as body:
                return body.read(), answer["ETag"].strip('"')

    def _check(self, name: str, size: int, max_bytes: int | None, found: str, etag: str | None) -> None:
        """By the answer's own ETag and not If-Match: it is of the same version of the object, and every server sends it."""
        if etag is not None and found != etag:
            raise ObjectAlteredError(f"{self.uri(name)} has ETag {found}, {etag} expected")
        if max_bytes is not None and size > max_bytes:
            raise ObjectTooLargeError(f"{self.uri(name)} has {size} bytes; at most {max_bytes} are allowed")

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    def _address(self) -> Address:
        key = None
        if self._connection and self._connection.login:
            key = (self._connection.login, self._connection.password, self._session_token)
        return Address(self._bucket, self._endpoint, self._region or self._client.meta.region_name, self._session, key)

    def _connect(self) -> "S3Client":
        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            retries={"mode": "adaptive", "total_max_attempts": _ATTEMPTS},
            max_pool_connections=_POOL_CONNECTIONS,
        )
        if self._endpoint:
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
            return self._session.client(
                "s3",
                endpoint_url=self._endpoint,
                region_name=self._region or ("us-east-1" if self._endpoint else None),
                aws_access_key_id=(connection.login or None) if connection else None,
                aws_secret_access_key=(connection.password or None) if connection else None,
                aws_session_token=self._session_token,
                config=config,
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"{self.root} ({self._where}): {error}") from error

    def _bucket_region(self) -> str:
        """Arrow follows no redirect to another region, so it has to be told the bucket's own."""
        if self._region:
            return self._region
        if self._endpoint:
            return "us-east-1"
        with self._errors("look up", ""):
            return self._client.head_bucket(Bucket=self._bucket).get("BucketRegion", "us-east-1")

    @contextlib.contextmanager
    def _errors(self, doing: str, name: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise translate(error, f"cannot {doing} {self.uri(name)} ({self._where})") from error


def _is_none(name: str) -> bool:
    """Whether *name* is no object of the store: consoles and Arrow mark folders by empty objects, and probes try the store."""
    return name.endswith("/") or is_probe(name)
