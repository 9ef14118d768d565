"""Finds, opens and reads a complete changelog."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_replay.changelog.files import index as changelog_index
from ticdc_replay.changelog.files.index import ChangelogIndex, DataFile, TableVersion
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.changelog.files.parts import batch_rows, rows_of
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.storage.base import ObjectStore


class TableRows(NamedTuple):
    """Some rows of one version of a table; ``rows`` has the columns that docs/architecture.md lists."""

    version: TableVersion
    rows: pa.RecordBatch


def complete_changelogs(store: ObjectStore) -> set[str]:
    """The run hashes of all changelogs with an index in the pipeline's artefacts, recorded or not. Lists all their files."""
    names = (entry.name.split("/") for entry in store.list("runs/"))
    return {parts[1] for parts in names if len(parts) == 3 and parts[2] == INDEX}


def read_index(store: ObjectStore, run_hash: str) -> ChangelogIndex:
    """The index of the changelog of *run_hash* in the pipeline's artefacts. Raises ArtifactNotFoundError without one."""
    return changelog_index.decode(store.get(f"{changelog_root(run_hash)}/{INDEX}"))


def read_rows(store: ObjectStore, index: ChangelogIndex, tables: Sequence[str] | None = None) -> Iterator[TableRows]:
    """The rows of the changelog of *index*, in batches of up to about 64 MiB; *store* holds the pipeline's artefacts.

    *tables* are full names, ``schema.table``; without them all tables are read. Each row version comes once, in no particular
    order. Reads changelogs whose rows are in files of others (``ChangelogIndex.derived``), too. Raises ArtifactNotFoundError if a
    file is missing.
    """
    filesystem, base = store.arrow_filesystem()
    for version in index.tables:
        if tables is not None and str(version.schema.name) not in tables:
            continue
        for file in version.files:
            path = f"{base}/{file_name(index, file)}"
            try:
                with pq.ParquetFile(path, filesystem=filesystem) as opened:
                    for rows in rows_of(opened, file.only, rows=batch_rows(opened.metadata)):
                        yield TableRows(version, rows)
            except FileNotFoundError:
                raise ArtifactNotFoundError(
                    f"{path}, a file of changelog {index.run_hash}, is gone; decode the window again"
                ) from None


def file_name(index: ChangelogIndex, file: DataFile) -> str:
    """The name of a data file of *index*, relative to the pipeline's artefacts."""
    return f"{changelog_root(file.run or index.run_hash)}/{file.name}"
