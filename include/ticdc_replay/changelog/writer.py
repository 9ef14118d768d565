"""Writes the rows of one split: typed, by table and schema version, each copy at most once where its bytes are equal."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from ticdc_replay.changelog.convert import ConvertedRows, rows_to_batch
from ticdc_replay.changelog.data_file import DataFileWriter
from ticdc_replay.changelog.duplicates import TABLE_METADATA
from ticdc_replay.changelog.identity import VersionId, changes_key, key_columns, version_ids
from ticdc_replay.changelog.index import DataFile
from ticdc_replay.changelog.keys import Keys
from ticdc_replay.changelog.layout import data_folder
from ticdc_replay.changelog.types import table_arrow_schema
from ticdc_replay.domain.events import Image, Operation, RowEvent, Shape
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.resolve import ResolvedSchema, SchemaResolver

CELL_MISMATCH = "cell_type_mismatch"
"""Reason of a row whose cells are not of their columns' types."""


class Located(NamedTuple):
    """A row and the message it came in. ``half``: 1 and 2 for the delete and the put of a split UPDATE, else 0."""

    message: RawMessage
    row: RowEvent
    half: int = 0


class Rejected(NamedTuple):
    """A row whose cells are not of their columns' types."""

    located: Located
    reason: str
    detail: str


class WrittenFile(NamedTuple):
    """A data file and the schema of its rows."""

    resolved: ResolvedSchema
    file: DataFile


class ChangelogWriter:
    """One split's data files. A file belongs to one schema version and holds at most *file_rows* rows, about.

    Counts, valid after ``close``: ``duplicates`` dropped here, ``split_updates``, ``unkeyed`` rows.
    """

    def __init__(
        self, filesystem: Any, root: str, stem: str, history: SchemaHistory, zone: str, file_rows: int
    ) -> None:
        self._filesystem = filesystem
        self._root = root
        self._stem = stem
        self._zone = zone
        self._file_rows = file_rows
        self._history = history
        self._resolver = SchemaResolver(history)
        self._open: dict[ResolvedSchema, DataFileWriter] = {}
        self._files: list[WrittenFile] = []
        self._seen: dict[bytes, bytes] = {}
        self._keys = Keys()
        self.duplicates = 0
        self.split_updates = 0
        self.unkeyed = 0

    def write(self, rows: Iterable[Located]) -> list[Rejected]:
        """Write *rows*; those that can't be typed come back."""
        # Rows are grouped by what their schema can depend on first: asking for it row by row costs 2 µs.
        alike: dict[tuple[str, str, Shape | None, Shape | None], list[Located]] = {}
        for located in self._split_key_changes(rows):
            row = located.row
            after = row.after.shape if row.after is not None else None
            before = row.before.shape if row.before is not None else None
            alike.setdefault((row.schema, row.table, after, before), []).append(located)
        groups: dict[ResolvedSchema, list[Located]] = {}
        for (schema, table, _, _), members in alike.items():
            self._group_by_schema(schema, table, members, groups)
        rejected: list[Rejected] = []
        for resolved, members in groups.items():
            rejected += self._write_group(resolved, members)
        return rejected

    def _group_by_schema(
        self, schema: str, table: str, members: list[Located], groups: dict[ResolvedSchema, list[Located]]
    ) -> None:
        times = [located.row.commit_ts for located in members if located.row.commit_ts is not None]
        if len(times) == len(members) and self._history.is_one_span(schema, table, min(times), max(times)):
            groups.setdefault(self._resolver.resolve(members[0].row), []).extend(members)
            return
        for located in members:
            groups.setdefault(self._resolver.resolve(located.row), []).append(located)

    def add_partial_copy(self, located: Located, file: str, position: int) -> None:
        """Note that a row without its other columns stands at *position* of the quarantine *file*.

        A whole copy of the same row version, wherever it was sent, makes it surplus.
        """
        keyed, ids, unreadable = self._identify([located])
        if not unreadable:
            self._note_keys(keyed, ids, file=file, first_position=position)

    def close(self, buckets: int) -> tuple[list[WrittenFile], str | None]:
        """Finish all files; the data files, and the name of the keys file (None where no row has a key)."""
        for resolved in list(self._open):
            self._close_file(resolved)
        keys_file = self._keys.write(self._filesystem, self._root, f"keys/{self._stem}.parquet", buckets)
        return self._files, keys_file

    def _split_key_changes(self, rows: Iterable[Located]) -> Iterator[Located]:
        for located in rows:
            row = located.row
            if row.operation is Operation.UPDATE and changes_key(row):
                self.split_updates += 1
                old = row._replace(operation=Operation.DELETE, after=None)
                new = row._replace(operation=Operation.INSERT, before=None, before_unknown=())
                yield Located(located.message, old, 1)
                yield Located(located.message, new, 2)
            else:
                yield located

    def _write_group(self, resolved: ResolvedSchema, members: list[Located]) -> list[Rejected]:
        members, ids, rejected = self._identify(members)
        fresh, fresh_ids = self._drop_equal_copies(members, ids)
        if not fresh:
            return rejected
        converted = rows_to_batch([located.row for located in fresh], resolved, self._zone)
        batch = self._batch(resolved, fresh, fresh_ids, converted)
        if converted.bad:
            rejected += [Rejected(fresh[at], CELL_MISMATCH, why) for at, why in sorted(converted.bad.items())]
            good = [at for at in range(len(fresh)) if at not in converted.bad]
            batch = batch.take(pa.array(good, pa.int64()))
            fresh = [fresh[at] for at in good]
            fresh_ids = [fresh_ids[at] for at in good]
        if fresh:
            self._append(resolved, batch, fresh, fresh_ids)
        return rejected

    def _identify(self, rows: Sequence[Located]) -> tuple[list[Located], list[VersionId | None], list[Rejected]]:
        """*rows* with their identities, grouped by shape, and those whose key can't be read.

        The identity of a row of a table without key is None.
        """
        shapes: dict[Shape, tuple[list[Located], list[Image]]] = {}
        for located in rows:
            row = located.row
            image = row.after if row.after is not None else row.before
            assert image is not None, "a row event has an image"
            members, images = shapes.setdefault(image.shape, ([], []))
            members.append(located)
            images.append(image)
        ordered: list[Located] = []
        ids: list[VersionId | None] = []
        rejected: list[Rejected] = []
        for shape, (members, images) in shapes.items():
            keys, unreadable = key_columns(shape, images)
            if unreadable:
                rejected += [Rejected(members[at], CELL_MISMATCH, why) for at, why in sorted(unreadable.items())]
                members = [located for at, located in enumerate(members) if at not in unreadable]
                keys = [key for at, key in enumerate(keys) if at not in unreadable]
            ordered += members
            if shape.handle_key:
                ids += version_ids([located.row for located in members], keys, shape.handle_key)
            else:
                ids += [None] * len(members)
        return ordered, ids, rejected

    def _drop_equal_copies(
        self, members: list[Located], ids: list[VersionId | None]
    ) -> tuple[list[Located], list[VersionId | None]]:
        fresh: list[Located] = []
        fresh_ids: list[VersionId | None] = []
        for located, row_id in zip(members, ids, strict=True):
            if row_id is not None:
                fingerprint = located.row.fingerprint
                if row_id.version not in self._seen:
                    self._seen[row_id.version] = fingerprint
                elif self._seen[row_id.version] == fingerprint:
                    self.duplicates += 1
                    continue
            fresh.append(located)
            fresh_ids.append(row_id)
        return fresh, fresh_ids

    def _batch(
        self,
        resolved: ResolvedSchema,
        members: list[Located],
        ids: list[VersionId | None],
        converted: ConvertedRows,
    ) -> pa.RecordBatch:
        rows = [located.row for located in members]
        messages = [located.message for located in members]
        columns = {
            "_op": [row.operation.value for row in rows],
            "_commit_ts": [row.commit_ts for row in rows],
            "_topic": [message.topic for message in messages],
            "_partition": [message.partition for message in messages],
            "_offset": [message.offset for message in messages],
            "_index": [row.ordinal for row in rows],
            "_physical_table_id": [row.physical_table_id for row in rows],
            "_key": [None if row_id is None else row_id.key for row_id in ids],
            "_partial": [row.partial for row in rows],
            "_split": [located.half != 0 for located in members],
        }
        schema = _data_schema(resolved)
        arrays = [pa.array(values, schema.field(name).type) for name, values in columns.items()]
        arrays += [converted.before, converted.after, converted.absent, converted.exact]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _append(
        self, resolved: ResolvedSchema, batch: pa.RecordBatch, rows: list[Located], ids: list[VersionId | None]
    ) -> None:
        file = self._open.get(resolved)
        if file is None:
            folder = data_folder(resolved.schema.name, resolved.version)
            name = f"{folder}/{self._stem}-{len(self._files) + len(self._open):03d}.parquet"
            file = self._open[resolved] = DataFileWriter(self._filesystem, self._root, name, _data_schema(resolved))
        self._note_keys(rows, ids, file=file.name, first_position=file.rows)
        self.unkeyed += ids.count(None)
        file.write(batch)
        if file.rows >= self._file_rows:
            self._close_file(resolved)

    def _note_keys(self, rows: list[Located], ids: list[VersionId | None], *, file: str, first_position: int) -> None:
        if None in ids:
            # A resolved schema has a handle key or has none: its rows are all without identity, or none is.
            return
        self._keys.add(
            [row_id.version for row_id in ids if row_id is not None],
            [located.row.fingerprint for located in rows],
            [located.message for located in rows],
            [located.row.ordinal for located in rows],
            [located.half for located in rows],
            whole=[not located.row.partial for located in rows],
            file=file,
            first_position=first_position,
        )

    def _close_file(self, resolved: ResolvedSchema) -> None:
        self._files.append(WrittenFile(resolved, self._open.pop(resolved).close()))


@lru_cache(maxsize=1024)
def _data_schema(resolved: ResolvedSchema) -> pa.Schema:
    schema = resolved.schema
    about = {"name": [schema.name.schema, schema.name.table], "handle_key": list(schema.handle_key)}
    return table_arrow_schema(schema).with_metadata({TABLE_METADATA: json.dumps(about).encode()})
