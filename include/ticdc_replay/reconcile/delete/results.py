"""The outcome of each object of a deletion plan, as files: ``deletions/<plan_hash>/<execution_id>/results-*.parquet``.

A file belongs to one file of the plan, by its number. A plan may be executed by several attempts, one after the other; each
object has one result.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_replay.domain import canonical
from ticdc_replay.reconcile.judge.records import OBJECTS
from ticdc_replay.storage.base import ObjectStore
from ticdc_replay.storage.deletion import Deletion


class Outcome(StrEnum):
    """The outcome of an object: as in ``storage.deletion.DeletionOutcome``, or ``withheld`` where it was not tried."""

    DELETED = "deleted"
    GONE = "gone"
    ALTERED = "altered"
    DENIED = "denied"
    REFUSED = "refused"
    WITHHELD = "withheld"


RESULTS = pa.schema(
    [
        *OBJECTS,
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("marker", pa.string()),
        pa.field("tried_before", pa.bool_(), nullable=False),
        pa.field("at_ms", pa.int64(), nullable=False),
    ]
)
"""The object as it was planned; ``outcome`` (``Outcome``) and why; ``marker``: the delete marker that hides it, where the store
keeps versions. ``tried_before``: an attempt that was interrupted may have deleted it without a result: then ``gone``
means most likely that it did. ``at_ms``: Unix ms."""


class Result(NamedTuple):
    """A row of ``RESULTS``."""

    name: str
    size: int
    etag: str
    last_modified_ms: int
    version_id: str | None
    outcome: str
    detail: str
    marker: str | None
    tried_before: bool
    at_ms: int

    @property
    def undoable(self) -> bool:
        """Whether this deletion hid the object behind a marker."""
        ours = self.outcome == Outcome.DELETED or (self.outcome == Outcome.GONE and self.tried_before)
        return ours and self.marker is not None


class FileProgress(NamedTuple):
    """How far executions have come with one file of a plan."""

    results: tuple[str, ...]
    """Names of files of ``RESULTS``."""
    begun_ms: int | None
    """When the first attempt noted that it begins to delete; None where none did. By the clock of the artefact store, rounded
    down to the second or finer."""


def deletion_folder(plan_hash: str) -> str:
    """The folder of all that was done with a plan, below the store's artefacts."""
    return f"deletions/{plan_hash}"


def progress_of(artifacts: ObjectStore, plan_hash: str) -> defaultdict[int, FileProgress]:
    """How far the plan's executions have come, by the numbers of its files."""
    found: defaultdict[int, FileProgress] = defaultdict(lambda: FileProgress((), None))
    for info in artifacts.list(f"{deletion_folder(plan_hash)}/"):
        kind, _, rest = info.name.rpartition("/")[2].partition("-")
        if kind not in ("results", "begun"):
            continue
        number, noted_ms = int(rest.partition("-")[0]), epoch_ms(info.last_modified)
        known = found[number]
        if kind == "results":
            found[number] = known._replace(results=(*known.results, info.name))
        elif known.begun_ms is None or noted_ms < known.begun_ms:
            found[number] = known._replace(begun_ms=noted_ms)
    return found


def epoch_ms(moment: datetime) -> int:
    """*moment* as Unix ms."""
    return int(moment.timestamp() * 1000)


def note_begun(artifacts: ObjectStore, folder: str, number: int) -> None:
    """Note below *folder* that objects of the plan's file *number* may be deleted from now on."""
    artifacts.put_once(f"{folder}/begun-{number:05d}-{uuid.uuid4().hex}.json", canonical.encode({"file": number}))


def write_results(artifacts: ObjectStore, folder: str, number: int, results: list[Result]) -> str:
    """Put *results* of the plan's file *number* below *folder*; the file's name."""
    columns = zip(*results, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RESULTS, strict=True)]
    buffer = BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=RESULTS), buffer, compression="zstd")
    name = f"{folder}/results-{number:05d}-{uuid.uuid4().hex}.parquet"
    artifacts.put_once(name, buffer.getvalue())
    return name


def read_results(artifacts: ObjectStore, names: Iterable[str]) -> dict[str, Result]:
    """The result of each object in the files *names*, which are of one file of the plan.

    An attempt that lost its lease unknowing may have had a result for an object beside another: the one that deleted it counts,
    else the first.
    """
    tables = [pq.read_table(pa.BufferReader(artifacts.get(name))).cast(RESULTS) for name in names]
    rows = [Result(**row) for table in tables for row in table.to_pylist()]
    found: dict[str, Result] = {}
    for result in sorted(rows, key=lambda row: (row.outcome != Outcome.DELETED, row.at_ms)):
        found.setdefault(result.name, result)
    return found


def all_results(artifacts: ObjectStore, plan_hash: str) -> Iterator[dict[str, Result]]:
    """The results of the whole plan, by the plan's files, in order; memory holds one of them."""
    for _number, progress in sorted(progress_of(artifacts, plan_hash).items()):
        if progress.results:
            yield read_results(artifacts, progress.results)


def result_of(planned: dict[str, Any], deletion: Deletion | str, *, tried_before: bool, at_ms: int) -> Result:
    """The result of the object *planned*, a row of ``deletion_plan.PLANNED``. *deletion*: the request, or why none was made."""
    outcome = (
        (Outcome.WITHHELD, deletion, None)
        if isinstance(deletion, str)
        else (Outcome(deletion.outcome.value), deletion.detail, deletion.marker)
    )
    return Result._make((*(planned[name] for name in OBJECTS.names), *outcome, tried_before, at_ms))
