"""Tries what is relied upon of an S3 server: five requests for each ability, with an object that is removed afterwards."""

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ticdc_replay.aws.errors import NOT_FOUND, PRECONDITION_FAILED, error_code, status_of
from ticdc_replay.storage.abilities import PROBE_PREFIX, Ability, missing
from ticdc_replay.storage.s3.bucket import S3Bucket

log = logging.getLogger(__name__)

NO_ETAG = f'"{"0" * 32}"'
"""An ETag that no object has."""
_NOT_IMPLEMENTED = 501


class Probe:
    """The probes of *bucket*, with objects directly below its prefix. Raise MissingAbilityError, and ClientError as it comes."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._client = bucket.client
        self._bucket = bucket.name
        self._prefix = bucket.prefix
        self._root = bucket.root

    def create(self) -> None:
        """Try that ``If-None-Match: *`` keeps what is there, and that an object can be read and listed once it was put."""
        with self._object() as key:
            self._put(key, b"first", Ability.CREATE, IfNoneMatch="*")
            if self._put(key, b"second", Ability.CREATE, IfNoneMatch="*"):
                raise missing(Ability.CREATE, self._root, "it replaced an object in spite of If-None-Match")
            self._require(key, b"first")
            listed = self._client.list_objects_v2(Bucket=self._bucket, Prefix=key).get("Contents", ())
            if [found["Key"] for found in listed] != [key]:
                raise missing(Ability.LIST_AFTER_WRITE, self._root, "an object was not listed after it was put")

    def replace(self) -> None:
        """Try that ``If-Match`` replaces an object only if it has this ETag."""
        with self._object() as key:
            etag = self._client.put_object(Bucket=self._bucket, Key=key, Body=b"first")["ETag"]
            if self._put(key, b"second", Ability.REPLACE, IfMatch=NO_ETAG):
                raise missing(
                    Ability.REPLACE, self._root, "it replaced an object in spite of If-Match with another ETag"
                )
            self._put(key, b"third", Ability.REPLACE, IfMatch=etag)
            self._require(key, b"third")

    @contextmanager
    def _object(self) -> Iterator[str]:
        key = f"{self._prefix}{PROBE_PREFIX}{uuid.uuid4().hex}"
        try:
            yield key
        finally:
            try:
                self._client.delete_object(Bucket=self._bucket, Key=key)
            except (BotoCoreError, ClientError) as error:  # what the probe found counts, and an account may not delete
                log.warning("the probe s3://%s/%s stays: it can't be deleted: %s", self._bucket, key, error)

    def _put(self, key: str, content: bytes, ability: Ability, **condition: Any) -> bool:
        """Whether *content* was put under *condition*. A request that is repeated, as its answer was lost, was not: then what
        can be read says what is there."""
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=content, **condition)
        except ClientError as error:
            if status_of(error) == _NOT_IMPLEMENTED:
                raise missing(ability, self._root, f"it refuses the request: {error}") from error
            if error_code(error) not in PRECONDITION_FAILED:
                raise
            return False
        return True

    def _require(self, key: str, content: bytes) -> None:
        try:
            found = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error_code(error) not in NOT_FOUND:
                raise
            found = None
        if found != content:
            raise missing(Ability.READ_AFTER_WRITE, self._root, f"{found!r} was read where {content!r} was put last")
