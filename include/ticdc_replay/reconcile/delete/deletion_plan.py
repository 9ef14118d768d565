"""A deletion plan: which objects may go, why, and what they were when that was decided. Immutable; its hash is its name.

Below a store's artefacts, ``plans/<plan_hash>/plan.json`` names the plan's Parquet files with their digests, and ``<plan_hash>``
is the digest of that file: nobody can change an object of a plan, add one, or lengthen a list without making another plan of it.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import pairwise

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay import __version__
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactCorruptError
from ticdc_replay.large_messages.locations import object_name
from ticdc_replay.reconcile.judge.records import CLASSIFIED_OBJECTS, OBJECTS
from ticdc_replay.reconcile.judge.rules import DELETABLE, Evidence, ReferenceClass
from ticdc_replay.storage.base import ObjectStore

PLANNED = pa.schema([*OBJECTS, *(CLASSIFIED_OBJECTS.field(name) for name in ("class", "reason", "schema", "table"))])
"""An object of a plan, as the inventory had it, with its class and the reason as a sentence."""

FILE_ROWS = 2_000
"""Objects of one file of a plan. A file is also a step of the execution: between two of them everything is checked again."""

_FOLD_ROWS = 200_000
_READ_ROWS = 20_000
_THREADS = 8


class PlannedFile(msgspec.Struct, frozen=True, order=True):
    """A file of ``PLANNED``, sorted by name. ``name`` is relative to the plan's folder; ``bytes`` is the sum of ``size``."""

    name: str
    rows: int
    bytes: int
    sha256: str


class DeletionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What may be deleted once it is released and ``due_at_ms`` is over. Times are Unix ms by the clock of whoever made it."""

    format: int = 1
    library_version: str
    store: str
    uri: str
    reconciliation_id: str
    """The reconciliation that found the objects."""
    bounds_ms: int
    """When that reconciliation read the offsets of Kafka."""
    made_at_ms: int
    due_at_ms: int
    objects: int
    bytes: int
    files: tuple[PlannedFile, ...]
    """In order of the objects' names: every object is in one of them, once."""

    @property
    def hash(self) -> str:
        """The SHA-256 of its canonical JSON; computed at each call."""
        return canonical.hash_of(self)

    def file_names(self) -> tuple[str, ...]:
        """The files (``PLANNED``, which begins with ``records.OBJECTS``) below the store's artefacts."""
        folder = plan_folder(self.hash)
        return tuple(f"{folder}/{file.name}" for file in self.files)


def plan_folder(plan_hash: str) -> str:
    """The folder of a plan, below the store's artefacts."""
    return f"plans/{plan_hash}"


def plan_name(plan_hash: str) -> str:
    """The name of a plan, below the store's artefacts."""
    return f"{plan_folder(plan_hash)}/plan.json"


def oldest_deletable(
    artifacts: ObjectStore, files: Sequence[str], evidence: Evidence, most: int, not_wanted: pa.Array
) -> pa.Table:
    """At most *most* objects (``PLANNED``) that a reconciliation called deletable, the oldest, without the names *not_wanted*.

    *files* (``records.CLASSIFIED_OBJECTS``) are those of the reconciliation below *artifacts*, *evidence* is what it knew. Memory
    grows with *most* and *not_wanted*, not with the store. Raises ArtifactCorruptError where a file calls an object deletable
    that by its own columns is not.
    """
    kept, rows = PLANNED.empty_table(), 0
    waiting: list[pa.Table] = []

    def fold() -> pa.Table:
        table = pa.concat_tables([kept, *waiting])
        table = table.filter(pc.invert(pc.is_in(table["name"], not_wanted)))
        return table.sort_by([("last_modified_ms", "ascending"), ("name", "ascending")]).slice(0, most).combine_chunks()

    for table in _deletable(artifacts, files, evidence):
        waiting.append(table)
        rows += len(table)
        if rows >= max(most, _FOLD_ROWS):
            kept, waiting, rows = fold(), [], 0
    return fold()


def last_copies(artifacts: ObjectStore, files: Sequence[str]) -> pa.Array:
    """Names of objects that hold a row whose own object is missing although its message can still be read.

    Perhaps no message refers to such an object any more, but the row is still available there. *files*
    (``records.CLASSIFIED_REFERENCES``) are those of a reconciliation below *artifacts*.
    """
    found = [pa.array([], pa.string())]
    columns = ["class", "protecting", "other_object"]
    for batch in _batches(artifacts, files, columns):
        lost = pc.and_(pc.equal(batch["class"], ReferenceClass.MISSING.value), batch["protecting"])
        copies = batch.filter(lost)["other_object"].drop_null()
        found.append(copies.cast(pa.string()))
    return pc.unique(pa.concat_arrays(found))


def names_in(artifacts: ObjectStore, plans: Sequence[DeletionPlan]) -> pa.Array:
    """The names of all objects in *plans*."""
    found = [pa.array([], pa.string())]
    found += [batch["name"] for plan in plans for batch in _batches(artifacts, plan.file_names(), ["name"])]
    return pa.concat_arrays(found)


def write_plan(
    artifacts: ObjectStore,
    objects: pa.Table,
    *,
    store: str,
    uri: str,
    reconciliation_id: str,
    bounds_ms: int,
    made_at_ms: int,
    due_at_ms: int,
) -> DeletionPlan:
    """Put a plan of *objects* (``PLANNED``) into *artifacts*: its files, and last the plan itself; see ``DeletionPlan``.

    The same arguments give the same plan; a repeat does no harm. Raises ArtifactCorruptError where an object is there twice.
    """
    table = objects.select(PLANNED.names).cast(PLANNED).sort_by("name")
    doubled = [left for left, right in pairwise(table["name"].to_pylist()) if left == right]
    if doubled:
        raise ArtifactCorruptError(f"the inventory has {doubled[0]} twice, so it is not known what that object is")
    contents, files = [], []
    for number, start in enumerate(range(0, len(table), FILE_ROWS)):
        part = table.slice(start, FILE_ROWS)
        buffer = BytesIO()
        pq.write_table(part, buffer, compression="zstd")
        content = buffer.getvalue()
        contents.append(content)
        size = pc.sum(part["size"]).as_py()
        files.append(PlannedFile(f"objects-{number:05d}.parquet", len(part), size, canonical.digest(content)))
    plan = DeletionPlan(
        library_version=__version__,
        store=store,
        uri=uri,
        reconciliation_id=reconciliation_id,
        bounds_ms=bounds_ms,
        made_at_ms=made_at_ms,
        due_at_ms=due_at_ms,
        objects=sum(file.rows for file in files),
        bytes=sum(file.bytes for file in files),
        files=tuple(files),
    )
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="write-plan") as pool:
        list(pool.map(artifacts.put_once, plan.file_names(), contents))
    artifacts.put_once(plan_name(plan.hash), canonical.encode(plan))
    return plan


def read_plan(artifacts: ObjectStore, plan_hash: str) -> DeletionPlan:
    """The plan *plan_hash*. Raises ArtifactNotFoundError, and ArtifactCorruptError where it is not the one of that hash."""
    name = plan_name(plan_hash)
    content = artifacts.get(name)
    if canonical.digest(content) != plan_hash:
        raise ArtifactCorruptError(
            f"{artifacts.uri(name)} was changed: its SHA-256 is {canonical.digest(content)}. Nothing of it is deleted; reject it"
        )
    try:
        plan = msgspec.json.decode(content, type=DeletionPlan)
    except msgspec.DecodeError as error:
        raise ArtifactCorruptError(f"{artifacts.uri(name)} is not a deletion plan of this version: {error}") from None
    if plan.hash != plan_hash:
        raise ArtifactCorruptError(f"{artifacts.uri(name)} was written by another version ({plan.library_version})")
    return plan


def read_planned(artifacts: ObjectStore, plan: DeletionPlan, number: int) -> pa.Table:
    """The objects in file *number* of *plan*. Raises ArtifactCorruptError where it differs from the plan."""
    file, name = plan.files[number], plan.file_names()[number]
    content = artifacts.get(name)
    if canonical.digest(content) != file.sha256:
        raise ArtifactCorruptError(
            f"{artifacts.uri(name)} was changed: its SHA-256 is {canonical.digest(content)}, {file.sha256} in the plan. Nothing "
            f"of it is deleted; reject the plan"
        )
    table = pq.read_table(pa.BufferReader(content)).cast(PLANNED)
    hostile = [found for found in table["name"].to_pylist() if not found or object_name(found) != found]
    if hostile or len(table) != file.rows:
        raise ArtifactCorruptError(
            f"{artifacts.uri(name)} does not hold {file.rows} claim-check objects: {hostile[:3]}"
        )
    return table


def _deletable(artifacts: ObjectStore, files: Sequence[str], evidence: Evidence) -> Iterator[pa.Table]:
    columns = [*PLANNED.names, "protecting", "deletable"]
    for batch in _batches(artifacts, files, columns):
        table = pa.Table.from_batches([batch]).filter(batch["deletable"])
        if not len(table):
            continue
        sound = pc.and_(pc.is_in(table["class"], pa.array(DELETABLE, pa.string())), pc.equal(table["protecting"], 0))
        sound = pc.and_(sound, pc.less_equal(table["last_modified_ms"], evidence.deletable_before_ms))
        wrong = table.filter(pc.invert(sound))["name"].to_pylist()
        wrong += [found for found in table["name"].to_pylist() if not found or object_name(found) != found]
        if wrong or not evidence.complete:
            raise ArtifactCorruptError(
                f"the reconciliation calls {len(wrong)} objects deletable that are not by its own rules, such as {wrong[:3]!r}: "
                f"its files were changed, or this is a defect of the program; nothing is planned"
            )
        yield table.select(PLANNED.names).cast(PLANNED)


def _batches(artifacts: ObjectStore, files: Sequence[str], columns: list[str]) -> Iterator[pa.RecordBatch]:
    filesystem, root = artifacts.arrow_filesystem()
    for name in files:
        with pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) as file:
            for batch in file.iter_batches(_READ_ROWS, columns=columns):
                yield batch.select(columns)
