"""Objects in S3 or a compatible server, through boto3."""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

from botocore.exceptions import ClientError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ticdc_replay.aws.errors import (
    BROKEN_TRANSFERS,
    CHANGED_BY_OTHERS,
    NOT_FOUND,
    PRECONDITION_FAILED,
    error_code,
)
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ArtifactExistsError, ArtifactNotFoundError, TransientError
from ticdc_replay.storage.abilities import TRIED, Ability
from ticdc_replay.storage.base import ObjectInfo, ObjectStore
from ticdc_replay.storage.deletion import ObjectDeletion
from ticdc_replay.storage.s3.abilities import Probe
from ticdc_replay.storage.s3.bucket import S3Bucket
from ticdc_replay.storage.s3.deletion import S3Deletion
from ticdc_replay.storage.s3.fetching import Fetcher

_BODY_ATTEMPTS = 3
_UPDATE_ATTEMPTS = 16
_UPDATE_PAUSE_S = 0.2


class S3Store(ObjectStore):
    """The objects of ``s3://bucket/prefix`` (``Bucket``)."""

    scheme: ClassVar[str] = "s3"

    def __init__(self, uri: str, connection: Connection | None) -> None:
        self._bucket = S3Bucket(uri, connection)
        self._client = self._bucket.client
        self.root = self._bucket.root
        self._probe = Probe(self._bucket)
        self._fetcher = Fetcher(self._bucket)

    def get(self, name: str, max_bytes: int | None = None, etag: str | None = None) -> bytes:
        with self._bucket.errors("read", name):
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
        found = self._fetcher.find(self._bucket.key(name))
        if found is not None:
            self.require(name, found.etag, found.size, etag, max_bytes)
            content = found.content()
            if content is not None:
                return content
        return self.get(name, max_bytes, etag)

    def info(self, name: str) -> ObjectInfo | None:
        with self._bucket.errors("look up", name):
            try:
                answer = self._client.head_object(Bucket=self._bucket.name, Key=self._bucket.key(name))
            except ClientError as error:
                if error_code(error) not in NOT_FOUND:
                    raise
                self._client.head_bucket(Bucket=self._bucket.name)  # a missing bucket looks the same, and must not pass
                return None
            version = answer.get("VersionId")
            return ObjectInfo(name, answer["ContentLength"], answer["ETag"].strip('"'), answer["LastModified"], version)

    def put(self, name: str, content: bytes) -> None:
        with self._bucket.errors("write", name):
            self._client.put_object(Bucket=self._bucket.name, Key=self._bucket.key(name), Body=content)

    def put_once(self, name: str, content: bytes) -> bool:
        with self._bucket.errors("write", name):
            TRIED.once(self._bucket.place, Ability.CREATE, self._probe.create)
            try:
                self._client.put_object(
                    Bucket=self._bucket.name, Key=self._bucket.key(name), Body=content, IfNoneMatch="*"
                )
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
        with self._bucket.errors("write", name):
            TRIED.once(self._bucket.place, Ability.CREATE, self._probe.create)
            TRIED.once(self._bucket.place, Ability.REPLACE, self._probe.replace)
        for _ in range(_UPDATE_ATTEMPTS):
            found, etag = self._current(name)
            wanted = change(found)
            # Also where a request of ours succeeded and its answer was lost: the condition fails, and the content is ours.
            if wanted == found:
                return
            condition = {"IfMatch": f'"{etag}"'} if etag is not None else {"IfNoneMatch": "*"}
            with self._bucket.errors("write", name):
                try:
                    self._client.put_object(
                        Bucket=self._bucket.name,
                        Key=self._bucket.key(name),
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
        start = {"StartAfter": self._bucket.prefix + after} if after else {}
        with self._bucket.errors("list", prefix):
            for page in pages.paginate(Bucket=self._bucket.name, Prefix=self._bucket.prefix + prefix, **start):  # type: ignore[arg-type]
                for found in page.get("Contents", ()):
                    name = self._bucket.name_of(found["Key"])
                    if name:
                        yield ObjectInfo(name, found["Size"], found["ETag"].strip('"'), found["LastModified"])

    def folders(self, prefix: str) -> Iterator[str]:
        pages = self._client.get_paginator("list_objects_v2")
        with self._bucket.errors("list", prefix):
            for page in pages.paginate(Bucket=self._bucket.name, Prefix=self._bucket.prefix + prefix, Delimiter="/"):
                for found in page.get("CommonPrefixes", ()):
                    yield found["Prefix"][len(self._bucket.prefix) :]

    def delete(self, name: str) -> None:
        with self._bucket.errors("delete", name):
            self._client.delete_object(Bucket=self._bucket.name, Key=self._bucket.key(name))

    def deletion(self) -> ObjectDeletion:
        return S3Deletion(self._bucket, self)

    def now(self) -> datetime:
        with self._bucket.errors("look up"):
            answer = self._client.head_bucket(Bucket=self._bucket.name)
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])

    def arrow_filesystem(self) -> tuple[Any, str]:
        return self._bucket.arrow_filesystem()

    def _read(self, name: str, max_bytes: int | None, etag: str | None) -> bytes:
        try:
            answer = self._client.get_object(Bucket=self._bucket.name, Key=self._bucket.key(name))
        except self._client.exceptions.NoSuchKey:
            raise ArtifactNotFoundError(f"{self.uri(name)} does not exist") from None
        with contextlib.closing(answer["Body"]) as body:
            # Not by If-Match: the ETag of the answer belongs to the content that is read, and every server sends it.
            self.require(name, answer["ETag"].strip('"'), answer["ContentLength"], etag, max_bytes)
            return body.read()

    def _current(self, name: str) -> tuple[bytes | None, str | None]:
        """Content and ETag of *name*; None for both where it does not exist."""
        with self._bucket.errors("read", name):
            try:
                answer = self._client.get_object(Bucket=self._bucket.name, Key=self._bucket.key(name))
            except self._client.exceptions.NoSuchKey:
                return None, None
            with contextlib.closing(answer["Body"]) as body:
                return body.read(), answer["ETag"].strip('"')
