"""What every worker does that stages a history, whatever the database: changelog files → batches for staging tables, and the rows
that the target can't hold into quarantine."""

import json
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.parts import batch_rows, rows_of
from ticdc_replay.domain.errors import UnrepresentableValueError
from ticdc_replay.domain.progress import report_done
from ticdc_replay.targets.files import file_errors
from ticdc_replay.targets.history.rows import OP, PLACE_SOURCES, READ, VersionFile, require_whole, side_of
from ticdc_replay.targets.history.staging import OWN_TYPES, VersionPiece, VersionTask
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.staged_rows import PUT, VERSION, not_json
from ticdc_replay.targets.mirror.stager import Place, way_on
from ticdc_replay.targets.mirror.staging import StagedPiece
from ticdc_replay.targets.refused_rows import Refused, ValueQuarantine, describe


class VersionStager:
    """The rows of one task, once."""

    def __init__(self, task: VersionTask, dialect: Dialect, *, check_json: bool = False) -> None:
        self._dialect = dialect
        self._check_json = check_json
        self._filesystem, self._root = task.artifacts.open().arrow_filesystem()
        name = task.quarantine
        self._quarantine = None if name is None else ValueQuarantine(self._filesystem, self._root, name)
        self._files = 0
        self._staged = 0
        self._quarantined = 0

    def begin(self) -> None:
        """Begin to count the rows of a piece."""
        self._staged, self._quarantined = 0, 0

    def counted(self, piece: VersionPiece) -> StagedPiece:
        """What became of the rows of *piece*."""
        return StagedPiece(table=piece.files[0].table, staged=self._staged, quarantined=self._quarantined)

    def close(self) -> str | None:
        """Write the quarantine; its name below the artefacts, None where no row was set aside."""
        return self._quarantine.close() if self._quarantine is not None else None

    def layout(self, piece: VersionPiece) -> pa.Schema:
        """The layout of what ``batches`` gives."""
        return _layout(piece.columns, self._dialect)

    def looked_up(self, piece: VersionPiece) -> list[str]:
        """The columns that statements find staged rows by."""
        return [VERSION]

    def batches(self, piece: VersionPiece, place: Place | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of *piece*; where *place* is given, what it has placed.

        Raises UnrepresentableValueError for a value that the target can't hold, if policy stops.
        """
        for file in piece.files:
            with file_errors(f"read {file.name}"):
                yield from self._file_batches(file, place)
            self._files += 1
            report_done(self._files)

    def _file_batches(self, file: VersionFile, place: Place | None) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(f"{self._root}/{file.name}", filesystem=self._filesystem) as opened:
            for batch in rows_of(opened, file.only, READ, batch_rows(opened.metadata)):
                rows, refused = stage_versions(batch, file, self._dialect, check_json=self._check_json)
                wide = [] if place is None else place(rows)
                if wide:
                    out = {entry.position for entry in refused}
                    kept = [at for at in range(batch.num_rows) if at not in out]
                    refused += [Refused(kept[each.position], each.column, each.reason) for each in wide]
                if refused:
                    self._set_aside(file, batch, refused)
                self._staged += rows.num_rows - len(wide)
                yield rows

    def _set_aside(self, file: VersionFile, batch: pa.RecordBatch, refused: list[Refused]) -> None:
        if self._quarantine is None:
            raise UnrepresentableValueError(
                f"{describe(file.table, file.handle_key, batch, refused)}\n{way_on(self._dialect)}"
            )
        self._quarantined += len({entry.position for entry in refused})
        self._quarantine.add(file.table, file.handle_key, file.name, batch, refused)


def stage_versions(
    batch: pa.RecordBatch, file: VersionFile, dialect: Dialect, *, check_json: bool
) -> tuple[pa.RecordBatch, list[Refused]]:
    """*batch*, rows of *file*, in the types of its staging table, and what had to be left out.

    Of a delete only the columns that say which row it ended must have a value that the target holds: others are NULL, and
    listed as absent. Raises PermanentError for a put that lacks columns.
    """
    require_whole(batch, file)
    gone = pc.equal(batch[OP], "delete")
    is_gone = gone.to_pylist()
    identity = set(file.identity)
    known = {source for source, _, _ in file.columns}
    refused: list[Refused] = []
    lacking: defaultdict[int, set[str]] = defaultdict(set)

    def refuse(at: int, source: str, reason: str) -> None:
        if is_gone[at] and source not in identity:
            lacking[at].add(source)
        else:
            refused.append(Refused(at, source, reason))

    cells: dict[str, pa.Array] = {}
    for source, _, type_name in file.columns:
        after, before = pc.struct_field(batch["after"], [source]), pc.struct_field(batch["before"], [source])
        cells[source] = array = pc.if_else(gone, before, after)
        for check, reason in dialect.checks_of(type_name, array.type):
            for at in pc.indices_nonzero(check(array)).to_pylist():
                refuse(at, source, reason)
        if check_json and type_name == "json":
            for at in not_json(array):
                refuse(at, source, "text that is not JSON")
    types = {source: type_name for source, _, type_name in file.columns}
    texts: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for at, exact in enumerate(batch["_exact"].to_pylist() if batch["_exact"].null_count < batch.num_rows else ()):
        for name, text in exact or ():
            side, _, source = name.partition(".")
            if f"{side}." != side_of(batch, at) or source not in known:
                continue
            if dialect.takes_exact(types[source], text):
                texts[source][at] = text.decode()
            else:
                refuse(at, source, f"the value {text.decode(errors='backslashreplace')[:200]!r}")
    nulls: defaultdict[str, set[int]] = defaultdict(set)
    for at, sources in lacking.items():
        for source in sources:
            nulls[source].add(at)
    for at, names in enumerate(batch["_absent"].to_pylist() if batch["_absent"].null_count < batch.num_rows else ()):
        side = side_of(batch, at)
        lacking[at] |= {name.removeprefix(side) for name in names or () if name.startswith(side)} & known
    out = {entry.position for entry in refused}
    kept = pa.array([at not in out for at in range(batch.num_rows)])
    arrays = []
    for source, _, type_name in file.columns:
        array = cells[source]
        if nulls[source]:
            array = pc.if_else(pa.array(np.isin(np.arange(len(array)), list(nulls[source]))), None, array)
        staged = dialect.staged_cells(array.filter(kept) if out else array, type_name)
        arrays.append(_with_texts(staged, texts[source], out))
    absent = [
        json.dumps(sorted(lacking[at]), ensure_ascii=False) if lacking.get(at) else None for at in range(len(gone))
    ]
    own = [batch[OP], *(batch[name] for name in PLACE_SOURCES), pa.array(absent, pa.string())]
    for array, type_ in zip(own, OWN_TYPES.values(), strict=True):
        arrays.append(dialect.staged_cells(array.filter(kept) if out else array, dialect.type_of(type_)))
    last = [batch["_commit_ts"], pc.invert(gone)]
    arrays += [array.filter(kept) for array in last] if out else last
    return pa.RecordBatch.from_arrays(arrays, schema=_layout(file.columns, dialect)), refused


def _with_texts(array: pa.Array, texts: dict[int, str], out: set[int]) -> pa.Array:
    """*array*, which lacks the positions *out* of its batch, with *texts* at theirs."""
    if not texts:
        return array
    positions = [at for at in range(len(array) + len(out)) if at not in out]
    return pc.coalesce(pa.array([texts.get(at) for at in positions], array.type), array)


def _layout(columns: tuple[tuple[str, str, str], ...], dialect: Dialect) -> pa.Schema:
    fields = [pa.field(staged, dialect.staged_arrow_type(type_name)) for _, staged, type_name in columns]
    fields += [pa.field(name, dialect.staged_arrow_type(dialect.type_of(type_))) for name, type_ in OWN_TYPES.items()]
    return pa.schema([*fields, pa.field(VERSION, pa.int64()), pa.field(PUT, pa.bool_())])
