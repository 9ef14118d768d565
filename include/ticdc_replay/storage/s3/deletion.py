"""Deleting objects of S3 that did not change since they were listed, and removing delete markers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from ticdc_replay.aws.errors import NOT_FOUND, PRECONDITION_FAILED, error_code, status_of, translate
from ticdc_replay.domain.errors import AuthenticationError, MissingAbilityError, PermanentError
from ticdc_replay.storage.abilities import TRIED, Ability, missing
from ticdc_replay.storage.base import NO_VERSION, ObjectInfo, ObjectStore
from ticdc_replay.storage.deletion import DeleteMarker, Deletion, DeletionOutcome, ObjectDeletion
from ticdc_replay.storage.facts import StoreFacts
from ticdc_replay.storage.s3.abilities import NO_ETAG
from ticdc_replay.storage.s3.bucket import S3Bucket
from ticdc_replay.storage.s3.facts import facts_of

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import DeleteObjectOutputTypeDef, HeadObjectOutputTypeDef

_FORBIDDEN = 403


class S3Deletion(ObjectDeletion):
    """Deletion from *bucket*; *objects* lists what is in it."""

    def __init__(self, bucket: S3Bucket, objects: ObjectStore) -> None:
        self._bucket = bucket
        self._client = bucket.client
        self._objects = objects

    def delete_unchanged(self, expected: ObjectInfo) -> Deletion:
        try:
            key = self._bucket.key(expected.name)
        except PermanentError as error:
            return Deletion(DeletionOutcome.REFUSED, detail=str(error))
        with self._bucket.errors("delete", expected.name):
            try:
                return self._delete(key, expected)
            except ClientError as error:
                return self._not_deleted(key, error)

    def undelete(self, name: str, marker: str) -> bool:
        # A HEAD of a marker is refused with 405 and names it a marker. Only then is the version removed: the request that removes
        # a marker would remove an object's version, too.
        bucket, key = self._bucket.name, self._bucket.key(name)
        with self._bucket.errors("undelete", name):
            try:
                self._client.head_object(Bucket=bucket, Key=key, VersionId=marker)
            except ClientError as error:
                if error_code(error) in NOT_FOUND:
                    self._client.head_bucket(Bucket=bucket)
                    return False
                if _header(error, "x-amz-delete-marker") != "true":
                    raise
                self._client.delete_object(Bucket=bucket, Key=key, VersionId=marker)
                return True
        raise PermanentError(f"s3://{bucket}/{key}: {marker!r} is a version of the object, not a delete marker")

    def marker_of(self, name: str) -> DeleteMarker | None:
        with self._bucket.errors("list the versions of", name):
            return self._marker_of(self._bucket.key(name))

    def list_versions(self, after: str = "") -> Iterator[ObjectInfo]:
        if after:
            # Servers differ in what they list after a marker that is no object's key (one leaves out the next object), but not
            # after one that is. So the first object after *after* is found by the other listing, and read by itself.
            first = next(self._objects.list(after=after), None)
            if first is None:
                return
            after = first.name
            found = next(self._current_versions(after), None)
            if found is not None and found.name == after:
                yield found
        for found in self._current_versions("", after):
            if found.name > after:
                yield found

    def facts(self) -> StoreFacts:
        with self._bucket.errors("look up"):
            return facts_of(self._client, self._bucket.name, self._bucket.prefix)

    def _delete(self, key: str, expected: ObjectInfo) -> Deletion:
        """Delete *key* if it still is *expected*: a HEAD compares all that is known, and the DELETE's If-Match holds the ETag to
        the moment of deletion.

        The first object of a process is asked for under a condition that can't hold. A server that deletes it all the same has
        deleted what was to be deleted, and the next object raises MissingAbilityError. An account that may delete often may not
        put, so no other object can try it.
        """
        bucket, deleted = self._bucket, list[Deletion]()

        def try_condition() -> None:
            try:
                answer = self._client.delete_object(Bucket=bucket.name, Key=key, IfMatch=NO_ETAG)
            except ClientError as error:
                if error_code(error) not in PRECONDITION_FAILED:
                    raise
            else:
                deleted.append(Deletion(DeletionOutcome.DELETED, _marker(answer, found)))
                raise missing(
                    Ability.DELETE, bucket.root, "it deleted an object in spite of If-Match with another ETag"
                )

        found = self._client.head_object(Bucket=bucket.name, Key=key)
        changed = _changed(found, expected)
        if changed:
            return Deletion(DeletionOutcome.ALTERED, detail=changed)
        try:
            TRIED.once(bucket.place, Ability.DELETE, try_condition)
        except MissingAbilityError:
            if not deleted:
                raise
            return deleted[0]
        answer = self._client.delete_object(Bucket=bucket.name, Key=key, IfMatch=found["ETag"])
        return Deletion(DeletionOutcome.DELETED, _marker(answer, found))

    def _not_deleted(self, key: str, error: ClientError) -> Deletion:
        """The result for an object that was not deleted because of *error*. Raises ClientError for what does not concern this
        object alone."""
        code, status = error_code(error), status_of(error)
        if code in NOT_FOUND or code in PRECONDITION_FAILED:
            # An attempt whose answer was lost looks the same: then what hides the object is its marker.
            try:
                found = self._client.head_object(Bucket=self._bucket.name, Key=key)
            except ClientError as missing:
                if error_code(missing) not in NOT_FOUND:
                    raise
                self._client.head_bucket(Bucket=self._bucket.name)
                return self._gone(key, missing)
            return Deletion(DeletionOutcome.ALTERED, detail=f"ETag {found['ETag']} since it was looked at")
        meaning = translate(error, f"s3://{self._bucket.name}/{key}")
        if (
            not isinstance(meaning, PermanentError)
            or isinstance(meaning, AuthenticationError)
            or code == "NoSuchBucket"
        ):
            raise error
        if error.operation_name == "HeadObject" or status == _FORBIDDEN:
            # A HEAD that is refused does not say why: a listing does, if the credentials are to blame.
            try:
                self._client.list_objects_v2(Bucket=self._bucket.name, Prefix=key, MaxKeys=1)
            except ClientError as reason:
                if status_of(reason) != _FORBIDDEN or isinstance(translate(reason, ""), AuthenticationError):
                    raise
        return Deletion(
            DeletionOutcome.DENIED if status == _FORBIDDEN else DeletionOutcome.REFUSED, detail=f"{code} {meaning}"
        )

    def _gone(self, key: str, missing: ClientError) -> Deletion:
        marker = _header(missing, "x-amz-version-id") if _header(missing, "x-amz-delete-marker") == "true" else None
        detail = ""
        if marker is None:  # not every server says so with a 404
            try:
                hides = self._marker_of(key)
            except ClientError as error:
                detail = f"what hides it could not be listed: {error}"
            else:
                marker = hides.marker if hides else None
        return Deletion(DeletionOutcome.GONE, marker, detail)

    def _marker_of(self, key: str) -> DeleteMarker | None:
        # The key itself comes before all that begin with it, and its newest version or marker before the others.
        answer = self._client.list_object_versions(Bucket=self._bucket.name, Prefix=key, MaxKeys=1)
        for found in answer.get("DeleteMarkers", ()):
            if found["Key"] == key and found["IsLatest"]:
                return DeleteMarker(found["VersionId"], found["LastModified"])
        return None

    def _current_versions(self, prefix: str, marker: str = "") -> Iterator[ObjectInfo]:
        """The current versions of objects whose name starts with *prefix*, about from *marker* on, in order of name."""
        pages = self._client.get_paginator("list_object_versions")
        start = {"KeyMarker": self._bucket.prefix + marker} if marker else {}
        last = ""
        with self._bucket.errors("list the versions of", prefix):
            for page in pages.paginate(Bucket=self._bucket.name, Prefix=self._bucket.prefix + prefix, **start):  # type: ignore[arg-type]
                for found in page.get("Versions", ()):
                    name = self._bucket.name_of(found["Key"])
                    # Servers repeat a key's versions at the marker, and the latest one at the start of a page.
                    if found["IsLatest"] and name and name != last:
                        last = name
                        yield ObjectInfo(
                            name, found["Size"], found["ETag"].strip('"'), found["LastModified"], found["VersionId"]
                        )


def _marker(answer: "DeleteObjectOutputTypeDef", found: "HeadObjectOutputTypeDef") -> str | None:
    """The delete marker that *answer* names, of the object *found*; None where nothing can be brought back."""
    marker = answer.get("VersionId") if answer.get("DeleteMarker") else None
    if marker == NO_VERSION and found.get("VersionId", NO_VERSION) == NO_VERSION:
        return None  # versioning is suspended: the marker took the place of the only version
    return marker


def _changed(found: "HeadObjectOutputTypeDef", expected: ObjectInfo) -> str:
    """What differs, as text; empty where nothing does."""
    version = found.get("VersionId")
    now = ObjectInfo(expected.name, found["ContentLength"], found["ETag"].strip('"'), found["LastModified"], version)
    return now.difference(expected)


def _header(error: ClientError, name: str) -> str | None:
    return error.response["ResponseMetadata"]["HTTPHeaders"].get(name)
