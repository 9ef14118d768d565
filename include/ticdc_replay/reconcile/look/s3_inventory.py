"""S3's own inventory reports instead of a listing (S3 user guide: *Cataloging and analyzing your data with S3 Inventory*).

A report is a folder ``<moment>/`` with ``manifest.json`` and ``manifest.checksum``, and the data files that the manifest names.
S3 promises less than a listing does: a report *may* lack objects that were written, and hold ones that were deleted,
shortly before it began. What it holds is looked at again before a deletion; a reference whose object is not in it, written
shortly before, may be there all the same.
"""

import hashlib
import re
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from ticdc_replay.domain.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ConfigError,
    PermanentError,
    TransientError,
)
from ticdc_replay.reconcile.look.inventory import Destination, Inventory, store_clock, write_files
from ticdc_replay.reconcile.look.s3_inventory_data import FORMATS, read_data
from ticdc_replay.storage.base import ObjectStore

_HOUR_MS = 3_600_000
_MANIFEST_MAX_BYTES = 256 * 1024 * 1024
_COPY_BYTES = 4 * 1024 * 1024
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\dZ")


class ReportedFile(msgspec.Struct, frozen=True):
    """A data file as the manifest names it: its key in the bucket of the reports, bytes, MD5 in hex."""

    key: str
    size: int
    md5: str = msgspec.field(name="MD5checksum")


class ReportManifest(msgspec.Struct, frozen=True, rename="camel"):
    """``manifest.json``. ``creation_timestamp``: Unix ms as text, when S3 began to look; ``file_schema``: the columns."""

    source_bucket: str
    creation_timestamp: str
    file_format: str
    file_schema: str
    files: tuple[ReportedFile, ...]

    @property
    def began_ms(self) -> int:
        """When S3 began to look, by its clock."""
        return int(self.creation_timestamp)


class Report(NamedTuple):
    """A report that was published whole. ``ended_ms``: when its manifest was written."""

    name: str
    manifest: ReportManifest
    ended_ms: int


def newest_report(reports: ObjectStore) -> Report:
    """The newest of the *reports*: the store of a folder ``…/<source bucket>/<configuration id>``.

    One whose checksum is not there yet is still being published, and does not count. Raises ArtifactNotFoundError where there
    is none, ArtifactCorruptError for a manifest that is not what its checksum says.
    """
    for moment in sorted(_moments(reports), reverse=True):
        name = f"{moment}/manifest.json"
        info, checksum = reports.info(name), reports.info(f"{moment}/manifest.checksum")
        if info is None or checksum is None:
            continue
        content = reports.get(name, _MANIFEST_MAX_BYTES)
        expected = reports.get(f"{moment}/manifest.checksum", _MANIFEST_MAX_BYTES).decode("ascii", "replace").strip()
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != expected.lower():
            raise ArtifactCorruptError(f"{reports.uri(name)} has MD5 {found}, its checksum file says {expected!r}")
        try:
            manifest = msgspec.json.decode(content, type=ReportManifest)
            int(manifest.creation_timestamp)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ArtifactCorruptError(f"{reports.uri(name)} is not a manifest of S3 Inventory: {error}") from error
        return Report(name, manifest, int(info.last_modified.timestamp() * 1000))
    raise ArtifactNotFoundError(
        f"{reports.root} holds no report of S3 Inventory (<moment>/manifest.json with manifest.checksum); the folder is "
        f"<destination prefix>/<source bucket>/<configuration id>, and the first report takes S3 up to 48 hours"
    )


def write_report(
    reports: ObjectStore, store_uri: str, out: Destination, *, max_age_hours: int, threads: int = 4
) -> Inventory:
    """Write the current objects of the store at *store_uri* (``s3://bucket/prefix``) from the newest of *reports*.

    Each data file is copied to this machine's temporary folder, and its MD5 checked, before a row of it is used; *threads* at
    a time, so the folder needs room for that many. Inventory.began_ms is the report's. Raises
    PermanentError for a report that is older than *max_age_hours*, ConfigError for one that is of another bucket or lacks a
    column, ArtifactCorruptError for a file that is not what the manifest says, and what a store raises.
    """
    report = newest_report(reports)
    manifest, where = report.manifest, reports.uri(report.name)
    bucket, prefix = _place(store_uri)
    if manifest.source_bucket != bucket:
        raise ConfigError(f"{where} is of the bucket {manifest.source_bucket!r}, not of {store_uri}")
    if manifest.file_format not in FORMATS:
        raise ConfigError(
            f"{where}: reports in the format {manifest.file_format} are not read; set the output format of the inventory "
            f"configuration to {' or '.join(FORMATS)}"
        )
    ahead_ms, now_ms = store_clock(reports)
    age_ms = now_ms - manifest.began_ms
    if age_ms > max_age_hours * _HOUR_MS:
        began = datetime.fromtimestamp(manifest.began_ms / 1000, UTC)
        raise PermanentError(
            f"{where}: the newest report is of {began:%Y-%m-%dT%H:%MZ}, {age_ms / _HOUR_MS:.1f} hours ago; at most "
            f"{max_age_hours} are allowed (inventory.max_age_hours). Look whether S3 still publishes them, or list the store "
            f"(inventory.source: listing)"
        )
    parts = [partial(_batches, reports, where, manifest, file, prefix) for file in manifest.files]
    files = write_files(out, parts, threads)
    return Inventory(files=files, began_ms=manifest.began_ms, ended_ms=report.ended_ms, clock_ahead_ms=ahead_ms)


def _moments(reports: ObjectStore) -> set[str]:
    """The dated folders. They sort before ``data/`` and ``hive/``, where most objects are."""
    moments = set()
    for found in reports.list():
        moment = found.name.split("/", 1)[0]
        if moment[:1] > "9":
            break
        if _MOMENT.fullmatch(moment):
            moments.add(moment)
    return moments


def _place(store_uri: str) -> tuple[str, str]:
    parts = urlsplit(store_uri)
    if parts.scheme != "s3":
        raise ConfigError(f"{store_uri}: S3 Inventory reports are of buckets in S3; list the store instead")
    prefix = parts.path.strip("/")
    return parts.netloc, f"{prefix}/" if prefix else ""


def _batches(
    reports: ObjectStore, where: str, manifest: ReportManifest, file: ReportedFile, prefix: str
) -> Iterator[pa.RecordBatch]:
    name = _name_of(reports, where, file.key)
    with tempfile.TemporaryDirectory(prefix="ticdc-replay-inventory-") as folder:
        copy = Path(folder) / "data"
        _fetch(reports, name, file, copy)
        try:
            yield from read_data(copy, manifest.file_format, manifest.file_schema, prefix)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        except (pa.ArrowException, ValueError) as error:
            raise ArtifactCorruptError(
                f"{reports.uri(name)} can't be read as {manifest.file_format}: {error}"
            ) from error


def _name_of(reports: ObjectStore, where: str, key: str) -> str:
    """The name of *key* below the folder of the reports, whose last two parts every key of theirs has."""
    folder = "/".join(["", *reports.root.split("/")[-2:], ""])
    _, found, name = f"/{key}".partition(folder)
    if not found:
        raise PermanentError(
            f"{where} names the data file {key!r}, which is not below {reports.root}; the destination prefix of the inventory "
            f"configuration must not end with a slash"
        )
    return name


def _fetch(reports: ObjectStore, name: str, file: ReportedFile, copy: Path) -> None:
    """Copy *name* to *copy*, and check size and MD5."""
    info = reports.info(name)
    if info is None:
        raise ArtifactNotFoundError(f"{reports.uri(name)} does not exist, though the report's manifest names it")
    digest = hashlib.md5(usedforsecurity=False)
    filesystem, root = reports.arrow_filesystem()
    try:
        with filesystem.open_input_stream(f"{root}/{name}", compression=None) as source, copy.open("wb") as target:
            while block := source.read(_COPY_BYTES):
                digest.update(block)
                target.write(block)
    except OSError as error:
        raise TransientError(f"cannot copy {reports.uri(name)}: {error}") from error
    found = digest.hexdigest()
    if found != file.md5.lower() or copy.stat().st_size != file.size:
        raise ArtifactCorruptError(
            f"{reports.uri(name)} has {copy.stat().st_size} bytes with MD5 {found}; the manifest says {file.size} bytes with "
            f"{file.md5}"
        )
