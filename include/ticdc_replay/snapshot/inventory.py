"""The inventory of the claim-check store at pin time."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_replay.domain import canonical, tso
from ticdc_replay.snapshot.manifest import PinnedFile
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.storage.base import ObjectInfo, ObjectStore
from ticdc_replay.storage.listing import list_parallel

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("last_modified", pa.timestamp("ms", "UTC"), nullable=False),
    ]
)

ROW_GROUP = 20_000
"""Objects that are looked up by name are read a group at a time: 1 MB."""


def pin_inventory(request: PinRequest, store: ObjectStore, artifacts: ObjectStore) -> PinnedFile:
    """List the objects that rows of the window may refer to, as ``inventories/<sha256>.parquet``.

    These are all that were last modified after the window's start less the margin: TiCDC writes an object before the message
    that refers to it, and a resend of old rows writes new ones. They are in order of name. Memory: the file, about 60 bytes an
    object, and the kept part of the listing.
    """
    oldest_ms = tso.physical_ms(request.window.from_ts) - request.claim_check_margin_ms
    oldest = datetime.fromtimestamp(max(0, oldest_ms) / 1000, UTC)
    content, count = _write(list_parallel(store, lambda found: found.last_modified >= oldest))
    digest = canonical.digest(content)
    name = f"inventories/{digest}.parquet"
    artifacts.put_once(name, content)
    return PinnedFile(artifacts.uri(name), digest, count)


def _write(objects: Iterator[ObjectInfo]) -> tuple[bytes, int]:
    buffer = io.BytesIO()
    count = 0
    with pq.ParquetWriter(buffer, SCHEMA, compression="zstd") as writer:
        while group := list(islice(objects, ROW_GROUP)):
            columns = [[getattr(found, name) for found in group] for name in SCHEMA.names]
            writer.write_table(pa.table(columns, schema=SCHEMA))
            count += len(group)
    return buffer.getvalue(), count
