"""Finds the versions of one row in a changelog, and the claim-check references of the row.

Rows are found by the cells of their key: the hash in ``_key`` is of the texts that the wire had, and one key may have
several, such as ``1.5`` and ``1.50``. Row groups whose statistics show that they can't hold the key are not read.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.cells.written import WrittenCell
from ticdc_replay.changelog.copies.fold import narrow_columns
from ticdc_replay.changelog.files.index import ChangelogIndex, DataFile
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.parts import batch_rows, counted, groups_in
from ticdc_replay.changelog.files.reading import file_name
from ticdc_replay.changelog.files.side_files import read_groups
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.tables import TableName
from ticdc_replay.storage.base import ObjectStore

Key = Mapping[str, WrittenCell]
"""The cells of a row's handle key, by column."""


class KeyedRow(msgspec.Struct, frozen=True):
    """One row version of a data file. ``commit_ts`` is a TSO, None where the protocol has none."""

    operation: str
    commit_ts: int | None
    place: EventPlace
    split: bool
    """Whether it is half of an UPDATE that changed the key."""
    hash: bytes
    """The row's ``_key``."""

    @property
    def is_put(self) -> bool:
        """Whether it leaves a row behind."""
        return self.operation != "delete"


class KeyedReference(msgspec.Struct, frozen=True):
    """A claim-check reference of a message; ``status`` as in ``side_files.REFERENCES``."""

    place: EventPlace
    commit_ts: int | None
    object_name: str
    status: str


def rows_with_key(store: ObjectStore, index: ChangelogIndex, file: DataFile, key: Key) -> Iterator[KeyedRow]:
    """The versions of the row with *key* in *file* of the changelog of *index*, those that count there.

    Reads narrow columns, a batch of about 64 MiB at a time. Raises ArtifactNotFoundError if the file is missing.
    """
    filesystem, base = store.arrow_filesystem()
    path = f"{base}/{file_name(index, file)}"
    columns = [*narrow_columns(list(key)), "_split"]
    try:
        with pq.ParquetFile(path, filesystem=filesystem) as opened:
            metadata = opened.metadata
            groups = [
                group for group in groups_in(metadata, file.only) if _may_hold(metadata, metadata.row_group(group), key)
            ]
            for batch in opened.iter_batches(batch_rows(metadata), row_groups=groups, columns=columns):
                inside = counted(batch, file.only)
                yield from _rows(batch if inside is None else batch.filter(inside), key)
    except FileNotFoundError:
        raise ArtifactNotFoundError(
            f"{path}, a file of changelog {index.run_hash}, is gone; decode the window again"
        ) from None


def references_with_hash(
    store: ObjectStore, index: ChangelogIndex, table: TableName, hashes: Collection[bytes]
) -> Iterator[KeyedReference]:
    """The references of messages that the decode of *index* read, to rows of *table* whose ``_key`` is in *hashes*.

    Raises ArtifactNotFoundError if a file is missing.
    """
    filesystem, base = store.arrow_filesystem()
    wanted = pa.array(sorted(hashes), pa.binary(16))
    columns = ["topic", "partition", "offset", "ordinal", "commit_ts", "object_name", "status"]
    for name in index.reference_files:
        path = f"{base}/{changelog_root(index.run_hash)}/{name}"
        try:
            with pq.ParquetFile(path, filesystem=filesystem) as file:
                for batch in read_groups(file, [*columns, "schema", "table", "key_hash"]):
                    found = pc.and_(pc.equal(batch["schema"], table.schema), pc.equal(batch["table"], table.table))
                    found = pc.and_(found, pc.is_in(batch["key_hash"], value_set=wanted))
                    for *place, commit_ts, object_name, status in _cells(batch.filter(found), columns):
                        yield KeyedReference(EventPlace(*place), commit_ts, object_name, status)
        except FileNotFoundError:
            raise ArtifactNotFoundError(
                f"{path}, with claim-check references of changelog {index.run_hash}, is gone; decode the window again"
            ) from None


def _rows(batch: pa.RecordBatch, key: Key) -> Iterator[KeyedRow]:
    found = batch.filter(_with_key(batch, key))
    columns = ["_op", "_commit_ts", "_topic", "_partition", "_offset", "_index", "_split", "_key"]
    for operation, commit_ts, *place, split, hash_ in _cells(found, columns):
        yield KeyedRow(operation, commit_ts, EventPlace(*place), split, hash_)


def _with_key(batch: pa.RecordBatch, key: Key) -> pa.BooleanArray:
    """Which rows of *batch* have *key*: in the new image, or in the old one where the row was deleted."""
    put = pc.not_equal(batch["_op"], "delete")
    found = pa.array([True] * batch.num_rows, pa.bool_())
    for name, cell in key.items():
        cells = pc.if_else(put, pc.struct_field(batch["after"], [name]), pc.struct_field(batch["before"], [name]))
        found = pc.and_(found, cell.is_in(cells) if cell.exact is None else _exactly(batch, put, name, cell, cells))
    return found


def _exactly(
    batch: pa.RecordBatch, put: pa.BooleanArray, name: str, cell: WrittenCell, cells: pa.Array
) -> pa.BooleanArray:
    found = [False] * batch.num_rows
    for at in pc.indices_nonzero(pc.is_null(cells)).to_pylist():
        side = "after" if put[at].as_py() else "before"
        text = dict(batch["_exact"][at].as_py() or ()).get(f"{side}.{name}")
        found[at] = text is not None and cell.is_exactly(text)
    return pa.array(found, pa.bool_())


def _may_hold(metadata: Any, group: Any, key: Key) -> bool:
    """Whether statistics leave open that a row of *group* has *key*, in either image."""
    places = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    return any(
        all(_may_be(group, places.get(f"{side}.{name}"), cell) for name, cell in key.items())
        for side in ("after", "before")
    )


def _may_be(group: Any, column: int | None, cell: WrittenCell) -> bool:
    if column is None or cell.exact is not None:
        return True
    if cell.type.base == "decimal" and pa.types.is_string(cell.array.type):
        return True  # texts are not in the order of their numbers
    statistics = group.column(column).statistics
    if statistics is None:
        return True
    if not statistics.has_min_max:
        return not (statistics.has_null_count and statistics.null_count == group.num_rows)
    return bool(statistics.min <= cell.array[0].as_py() <= statistics.max)


def _cells(batch: pa.RecordBatch, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch[name].to_pylist() for name in columns), strict=True)
