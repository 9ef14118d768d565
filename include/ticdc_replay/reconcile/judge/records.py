"""The Parquet layouts of a reconciliation: its input and its results."""

import pyarrow as pa

SEEN = "seen"
"""The ``status`` of a reference that a scan found: the object was not fetched."""

OBJECTS = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("last_modified_ms", pa.int64(), nullable=False),
        pa.field("version_id", pa.string()),
    ]
)
"""The inventory of a store. One row per current object; ``name`` is relative to the store's root and may be any text, ``size`` in
bytes, ``last_modified_ms`` by the store's clock, ``version_id`` null where the bucket has no versions."""

REFERENCES = pa.schema(
    [
        pa.field("object_name", pa.string(), nullable=False),
        pa.field("pipeline", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int32(), nullable=False),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("commit_ts", pa.int64()),
        pa.field("schema", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("key_hash", pa.binary(16)),
        pa.field("key", pa.string()),
        pa.field("etag", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("sha256", pa.string()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
    ]
)
"""Every known reference of a message to an object of the store. A row is one event of one message. The same event, by
(``topic``, ``topic_id``, ``partition``, ``offset``, ``ordinal``), may stand again where a scan or several decodes met it, with
what each of them recorded.

``object_name``: what ``large_messages.locations.object_name`` made of the location; empty where it names no object.
``topic_id``: Kafka's, of the manifest that was decoded or of the topic that was scanned.
``timestamp_ms``: the record's own time; null where the decode did not keep it. ``commit_ts``: TSO.
``key_hash``: 128-bit hash of the row's handle key, ``key``: the same key as JSON for people; null where the key is not known.
Rows with equal (schema, table, key_hash, commit_ts) are copies of one row version.
``etag``, ``size`` (bytes), ``sha256`` (hex): the object as the decode read it or its manifest pinned it; null where unknown.
``status``: the decode's (``changelog.files.side_files.REFERENCES``), or ``SEEN``. ``source``: ``decode`` or ``scan``."""

CLASSIFIED_OBJECTS = pa.schema(
    [
        *OBJECTS,
        pa.field("class", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("references", pa.int64(), nullable=False),
        pa.field("protecting", pa.int64(), nullable=False),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("deletable", pa.bool_(), nullable=False),
    ]
)
"""An object with its class (``rules.ObjectClass``) and the reason as a sentence. ``references`` counts the rows of
``REFERENCES`` that name it, ``protecting`` those of them whose message can still be read. ``schema`` and ``table`` are those of
a reference, null without one. ``deletable``: whether it may be on a plan."""

CLASSIFIED_REFERENCES = pa.schema(
    [
        *REFERENCES,
        pa.field("class", pa.string(), nullable=False),
        pa.field("protecting", pa.bool_(), nullable=False),
        pa.field("other_object", pa.string()),
    ]
)
"""A reference with its class (``rules.ReferenceClass``). ``protecting``: its message can still be read, so a missing object is
a row that a replay lacks. ``other_object``: another object that exists and holds the same row version; null where none is
known."""
