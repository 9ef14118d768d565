"""Reports of S3 Inventory in place of a listing: what they hold, and what makes one useless."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from demo.embedded_stack.s3 import S3Server
from tests.conftest import s3_client_of
from tests.support.s3_inventory_reports import Entry, Reports, entries_of
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError, ConfigError, PermanentError
from ticdc_replay.reconcile.judge.records import OBJECTS
from ticdc_replay.reconcile.look.inventory import Destination, Inventory
from ticdc_replay.reconcile.look.s3_inventory import write_report
from ticdc_replay.storage import ObjectStore, open_store
from ticdc_replay.storage.file import FileStore

pytestmark = pytest.mark.integration

NAMES = [
    "0f8fad5b-d9cb-469f-a165-70867728950e.json",
    "with space.json",
    "plus+.json",
    "50%.json",
    "a%2Fb",
    "%2B%25",
    'quote".json',
    "comma,semicolon;",
    "é😀.json",
    "deep/er/x.json",
    "true",
]
FORMATS = ("CSV", "Parquet")


class Bucket:
    """A bucket with a store below a prefix, and the folder of its inventory reports."""

    def __init__(self, server: S3Server, folder: Path, versioning: str | None = None) -> None:
        self.client = s3_client_of(server)
        extra = {"endpoint_url": server.endpoint, "region_name": server.region}
        self._connection = Connection("aws", "aws", login=server.access_key, password=server.secret_key, extra=extra)
        self.name, reports = self._make(versioning), self._make(None)
        self.reports = Reports(self.client, self.name, reports)
        self.store = self._open(f"s3://{self.name}/claims")
        self._out = Destination(FileStore(folder), "inventories/now")

    def read(self, max_age_hours: int = 48, folder: str | None = None) -> Inventory:
        return write_report(
            self._open(folder or self.reports.uri), self.store.root, self._out, max_age_hours=max_age_hours
        )

    def listed(self, *, versions: bool) -> list[dict[str, Any]]:
        return [
            {
                "name": found.name,
                "size": found.size,
                "etag": found.etag,
                "last_modified_ms": int(found.last_modified.timestamp() * 1000),
                "version_id": found.version_id,
            }
            for found in (self.store.deletion().list_versions() if versions else self.store.list())
        ]

    def rows(self, inventory: Inventory) -> list[dict[str, Any]]:
        rows = []
        for file in inventory.files:
            table = pq.read_table(Path(self._out.store.root.removeprefix("file://")) / file.name)
            assert table.schema == OBJECTS
            assert (table.num_rows, sum(table["size"].to_pylist())) == (file.rows, file.bytes)
            rows += table.to_pylist()
        return sorted(rows, key=lambda row: row["name"])

    def fill(self) -> None:
        for name in NAMES:
            self.store.put(name, name.encode())
        for outside in ("other/x.json", "claims-too/y.json", "claims.json"):
            self.client.put_object(Bucket=self.name, Key=outside, Body=b"of others")
        self.client.put_object(Bucket=self.name, Key="claims/deep/", Body=b"")

    def _make(self, versioning: str | None) -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=name)
        if versioning:
            self.client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": versioning})  # type: ignore[typeddict-item]
        return name

    def _open(self, uri: str) -> ObjectStore:
        return open_store(uri, self._connection)


@pytest.fixture(params=["s3", "versitygw"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def make(s3: S3Server, tmp_path: Path) -> Callable[[str | None], Bucket]:
    return lambda versioning: Bucket(s3, tmp_path, versioning)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_report_of_current_objects_says_what_a_listing_says(server: S3Server, tmp_path: Path, kind: str) -> None:
    bucket = Bucket(server, tmp_path)
    bucket.fill()
    listed = bucket.listed(versions=False)
    assert {row["name"] for row in listed} == set(NAMES)
    bucket.reports.publish(entries_of(bucket.client, bucket.name), kind, versions=False, parts=3)
    found = bucket.read()
    assert bucket.rows(found) == listed
    assert found.ended_ms - found.began_ms == pytest.approx(3_600_000, abs=60_000)
    assert abs(found.clock_ahead_ms) <= 5_000


@pytest.mark.parametrize("kind", FORMATS)
def test_of_all_versions_only_the_current_ones_count_and_hidden_objects_do_not(
    server: S3Server, tmp_path: Path, kind: str
) -> None:
    bucket = Bucket(server, tmp_path, "Enabled")
    bucket.fill()
    bucket.store.put("50%.json", b"a second version")
    bucket.store.delete("plus+.json")
    listed = bucket.listed(versions=True)
    assert {row["name"] for row in listed if row["version_id"]} == set(NAMES) - {"plus+.json"}
    entries = entries_of(bucket.client, bucket.name)
    assert [entry.key for entry in entries if entry.marker] == ["claims/plus+.json"]
    assert sum(entry.key == "claims/50%.json" for entry in entries) == 2
    bucket.reports.publish(entries, kind)
    assert bucket.rows(bucket.read()) == listed


@pytest.mark.parametrize("kind", FORMATS)
def test_names_that_text_files_give_a_meaning_of_their_own_come_through(
    make: Callable[[str | None], Bucket], kind: str
) -> None:
    bucket = make(None)
    names = ["new\nline", "return\r", "tab\t", '""', "'", "null", "", "\x7f", "\ufeffx", "a" * 900]
    modified = datetime(2026, 3, 1, 12, 30, 15, 123_000, UTC)
    entries = [Entry(f"claims/{name}", None, True, False, 2**40, modified, "etag-7") for name in names]
    bucket.reports.publish(entries, kind)
    rows = bucket.rows(bucket.read())
    assert [row.pop("name") for row in rows] == sorted(name for name in names if name)
    at_ms = int(modified.timestamp() * 1000)
    assert all(row == {"size": 2**40, "etag": "etag-7", "last_modified_ms": at_ms, "version_id": None} for row in rows)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_report_without_a_file_or_without_a_row_is_of_an_empty_store(
    make: Callable[[str | None], Bucket], kind: str
) -> None:
    bucket = make(None)
    bucket.reports.publish([], kind)
    assert (bucket.read().files, bucket.read().objects) == ((), 0)
    bucket.reports.publish([], kind, parts=0, hours_ago=0.5)
    assert bucket.read().objects == 0


def test_a_report_that_is_still_being_published_does_not_count(make: Callable[[str | None], Bucket]) -> None:
    bucket = make(None)
    with pytest.raises(ArtifactNotFoundError, match="holds no report"):
        bucket.read()
    bucket.reports.publish([], "CSV", hours_ago=1, checksum=False)
    with pytest.raises(ArtifactNotFoundError, match="holds no report"):
        bucket.read()
    bucket.store.put("old", b"")
    bucket.reports.publish(entries_of(bucket.client, bucket.name), "CSV", hours_ago=30)
    assert [row["name"] for row in bucket.rows(bucket.read())] == ["old"]
    bucket.store.put("new", b"")
    bucket.reports.publish(entries_of(bucket.client, bucket.name), "CSV", hours_ago=6)
    assert [row["name"] for row in bucket.rows(bucket.read())] == ["new", "old"]


def test_an_old_report_is_refused(make: Callable[[str | None], Bucket]) -> None:
    bucket = make(None)
    bucket.reports.publish([], "CSV", hours_ago=49)
    with pytest.raises(PermanentError, match=r"49\.0 hours ago; at most 48"):
        bucket.read()
    assert bucket.read(max_age_hours=50).objects == 0


def test_files_that_are_not_what_the_manifest_says_are_refused(make: Callable[[str | None], Bucket]) -> None:
    bucket = make(None)
    bucket.store.put("a", b"a")
    entries = entries_of(bucket.client, bucket.name)
    bucket.reports.publish(entries, "CSV")
    bucket.reports.change("data/", b"cut off")
    with pytest.raises(ArtifactCorruptError, match="the manifest says"):
        bucket.read()
    bucket.reports.change("data/", None)
    with pytest.raises(ArtifactNotFoundError, match="though the report's manifest names it"):
        bucket.read()
    moment = bucket.reports.publish(entries, "CSV", hours_ago=0.5)
    bucket.reports.change(f"{moment}/manifest.json", b"{}")
    with pytest.raises(ArtifactCorruptError, match="its checksum file says"):
        bucket.read()


def test_a_report_that_lacks_what_is_needed_is_refused(make: Callable[[str | None], Bucket]) -> None:
    bucket = make(None)
    bucket.store.put("a", b"a")
    entries = entries_of(bucket.client, bucket.name)
    for number, kind in enumerate(FORMATS):
        bucket.reports.publish(entries, kind, hours_ago=20 - number, without=["ETag", "Size"])
        with pytest.raises(ConfigError, match="no Size, ETag"):
            bucket.read()
    bucket.reports.publish(entries, "CSV", hours_ago=10, sourceBucket="another")
    with pytest.raises(ConfigError, match="of the bucket 'another'"):
        bucket.read()
    bucket.reports.publish(entries, "CSV", hours_ago=9, fileFormat="ORC")
    with pytest.raises(ConfigError, match="ORC are not read"):
        bucket.read()
    bucket.reports.publish(entries, "CSV", hours_ago=8, creationTimestamp="yesterday")
    with pytest.raises(ArtifactCorruptError, match="not a manifest"):
        bucket.read()
    elsewhere = {"key": "elsewhere/data/x.csv.gz", "size": 1, "MD5checksum": "0" * 32}
    bucket.reports.publish(entries, "CSV", hours_ago=7, files=[elsewhere])
    with pytest.raises(PermanentError, match="is not below"):
        bucket.read()
