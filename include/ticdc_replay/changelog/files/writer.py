"""Writes the rows of one split: typed, by table and schema version, each copy at most once where its bytes are equal."""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_replay.changelog.cells.columnar import ColumnarRows, hashes, numbers, order_of
from ticdc_replay.changelog.cells.convert import ConvertedRows, rows_to_batches
from ticdc_replay.changelog.cells.types import table_arrow_schema
from ticdc_replay.changelog.files.data_file import ROW_GROUP_BYTES, TABLE_METADATA, DataFileWriter
from ticdc_replay.changelog.files.identity import Identities, ambiguous_keys, changes_key, identities, key_columns
from ticdc_replay.changelog.files.keys import Copy, Keys, KeysFile
from ticdc_replay.changelog.files.layout import data_folder, refused
from ticdc_replay.changelog.files.seen import nothing_seen
from ticdc_replay.changelog.files.spill import Spill
from ticdc_replay.changelog.files.version_files import VersionFile
from ticdc_replay.changelog.files.version_order import VersionOrder, place
from ticdc_replay.codecs.base import DECODER_FAILED
from ticdc_replay.domain.events import Image, Operation, RowEvent, Shape
from ticdc_replay.domain.failure import failure
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.layout_check import LayoutCheck
from ticdc_replay.schemas.resolve import ResolvedSchema, SchemaResolver

CELL_MISMATCH = "cell_type_mismatch"
"""Reason of a row whose cells are not of their columns' types."""
ROW_DAMAGED = "row_damaged"
"""Reason of a row that can't be what the upstream has: ``RowEvent.damage`` says why, or its handle key has a NULL."""
KEY_LOSSY = "key_lossy"
"""Reason of a row whose handle key may be that of several rows: ``ambiguous_key`` says why."""
ROW_UNLIKE = "row_unlike_definition"
"""Reason of a row that no row of its table can look like: ``ResolvedSchema.unlike`` says why."""
WAITING_BYTES = 2 * ROW_GROUP_BYTES
"""Of values of all tables that are kept until they are a row group."""
_Likeness = tuple[str, str, Shape | None, Shape | None, bool]
_Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int8]]
"""Offsets, ordinals and halves of rows."""


class Located(NamedTuple):
    """A row and the message it came in. ``half``: 1 and 2 for the delete and the put of a split UPDATE, else 0."""

    message: RawMessage
    row: RowEvent
    half: int = 0


class Rejected(NamedTuple):
    """A row that can't be written, and why."""

    located: Located
    reason: str
    detail: str


class ChangelogWriter:
    """One split's data files. A file belongs to one schema version and holds at most *file_rows* rows, about.

    Of rows that are ordered by commitTs each must have one.

    Counts, valid after ``close``: ``duplicates`` dropped here, ``split_updates``, ``unkeyed`` rows.
    """

    def __init__(
        self,
        filesystem: Any,
        root: str,
        stem: str,
        history: SchemaHistory,
        zone: str,
        file_rows: int,
        order: VersionOrder = "commit_ts",
        check: LayoutCheck | None = None,
    ) -> None:
        """*check* judges the layouts of rows; rows that it finds fault with come back from ``write``."""
        self._filesystem = filesystem
        self._root = root
        self._stem = stem
        self._zone = zone
        self._file_rows = file_rows
        self._order = order
        self._history = history
        self._resolver = SchemaResolver(history, check)
        self._open: dict[ResolvedSchema, DataFileWriter] = {}
        self._files: list[VersionFile] = []
        self._seen = nothing_seen()
        self._keys = Keys()
        self._spill = Spill()
        self.duplicates = 0
        self.split_updates = 0
        self.unkeyed = 0

    def write(
        self, rows: Iterable[Located], columnar: Iterable[tuple[ResolvedSchema, ColumnarRows]] = ()
    ) -> list[Rejected]:
        """Write *rows* and rows that are *columnar* already, all of one partition; those that can't be typed come back.

        What is written does not depend on which of the two ways a row came, nor on the order within each. Of *columnar*, each
        resolved schema has one.
        """
        # Rows are grouped by what their schema can depend on first: asking for it row by row costs 2 µs.
        alike: dict[_Likeness, list[Located]] = {}
        for located in rows:
            row = located.row
            after, before = row.after, row.before
            if after is not None and before is not None and changes_key(row):
                self.split_updates += 1
                for half in _halves(located):
                    alike.setdefault(_likeness(half.row), []).append(half)
            else:
                alike.setdefault(_likeness(row), []).append(located)
        groups: dict[ResolvedSchema, list[Located]] = {}
        rejected: list[Rejected] = []
        for (schema, table, *_), members in alike.items():
            try:
                found = self._by_schema(schema, table, members)
            except BaseException as error:
                why = failure(error)
                rejected += [Rejected(located, DECODER_FAILED, why) for located in members]
                continue
            for resolved, part in found.items():
                groups.setdefault(resolved, []).extend(part)
        ready = dict(columnar)
        for resolved in ready:
            groups.setdefault(resolved, [])
        for resolved in sorted(groups, key=lambda resolved: _first_place(groups[resolved], ready.get(resolved))):
            rejected += self._write_group(resolved, groups[resolved], ready.get(resolved))
        self._make_room()
        return rejected

    def _make_room(self) -> None:
        """Write the rows that wait of all tables, where they are too many bytes together."""
        files = self._open.values()
        if sum(file.waiting_bytes for file in files) <= WAITING_BYTES:
            return
        if sum(file.count_waiting() for file in files) > WAITING_BYTES:
            for file in files:
                file.flush()

    def resolve(self, row: RowEvent) -> ResolvedSchema:
        """The schema that *row* would be written with: the same object for the same schema."""
        return self._resolver.resolve(row)

    def _by_schema(self, schema: str, table: str, members: list[Located]) -> dict[ResolvedSchema, list[Located]]:
        times = [located.row.commit_ts for located in members if located.row.commit_ts is not None]
        if len(times) == len(members) and self._history.is_one_span(schema, table, min(times), max(times)):
            return {self._resolver.resolve(members[0].row): members}
        found: dict[ResolvedSchema, list[Located]] = {}
        for located in members:
            found.setdefault(self._resolver.resolve(located.row), []).append(located)
        return found

    def add_quarantined_copy(self, located: Located, file: str, position: int) -> None:
        """Note that a row that can't be used stands at *position* of the quarantine *file*.

        A copy of the same row version that can be used, wherever it was sent, makes it surplus, and so does a copy before it in
        quarantine. A row whose key can't be read, or may be that of several rows, has no copies.
        """
        try:
            _, ids, unreadable = _identify([located], self._order)
        except BaseException as error:
            failure(error)
            return
        if unreadable or ids is None:
            return
        message, row = located.message, located.row
        place_ = (message.topic, message.partition, message.offset, row.ordinal, located.half)
        copy = Copy(ids.versions[0], row.fingerprint, not row.partial, *place_, file, position)
        self._keys.add_quarantined(copy, row.commit_ts)

    def end_topic(self) -> None:
        """Finish the files that are open: a file holds rows of one topic."""
        for resolved in list(self._open):
            self._close_file(resolved)

    def close(self) -> tuple[list[VersionFile], KeysFile | None]:
        """Finish all files; the data files and the keys file, which is None where no row has a key."""
        self.end_topic()
        self._spill.close()
        keys_file = self._keys.write(self._filesystem, self._root, f"keys/{self._stem}.parquet")
        return self._files, keys_file

    def _write_group(
        self, resolved: ResolvedSchema, members: list[Located], ready: ColumnarRows | None
    ) -> list[Rejected]:
        """Write the rows of one schema: *members*, and those that are *ready*. What is rejected comes in the order of places."""
        members.sort(key=_place)
        refusal = (ROW_UNLIKE, resolved.unlike) if resolved.unlike else refused(resolved.schema)
        if refusal is not None:
            return [Rejected(located, *refusal) for located in members]
        members, beyond = _without_beyond_int64(members)
        members, ids, rejected = _identify(members, self._order)
        rejected += beyond
        members, ids, ready = self._drop_equal_copies(members, ids, ready)
        parts: list[ColumnarRows] = []
        start = 0
        for converted in rows_to_batches([located.row for located in members], resolved, self._zone):
            if parts:  # too large to be of one row group with what follows
                self._append(resolved, [parts.pop()])
            end = start + len(converted.after)
            own = None if ids is None else Identities(ids.keys[start:end], ids.versions[start:end])
            part, bad = _part(resolved, members[start:end], own, converted)
            parts += [] if part is None else [part]
            rejected += bad
            start = end
        if ready is not None and ready.batch.num_rows:
            parts.append(ready)
        if parts:
            self._append(resolved, parts)
        return sorted(rejected, key=lambda found: _place(found.located))

    def _drop_equal_copies(
        self, members: list[Located], ids: Identities | None, ready: ColumnarRows | None
    ) -> tuple[list[Located], Identities | None, ColumnarRows | None]:
        """The rows that no row before them equals: the first in Kafka stays."""
        keyed = ids is not None and bool(members)
        if ready is None or ready.versions is None:
            if not keyed:
                return members, ids, ready
            versions = [hashes(ids.versions)] if ids is not None else []
            fingerprints = [hashes([located.row.fingerprint for located in members])]
            order: npt.NDArray[np.int64] | None = None
        elif not keyed:
            versions, fingerprints = [ready.versions], [ready.fingerprints]
            order = order_of(*_places_of(ready))
        else:
            assert ids is not None
            versions = [hashes(ids.versions), ready.versions]
            fingerprints = [hashes([located.row.fingerprint for located in members]), ready.fingerprints]
            both = zip(_places(members), _places_of(ready), strict=True)
            order = order_of(*(np.concatenate([own, other]) for own, other in both))
        fresh = self._seen.fresh(_ordered(versions, order), _ordered(fingerprints, order))
        if fresh is None:
            return members, ids, ready
        if order is not None:
            unordered = np.empty_like(fresh)
            unordered[order] = fresh
            fresh = unordered
        self.duplicates += int(np.count_nonzero(~fresh))
        own = len(members) if keyed else 0
        if keyed:
            members, ids = _only(np.flatnonzero(fresh[:own]).tolist(), members, ids)
        if ready is not None and ready.versions is not None:
            ready = ready.only(fresh[own:])
        return members, ids, ready

    def _append(self, resolved: ResolvedSchema, parts: Sequence[ColumnarRows]) -> None:
        file = self._open.get(resolved)
        if file is None:
            folder = data_folder(resolved.schema.name, resolved.version)
            name = f"{folder}/{self._stem}-{len(self._files) + len(self._open):03d}.parquet"
            file = self._open[resolved] = DataFileWriter(
                self._filesystem, self._root, name, partial(data_schema, resolved), self._keys, self._spill
            )
        self.unkeyed += sum(part.batch.num_rows for part in parts if part.versions is None)
        file.write(parts)
        if file.rows >= self._file_rows:
            self._close_file(resolved)
        if self._spill.is_due:
            for waiting in self._open.values():
                waiting.spill()

    def _close_file(self, resolved: ResolvedSchema) -> None:
        file = self._open.pop(resolved).close()
        self._files.append(VersionFile(resolved.schema, resolved.version, resolved.declared, file))


def _likeness(row: RowEvent) -> _Likeness:
    """All that the schema of *row* depends on but its commitTs."""
    after, before = row.after, row.before
    return (
        row.schema,
        row.table,
        None if after is None else after.shape,
        None if before is None else before.shape,
        row.partial,
    )


def _place(located: Located) -> tuple[int, int, int]:
    return (located.message.offset, located.row.ordinal, located.half)


def _first_place(members: Sequence[Located], ready: ColumnarRows | None) -> tuple[int, int, int]:
    """The place of the first row, by which the files of a batch are opened in one order however it was decoded."""
    places = [_place(located) for located in members]
    if ready is not None:
        offsets, ordinals, halves = _places_of(ready)
        at = int(np.lexsort((halves, ordinals, offsets))[0])
        places.append((int(offsets[at]), int(ordinals[at]), int(halves[at])))
    return min(places)


def _places(members: Sequence[Located]) -> _Places:
    offsets, ordinals, halves = zip(*map(_place, members), strict=True)
    return np.array(offsets, np.int64), np.array(ordinals, np.int32), np.array(halves, np.int8)


def _places_of(rows: ColumnarRows) -> _Places:
    return numbers(rows.batch, "_offset"), numbers(rows.batch, "_index"), rows.halves


def _ordered(parts: list[npt.NDArray[np.void]], order: npt.NDArray[np.int64] | None) -> npt.NDArray[np.void]:
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return whole if order is None else whole[order]


def _part(
    resolved: ResolvedSchema, members: list[Located], ids: Identities | None, converted: ConvertedRows
) -> tuple[ColumnarRows | None, list[Rejected]]:
    """*members*, which were *converted*, for the data file; and those of them that have to be rejected."""
    batch = _batch(resolved, members, ids, converted)
    if not converted.bad:
        return _columnar(batch, members, ids), []
    rejected = [Rejected(members[at], CELL_MISMATCH, why) for at, why in sorted(converted.bad.items())]
    good = [at for at in range(len(members)) if at not in converted.bad]
    batch = batch.take(pa.array(good, pa.int64()))
    members, ids = _only(good, members, ids)
    return (_columnar(batch, members, ids) if members else None), rejected


def _columnar(batch: pa.RecordBatch, members: Sequence[Located], ids: Identities | None) -> ColumnarRows:
    return ColumnarRows(
        batch,
        None if ids is None else hashes(ids.versions),
        hashes([located.row.fingerprint for located in members]),
        np.array([located.half for located in members], np.int8),
    )


def _halves(update: Located) -> tuple[Located, Located]:
    """The delete and the put that an UPDATE of the row key is."""
    row = update.row
    old = row._replace(operation=Operation.DELETE, after=None, lossy=_of_side(row.lossy, "before"))
    new = row._replace(operation=Operation.INSERT, before=None, before_unknown=(), lossy=_of_side(row.lossy, "after"))
    return Located(update.message, old, 1), Located(update.message, new, 2)


def _of_side(cells: tuple[str, ...], side: str) -> tuple[str, ...]:
    return tuple(cell for cell in cells if cell.startswith(f"{side}."))


def _without_beyond_int64(rows: list[Located]) -> tuple[list[Located], list[Rejected]]:
    """*rows* whose physical table ids a column holds, and the others, which no codec should give out. 0.03 µs a row."""
    try:
        pa.array([row.physical_table_id for _, row, _ in rows], pa.int64())
    except (ValueError, TypeError, OverflowError):  # Arrow's errors are among them
        fit = [_is_int64(row.physical_table_id) for _, row, _ in rows]
        why = "a physical table id that is not an integer of 64 bits: a defect of ticdc-replay, please report it"
        bad = [Rejected(located, DECODER_FAILED, why) for located, fits in zip(rows, fit, strict=True) if not fits]
        return list(compress(rows, fit)), bad
    return rows, []


def _is_int64(value: object) -> bool:
    return value is None or (type(value) is int and -(1 << 63) <= value < 1 << 63)


def _identify(rows: Sequence[Located], order: VersionOrder) -> tuple[list[Located], Identities | None, list[Rejected]]:
    """*rows*, which are in the order of their places, with their identities, and those whose key can't be read, has a NULL or
    may be that of several rows.

    The rows are of one resolved schema, so all have a handle key or none has; then there are no identities.
    """
    shapes: dict[Shape, tuple[list[Located], list[Image]]] = {}
    for located in rows:
        row = located.row
        image = row.after if row.after is not None else row.before
        assert image is not None, "a row event has an image"
        shape = image.shape
        if shape not in shapes:
            shapes[shape] = ([], [])
        members, images = shapes[shape]
        members.append(located)
        images.append(image)
    if not all(shape.handle_key for shape in shapes):
        return list(rows), None, []
    ordered: list[Located] = []
    ids = Identities([], [])
    rejected: list[Rejected] = []
    for shape, (members, images) in shapes.items():
        keys, unreadable, null = key_columns(shape, images)
        ambiguous = ambiguous_keys(shape, [located.row for located in members])
        if unreadable or null or ambiguous:
            rejected += [Rejected(members[at], CELL_MISMATCH, why) for at, why in sorted(unreadable.items())]
            rejected += [Rejected(members[at], ROW_DAMAGED, why) for at, why in sorted(null.items())]
            bad = unreadable.keys() | null.keys()
            rejected += [Rejected(members[at], KEY_LOSSY, ambiguous[at]) for at in sorted(ambiguous.keys() - bad)]
            bad |= ambiguous.keys()
            members = [located for at, located in enumerate(members) if at not in bad]
            keys = [key for at, key in enumerate(keys) if at not in bad]
        ordered += members
        found = identities([located.row for located in members], keys, shape.handle_key, _versions(members, order))
        ids.keys.extend(found.keys)
        ids.versions.extend(found.versions)
    if len(shapes) > 1:
        ordered, ids_or_none = _only(sorted(range(len(ordered)), key=lambda at: _place(ordered[at])), ordered, ids)
        assert ids_or_none is not None
        ids = ids_or_none
    return ordered, ids, rejected


def _versions(rows: Sequence[Located], order: VersionOrder) -> list[int]:
    if order == "place":
        return [place(located.message.partition, located.message.offset) for located in rows]
    return [located.row.commit_ts for located in rows]  # type: ignore[misc]


def _only(
    places: Sequence[int], rows: list[Located], ids: Identities | None
) -> tuple[list[Located], Identities | None]:
    kept = [rows[at] for at in places]
    if ids is None:
        return kept, None
    return kept, Identities([ids.keys[at] for at in places], [ids.versions[at] for at in places])


def _batch(
    resolved: ResolvedSchema, members: list[Located], ids: Identities | None, converted: ConvertedRows
) -> pa.RecordBatch:
    """*members*, which came in messages of one partition, as a batch of the data file."""
    count = len(members)
    topic, partition = members[0].message.topic, members[0].message.partition
    rows = RowEvent._make(zip(*[located.row for located in members], strict=True))
    columns = {
        "_op": rows.operation,
        "_commit_ts": rows.commit_ts,
        "_offset": [located.message.offset for located in members],
        "_index": rows.ordinal,
        "_physical_table_id": rows.physical_table_id,
        "_partial": rows.partial,
        "_split": [located.half != 0 for located in members],
        "_key": [None] * count if ids is None else ids.keys,
    }
    schema = data_schema(resolved)
    arrays = {name: pa.array(values, schema.field(name).type) for name, values in columns.items()} | {
        "_topic": pa.repeat(topic, count),
        "_partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
        "before": converted.before,
        "after": converted.after,
        "_absent": converted.absent,
        "_lossy": converted.lossy,
        "_exact": converted.exact,
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


@lru_cache(maxsize=1024)
def data_schema(resolved: ResolvedSchema) -> pa.Schema:
    """The layout of a data file with rows of *resolved*."""
    schema = resolved.schema
    about = {"name": [schema.name.schema, schema.name.table], "handle_key": list(schema.handle_key)}
    return table_arrow_schema(schema).with_metadata({TABLE_METADATA: json.dumps(about).encode()})
