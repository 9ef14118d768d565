"""The driver of a seed: from a dump to the changelog that mirrors begin with."""

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple
from uuid import uuid4

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.version_files import VersionFile
from ticdc_replay.decode.plan.changelog_store import ChangelogStore
from ticdc_replay.decode.plan.tasks import Attempt
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.drivers.runner import TaskRunner
from ticdc_replay.dumps.assembly import assemble
from ticdc_replay.dumps.survey import Dump, DumpedTable
from ticdc_replay.dumps.table_rows import FileTask, Reading, read_file
from ticdc_replay.dumps.tables import definition_of, schema_of
from ticdc_replay.jobspec import SeedJob
from ticdc_replay.schemas.resolve import ResolvedSchema
from ticdc_replay.storage import open_store

log = logging.getLogger(__name__)


def run_seed(runner: TaskRunner, job: SeedJob, connections: Connections) -> ChangelogIndex:
    """Write the changelog of *job*, or return the existing one. A changelog with missing files is written again.

    Raises what ``dumps.table_rows.read_file`` raises, and ArtifactCorruptError if the manifest or the list of files was edited.
    """
    store = ChangelogStore.open(job, connections)
    found = store.index()
    if found is not None and not store.lost(found):
        log.info("changelog %s is there already: %d rows", job.run_hash, found.report.events.written)
        return found
    attempt = Attempt(uuid4().hex[:8])
    seed = _Seed(runner, job, connections, store, attempt)
    if found is not None:
        log.warning("files of changelog %s are gone; the dump is read again", job.run_hash)
        store.discard(found)
    return store.complete(attempt, seed.run)


class _Seed(NamedTuple):
    """One attempt at a changelog: ``run`` writes its files and gives their index."""

    runner: TaskRunner
    job: SeedJob
    connections: Connections
    store: ChangelogStore
    attempt: Attempt

    def run(self) -> ChangelogIndex:
        """The index, with the time that it took."""
        began = time.monotonic()
        job = self.job
        dump = self.store.dump(self.store.manifest())
        wanted = TablePatterns(job.tables)
        tables: list[DumpedTable] = []
        schemas: list[ResolvedSchema] = []
        tasks: list[FileTask] = []
        for table in dump.tables:
            definition = definition_of(table, job.window.from_ts, job.dispatch)
            if wanted.wants(definition.name.schema, definition.name.table):
                resolved = schema_of(table, definition, job.dispatch)
                with_stored = tuple(column.name for column in definition.columns if column.generated != "virtual")
                columns = tuple(column.name for column in definition.columns if column.generated is None)
                tables.append(table)
                schemas.append(resolved)
                for file in table.files:
                    assert table.format is not None, "a table with files has a format"
                    tasks.append(
                        FileTask(
                            number=len(tasks),
                            table=msgspec.structs.replace(table, files=()),
                            format=table.format,
                            file=file,
                            resolved=resolved,
                            columns=columns,
                            with_stored=with_stored,
                        )
                    )
        # The largest files first, so that none is left alone at the end.
        tasks.sort(key=lambda task: (-task.size, task.number))
        work = partial(_read_file, (job, self.connections, self.attempt))
        files = list(chain.from_iterable(self.runner.run(work, tasks, "read dump")))
        return self._index(dump, tables, schemas, files, round(1000 * (time.monotonic() - began)))

    def _content(self, table: DumpedTable) -> str:
        """The digest of what the rows of *table* follow from."""
        job = self.job
        return canonical.hash_of([job.window.from_ts, table, job.dialect, job.zone, job.dispatch])

    def _index(
        self,
        dump: Dump,
        tables: Sequence[DumpedTable],
        schemas: Sequence[ResolvedSchema],
        files: Sequence[VersionFile],
        took_ms: int,
    ) -> ChangelogIndex:
        """The index of *files*, rows of *tables*, which have *schemas*."""
        job = self.job
        contents: defaultdict[str, list[str]] = defaultdict(list)  # routes may lead several tables to one name
        for table, resolved in zip(tables, schemas, strict=True):
            contents[str(resolved.schema.name)].append(self._content(table))
        index = assemble(
            pipeline=job.pipeline,
            run_hash=job.run_hash,
            input_hash=job.input_hash,
            library_version=job.library_version,
            window=job.window,
            base=dump.uri,
            contents={
                name: each[0] if len(each) == 1 else canonical.hash_of(sorted(each)) for name, each in contents.items()
            },
            selection=job.tables,
            schemas=schemas,
            files=files,
        )
        return msgspec.structs.replace(index, took_ms=took_ms)


_OfTasks = tuple[SeedJob, Connections, Attempt]
"""What every task of one seed is given: the job, its connections and the attempt."""


def _read_file(of: _OfTasks, task: FileTask) -> tuple[VersionFile, ...]:
    job, connections, attempt = of
    reading = Reading(
        snapshot_ts=job.window.from_ts,
        dialect=job.dialect,
        zone=job.zone or "UTC",
        stem=attempt.id,
        file_rows=job.file_rows,
    )
    store = open_store(job.dump, connections.get(job.dump_connection))
    return read_file(task, reading, store, *ChangelogStore.open(job, connections).arrow_root())
