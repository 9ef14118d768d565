"""Maintains the lake tables of one target: compacts files and tombstones, and removes what nothing needs.

Each statement is one commit, which gives way to a load's, and a load repeats a MERGE that a compaction came before. So
no lease is held, but for a format that can't exclude commits of two drivers at once.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pkgutil import resolve_name
from typing import cast
from uuid import uuid4

import msgspec

from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError, PermanentError, TicdcReplayError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import MaintainJob
from ticdc_replay.targets.base import Execute, StoreAddress
from ticdc_replay.targets.lake.dialect import lake_dialect
from ticdc_replay.targets.lake.document_store import DocumentStore
from ticdc_replay.targets.lake.documents import TableDocument, TombstoneFile, state_name
from ticdc_replay.targets.lake.errors import NOT_FOUND, translate
from ticdc_replay.targets.lake.ledger import LakeLedger
from ticdc_replay.targets.lake.mirror import format_of
from ticdc_replay.targets.lake.section import LakeSection
from ticdc_replay.targets.lake.stage import DELETES, STAGING
from ticdc_replay.targets.lake.table_format import INCARNATION, LOAD, RUN, WINDOW, load_name
from ticdc_replay.targets.lake.tables import properties_of
from ticdc_replay.targets.lake.tombstones import CompactTask, compact
from ticdc_replay.targets.lake.upkeep import MaintainedTable, MaintenanceReport, TableUpkeep
from ticdc_replay.targets.mirror.beside import SIDE_SCHEMA
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.sql import Sql, SqlError

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""How often a compaction is tried because a load came first."""
TOMBSTONE_FILES = 3
"""A table with more files of deletes gets them compacted."""
_TOMBSTONES = 2_000_000
"""Deletes in files that are compacted together, at most: a worker holds them in memory."""
_REPLACED = f"{DELETES}/replaced-"
"""Prefix of ``Replaced`` documents."""


class Replaced(msgspec.Struct, frozen=True):
    """Files of deletes that a compaction replaced. A load that read the older list may still read them: they go once this
    document is ``orphan_days`` old."""

    names: tuple[str, ...]


def maintain(job: MaintainJob, connections: Connections, execute: Execute, sql: Sql) -> MaintenanceReport:
    """Maintain the mirrors that *job* selects; *execute* runs tasks, *sql* is Spark's. Safe to repeat, also beside loads.

    An error at one table is in its report, and the others go on. Raises ConfigError if the target is not of lake tables,
    and what the ledger's store raises.
    """
    section = read_section(job.target)
    if not isinstance(section, LakeSection):
        raise ConfigError(f"target {section.name} has no lake tables: {section.description} maintains itself")
    return _Maintenance(job, section, connections, execute, sql).run()


class _Maintenance:
    """One job."""

    def __init__(
        self, job: MaintainJob, section: LakeSection, connections: Connections, execute: Execute, sql: Sql
    ) -> None:
        self._job = job
        self._config = section
        self._execute = execute
        self._sql = sql
        self._secrets = section.secret_settings(connections.get(section.connection))
        self._address = StoreAddress(section.ledger, connections.get(section.ledger_connection))
        self._store = self._address.open()
        self._ledger = LakeLedger(self._store)
        self._format = format_of(section)
        self._upkeep = cast(TableUpkeep, resolve_name(section.table_upkeep)(sql, self._format))
        self._now = datetime.now(UTC)

    def run(self) -> MaintenanceReport:
        began = time.monotonic()
        self._sql.set(self._format.catalog_settings(self._secrets), self._secrets)
        wanted = TablePatterns(self._job.tables)
        tables = tuple(
            self._maintained(source, target)
            for source, target, _ in self._ledger.mirrors()
            if wanted.wants(source.schema, source.table) and not target.schema.startswith(SIDE_SCHEMA)
        )
        files = self._dead_files()
        for name in [] if self._job.dry_run else files:
            self._store.delete(name)
        return MaintenanceReport(
            pipeline=self._job.pipeline,
            target=self._config.name,
            place=self._config.place,
            dry_run=self._job.dry_run,
            began_at_ms=round(self._now.timestamp() * 1000),
            took_ms=round(1000 * (time.monotonic() - began)),
            tables=tables,
            ledger_files=len(files),
        )

    def _maintained(self, source: TableName, target: Relation) -> MaintainedTable:
        try:
            return _TableMaintenance(self, source, target).run()
        except SqlError as error:
            failure = translate(error, self._format, f"maintain {target}")
        except TicdcReplayError as error:
            failure = error
        finally:
            self._ledger.discard()
        log.error("%s: %s", target, failure)
        return MaintainedTable(
            table=source,
            destination=str(target),
            outcome="failed",
            error=str(failure),
            is_permanent=isinstance(failure, PermanentError),
        )

    def _dead_files(self) -> list[str]:
        """The files of the ledger's folder that nothing lists any more, and no load can still read or list."""
        before = self._store.now() - timedelta(days=self._config.maintenance.orphan_days)
        old: list[str] = []
        held: set[str] = set()
        for folder in (STAGING, DELETES):
            for info in self._store.list(f"{folder}/"):
                if info.last_modified < before:
                    old.append(info.name)
                elif info.name.startswith(_REPLACED):
                    held.update(msgspec.json.decode(self._store.get(info.name), type=Replaced).names)
        # After the listing: a file that is listed meanwhile is younger.
        self._ledger.discard()
        for _, target, _ in self._ledger.mirrors():
            document = self.document_of(target)
            held.update(file.name for file in (document.tombstone_files if document is not None else ()))
        return [name for name in old if name not in held]

    def document_of(self, target: Relation) -> TableDocument | None:
        return DocumentStore(self._store).read_now(state_name(target), TableDocument)


def has_no_report(ledger: LakeLedger, target: Relation, mark: Mapping[str, str]) -> bool:
    """Whether *mark*, of a commit of *target*, is of a load that broke before *ledger* had its report: a repeat of the load
    looks for the commit. Nobody repeats it once the window has been loaded by another run."""
    if not mark.keys() >= {LOAD, RUN, WINDOW}:
        return False
    window = msgspec.convert(json.loads(mark[WINDOW]), Window)
    if mark[LOAD] != load_name(mark[RUN], window, ledger.incarnation_of(target) or ""):
        return False  # of an older mirror of the name, or of a reload: nobody looks for it
    return ledger.report_of(target, window, mark[RUN]) is None and not ledger.runs_of(target, window)


class _TableMaintenance:
    """One table of a job."""

    def __init__(self, job: _Maintenance, source: TableName, target: Relation) -> None:
        self._of = job
        self._source = source
        self._target = target
        self._name = job._format.name_of(target)

    def run(self) -> MaintainedTable:
        job, upkeep = self._of, self._of._upkeep
        dry_run = job._job.dry_run
        document = job.document_of(self._target)
        if document is not None and document.swap is not None:
            log.warning("%s: nothing is done, as a rebuilt mirror is about to take its place", self._target)
            return self._report(outcome="swapping")
        incarnation = job._ledger.incarnation_of(self._target)
        found = self._incarnation()
        if found is None or found != incarnation:
            outcome = "missing" if found is None else "not_ours"
            log.warning("%s: nothing is done, as the table is %s", self._target, outcome)
            return self._report(outcome=outcome)
        attempt = f"maintenance {uuid4().hex}"
        with job._ledger.hold(self._target, attempt) if upkeep.excludes_loads and not dry_run else nullcontext():
            return self._maintained(dry_run=dry_run)

    def _maintained(self, *, dry_run: bool) -> MaintainedTable:
        job, upkeep, section = self._of, self._of._upkeep, self._of._config
        before = upkeep.size(self._target)
        conflicts, failure = (0, None) if dry_run else self._compact()
        days = section.maintenance
        removed = upkeep.remove(
            self._target,
            job._now - timedelta(days=days.keep_days),
            job._now - timedelta(days=days.orphan_days),
            partial(has_no_report, job._ledger, self._target),
            dry_run=dry_run,
        )
        for load in removed.kept:
            log.warning("%s: the snapshot of load %s stays: load its window again, which finds it", self._target, load)
        old = job._ledger.tombstones_of(self._target)
        if not dry_run:
            self._compact_tombstones(old)
            job._ledger.discard()
        if failure is not None and not job._format.is_conflict(str(failure)):
            raise failure  # only now: what must be removed does not wait for files that can't be written again
        new = job._ledger.tombstones_of(self._target)
        return self._report(
            outcome="dry_run" if dry_run else "maintained",
            before=before,
            after=upkeep.size(self._target),
            removed=removed,
            tombstone_files=len(old),
            tombstone_files_after=len(new),
            tombstones=sum(file.rows for file in old),
            tombstones_after=sum(file.rows for file in new),
            conflicts=conflicts,
            is_compacted=not dry_run and failure is None,
        )

    def _report(self, **members: object) -> MaintainedTable:
        return MaintainedTable(table=self._source, destination=str(self._target), **members)  # type: ignore[arg-type]

    def _incarnation(self) -> str | None:
        """What the table says, "" if nothing; None if there is no table."""
        try:
            properties = properties_of(self._of._sql, self._name)
        except SqlError as error:
            if error.condition in NOT_FOUND:
                return None
            raise
        return None if self._of._format.is_dropped(properties) else properties.get(INCARNATION, "")

    def _compact(self) -> tuple[int, SqlError | None]:
        """Compact the table; the conflicts with loads, and why it was not done at last."""
        for conflicts in range(1, ATTEMPTS + 1):
            try:
                self._of._upkeep.compact(self._target)
                return conflicts - 1, None
            except SqlError as error:
                failure = error
            if not self._of._format.is_conflict(str(failure)):
                log.warning("%s: could not be compacted: %s", self._target, failure)
                return conflicts - 1, failure
            log.warning("%s: a load came before the compaction", self._target)
        log.warning("%s: left as it is, as loads came first %d times; the next run tries again", self._target, ATTEMPTS)
        return ATTEMPTS, failure

    def _compact_tombstones(self, files: tuple[TombstoneFile, ...]) -> None:
        """Put the small ones of *files*, those that count, together; unlist those that count no more."""
        job, document = self._of, self._of.document_of(self._target)
        if document is None:
            return
        chosen = list(_small(files)) if len(files) > TOMBSTONE_FILES else []
        dead = {file.name for file in document.tombstone_files} - {file.name for file in document.live_tombstones}
        replaced = {*dead, *(file.name for file in chosen)}
        made: list[TombstoneFile | None] = []
        if len(chosen) > 1:
            types = {name: type_name for name, type_name, _ in job._sql.columns(self._name)}
            task = CompactTask(
                store=job._address,
                names=tuple(file.name for file in chosen),
                into=f"{DELETES}/compacted-{uuid4().hex}.parquet",
                types=types,
                floor_ts=document.floor_ts if document.topic_id is None else 0,
                dialect=lake_dialect(job._config.database),
            )
            made = job._execute(compact, [task], f"compact the deletes of {self._target}")
        else:
            replaced = dead
        if replaced:
            note = canonical.encode(Replaced(tuple(sorted(replaced))))
            job._store.put(f"{_REPLACED}{uuid4().hex}.json", note)
            job._ledger.replace_tombstones(self._target, replaced, [file for file in made if file is not None])


def _small(files: tuple[TombstoneFile, ...]) -> Iterator[TombstoneFile]:
    """The smallest of *files*, as many as a worker can hold."""
    left = _TOMBSTONES
    for file in sorted(files, key=lambda each: each.rows):
        left -= file.rows
        if left < 0:
            return
        yield file
