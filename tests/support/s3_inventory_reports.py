"""Publishes S3 Inventory reports as S3 does it, of what a bucket holds (S3 user guide: *Amazon S3 Inventory list*, *Locating your
inventory list*)."""

import csv
import gzip
import hashlib
import io
import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CSV_COLUMNS = (
    "Bucket",
    "Key",
    "VersionId",
    "IsLatest",
    "IsDeleteMarker",
    "Size",
    "LastModifiedDate",
    "ETag",
    "StorageClass",
)
VERSIONS = ("VersionId", "IsLatest", "IsDeleteMarker")
"""Only in reports of all versions."""
PARQUET = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("version_id", pa.string()),
        pa.field("is_latest", pa.bool_()),
        pa.field("is_delete_marker", pa.bool_()),
        pa.field("size", pa.int64()),
        pa.field("last_modified_date", pa.timestamp("ms", "UTC")),
        pa.field("e_tag", pa.string()),
        pa.field("storage_class", pa.string()),
    ]
)
_PARQUET_SCHEMA = (
    "message s3.inventory { required binary bucket (UTF8); required binary key (UTF8); optional binary version_id (UTF8); "
    "optional boolean is_latest; optional boolean is_delete_marker; optional int64 size; optional int64 last_modified_date "
    "(TIMESTAMP_MILLIS); optional binary e_tag (UTF8); optional binary storage_class (UTF8);}"
)


class Entry(NamedTuple):
    """A version of an object, or a delete marker, of which S3 knows neither size nor ETag."""

    key: str
    version_id: str | None
    latest: bool
    marker: bool
    size: int | None
    modified: datetime
    etag: str | None


def entries_of(client: "S3Client", bucket: str) -> list[Entry]:
    """All versions and delete markers that *bucket* holds."""
    found = []
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for kind, marker in (("Versions", False), ("DeleteMarkers", True)):
            for one in page.get(kind, ()):
                version = None if one["VersionId"] == "null" else one["VersionId"]
                etag = None if marker else one["ETag"].strip('"')
                found.append(
                    Entry(one["Key"], version, one["IsLatest"], marker, one.get("Size"), one["LastModified"], etag)
                )
    return found


class Reports:
    """The folder of an inventory configuration in the bucket *to*, with reports of the bucket *of*."""

    def __init__(self, client: "S3Client", of: str, to: str, configuration: str = "weekly") -> None:
        self._client, self.source, self.bucket = client, of, to
        self.folder = f"reports/{of}/{configuration}"
        self.uri = f"s3://{to}/{self.folder}"

    def publish(
        self,
        entries: Sequence[Entry],
        kind: str,
        *,
        versions: bool = True,
        hours_ago: float = 1,
        parts: int = 1,
        checksum: bool = True,
        without: Sequence[str] = (),
        **changed: Any,
    ) -> str:
        """Put a report that S3 began *hours_ago* and finished a moment ago, its rows in *parts* files; the name of its folder.

        Without *versions* of current objects only. *without* names columns that are not configured; *changed* are members of the
        manifest that differ.
        """
        began = datetime.now(UTC) - timedelta(hours=hours_ago)
        moment = f"{began:%Y-%m-%dT%H-%MZ}"
        rows = [entry for entry in entries if versions or (entry.latest and not entry.marker)]
        columns = [name for name in CSV_COLUMNS if name not in without and (versions or name not in VERSIONS)]
        files = []
        for number in range(parts):
            content = self._content(kind, rows[number::parts], columns)
            key = f"{self.folder}/data/{uuid.uuid4()}.{'csv.gz' if kind == 'CSV' else 'parquet'}"
            self._put(key, content)
            files.append({"key": key, "size": len(content), "MD5checksum": _md5(content)})
        manifest = {
            "sourceBucket": self.source,
            "destinationBucket": f"arn:aws:s3:::{self.bucket}",
            "version": "2016-11-30",
            "creationTimestamp": str(int(began.timestamp() * 1000)),
            "fileFormat": kind,
            "fileSchema": ", ".join(columns) if kind == "CSV" else _PARQUET_SCHEMA,
            "files": files,
        } | changed
        text = json.dumps(manifest, indent=2).encode()
        self._put(f"{self.folder}/{moment}/manifest.json", text)
        self._put(f"{self.folder}/hive/dt={began:%Y-%m-%d-%H-%M}/symlink.txt", b"s3://...\n")
        if checksum:
            self._put(f"{self.folder}/{moment}/manifest.checksum", _md5(text).encode())
        return moment

    def change(self, folder: str, content: bytes | None) -> None:
        """Replace what begins with *folder* in this place, or remove it."""
        for found in self._client.list_objects_v2(Bucket=self.bucket, Prefix=f"{self.folder}/{folder}")["Contents"]:
            if content is None:
                self._client.delete_object(Bucket=self.bucket, Key=found["Key"])
            else:
                self._put(found["Key"], content)

    def _content(self, kind: str, rows: Sequence[Entry], columns: Sequence[str]) -> bytes:
        if kind == "CSV":
            text = io.StringIO()
            writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
            for entry in rows:
                cells = {
                    "Bucket": self.source,
                    "Key": quote_plus(entry.key, safe="/"),
                    "VersionId": entry.version_id or "",
                    "IsLatest": str(entry.latest).lower(),
                    "IsDeleteMarker": str(entry.marker).lower(),
                    "Size": "" if entry.size is None else str(entry.size),
                    "LastModifiedDate": f"{entry.modified:%Y-%m-%dT%H:%M:%S}.{entry.modified.microsecond // 1000:03d}Z",
                    "ETag": entry.etag or "",
                    "StorageClass": "" if entry.marker else "STANDARD",
                }
                writer.writerow([cells[name] for name in columns])
            return gzip.compress(text.getvalue().encode())
        cells = [
            (self.source, one.key, one.version_id, one.latest, one.marker, one.size, one.modified, one.etag, "STANDARD")
            for one in rows
        ]
        snake = {"LastModifiedDate": "last_modified_date", "ETag": "e_tag", "StorageClass": "storage_class"}
        snake |= {"VersionId": "version_id", "IsLatest": "is_latest", "IsDeleteMarker": "is_delete_marker"}
        table = pa.Table.from_pylist([dict(zip(PARQUET.names, row, strict=True)) for row in cells], PARQUET)
        buffer = io.BytesIO()
        pq.write_table(table.select([snake.get(name, name.lower()) for name in columns]), buffer)
        return buffer.getvalue()

    def _put(self, key: str, content: bytes) -> None:
        self._client.put_object(Bucket=self.bucket, Key=key, Body=content)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
