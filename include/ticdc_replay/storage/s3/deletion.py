"""Deleting an object of S3 as it was known, and taking a delete marker away."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from ticdc_replay.domain.errors import AuthenticationError, MissingAbilityError, PermanentError
from ticdc_replay.storage.abilities import Ability, missing
from ticdc_replay.storage.base import NO_VERSION, DeleteMarker, Deletion, DeletionOutcome, ObjectInfo
from ticdc_replay.storage.s3.abilities import NO_ETAG
from ticdc_replay.storage.s3.errors import NOT_FOUND, PRECONDITION_FAILED, error_code, status_of, translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import DeleteObjectOutputTypeDef, HeadObjectOutputTypeDef

_FORBIDDEN = 403


def delete_unchanged(
    client: "S3Client",
    bucket: str,
    key: str,
    expected: ObjectInfo,
    once: Callable[[Callable[[], None]], None],
    root: str,
) -> Deletion:
    """Delete *key* if it still is *expected*: a HEAD compares all that is known, and the DELETE's If-Match holds the ETag to
    the moment of deletion.

    The first object of a process is asked for under a condition that can't hold: *once* calls what tries it, and remembers. A
    server that deletes it all the same has deleted what was to be deleted, and the next object raises MissingAbilityError.
    An account that may delete often may not put, so no other object can try it.

    Raises ClientError for what does not concern this object alone.
    """
    deleted: list[Deletion] = []

    def try_condition() -> None:
        try:
            answer = client.delete_object(Bucket=bucket, Key=key, IfMatch=NO_ETAG)
        except ClientError as error:
            if error_code(error) not in PRECONDITION_FAILED:
                raise
        else:
            deleted.append(Deletion(DeletionOutcome.DELETED, _marker(answer, found)))
            raise missing(Ability.DELETE, root, "it deleted an object in spite of If-Match with another ETag")

    try:
        found = client.head_object(Bucket=bucket, Key=key)
        changed = _changed(found, expected)
        if changed:
            return Deletion(DeletionOutcome.ALTERED, detail=changed)
        try:
            once(try_condition)
        except MissingAbilityError:
            if not deleted:
                raise
            return deleted[0]
        answer = client.delete_object(Bucket=bucket, Key=key, IfMatch=found["ETag"])
    except ClientError as error:
        return _not_deleted(client, bucket, key, error)
    return Deletion(DeletionOutcome.DELETED, _marker(answer, found))


def undelete(client: "S3Client", bucket: str, key: str, marker: str) -> bool:
    """Remove the delete marker *marker*; False where there is none any more.

    A HEAD of a marker is refused with 405 and names it a marker. Only then is the version removed: the request that removes a
    marker would remove an object's version, too.
    """
    try:
        client.head_object(Bucket=bucket, Key=key, VersionId=marker)
    except ClientError as error:
        if error_code(error) in NOT_FOUND:
            client.head_bucket(Bucket=bucket)
            return False
        if _header(error, "x-amz-delete-marker") != "true":
            raise
        client.delete_object(Bucket=bucket, Key=key, VersionId=marker)
        return True
    raise PermanentError(f"s3://{bucket}/{key}: {marker!r} is a version of the object, not a delete marker")


def marker_of(client: "S3Client", bucket: str, key: str) -> DeleteMarker | None:
    """The delete marker that hides *key*; None where none does."""
    # The key itself comes before all that begin with it, and its newest version or marker before the others.
    newest = client.list_object_versions(Bucket=bucket, Prefix=key, MaxKeys=1).get("DeleteMarkers", ())
    for found in newest:
        if found["Key"] == key and found["IsLatest"]:
            return DeleteMarker(found["VersionId"], found["LastModified"])
    return None


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


def _not_deleted(client: "S3Client", bucket: str, key: str, error: ClientError) -> Deletion:
    code, status = error_code(error), status_of(error)
    if code in NOT_FOUND or code in PRECONDITION_FAILED:
        # An attempt whose answer was lost looks the same: then what hides the object is its marker.
        try:
            found = client.head_object(Bucket=bucket, Key=key)
        except ClientError as missing:
            if error_code(missing) not in NOT_FOUND:
                raise
            client.head_bucket(Bucket=bucket)
            return _gone(client, bucket, key, missing)
        return Deletion(DeletionOutcome.ALTERED, detail=f"ETag {found['ETag']} since it was looked at")
    meaning = translate(error, f"s3://{bucket}/{key}")
    if not isinstance(meaning, PermanentError) or isinstance(meaning, AuthenticationError) or code == "NoSuchBucket":
        raise error
    if error.operation_name == "HeadObject" or status == _FORBIDDEN:
        # A HEAD that is refused does not say why: a listing does, if the credentials are to blame.
        try:
            client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
        except ClientError as reason:
            if status_of(reason) != _FORBIDDEN or isinstance(translate(reason, ""), AuthenticationError):
                raise
    return Deletion(
        DeletionOutcome.DENIED if status == _FORBIDDEN else DeletionOutcome.REFUSED, detail=f"{code} {meaning}"
    )


def _gone(client: "S3Client", bucket: str, key: str, missing: ClientError) -> Deletion:
    marker = _header(missing, "x-amz-version-id") if _header(missing, "x-amz-delete-marker") == "true" else None
    detail = ""
    if marker is None:  # not every server says so with a 404
        try:
            hides = marker_of(client, bucket, key)
        except ClientError as error:
            detail = f"what hides it could not be listed: {error}"
        else:
            marker = hides.marker if hides else None
    return Deletion(DeletionOutcome.GONE, marker, detail)


def _header(error: ClientError, name: str) -> str | None:
    return error.response["ResponseMetadata"]["HTTPHeaders"].get(name)
