"""The history in a lake: what the room ``history`` does, over Spark SQL, leases, and the ledger's documents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from ticdc_replay.changelog.cells.written import WrittenCell
from ticdc_replay.domain.errors import LeaseLostError, TargetMismatchError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import Execute, FoundRow, Load, Loaded, RebuildableTarget, StoreAddress
from ticdc_replay.targets.history.load import Brought, HistoryAttempt, Pending, history_of, refuse_offsets
from ticdc_replay.targets.history.rows import OP, version_files
from ticdc_replay.targets.history.table import HistoryTable
from ticdc_replay.targets.lake.dialect import lake_dialect
from ticdc_replay.targets.lake.history_ledger import HistoryLedger
from ticdc_replay.targets.lake.history_rows import Checked, CheckTask, check
from ticdc_replay.targets.lake.history_table import LakeHistoryTable, Part, column_of, no_views
from ticdc_replay.targets.lake.look_up import how_to_look
from ticdc_replay.targets.lake.mirror import format_of
from ticdc_replay.targets.lake.section import LakeSection
from ticdc_replay.targets.lake.session import LakeSession
from ticdc_replay.targets.lake.stage import StagedFiles
from ticdc_replay.targets.lake.types import is_text
from ticdc_replay.targets.mirror.planning.differences import refuse_others
from ticdc_replay.targets.mirror.planning.tables import Relation

Result = TypeVar("Result")

_TRIES = 3
"""How often a slice is replaced again because the lease was lost in the commit."""


class LakeHistory(RebuildableTarget[LakeSection]):
    """Loads changelogs into histories in Iceberg or Delta tables."""

    def holds(self, pipeline: str, table: TableName) -> bool:
        target = history_of(self.config, lake_dialect(self.config.database), table)
        return self._ledger().state_of(target) is not None

    def require_gone(self, pipeline: str, table: TableName) -> None:
        """A load refuses a table that is still there."""
        self._require_of(pipeline, self._ledger(), table)

    def forget(self, pipeline: str, table: TableName) -> str:
        ledger = self._ledger()
        target = self._require_of(pipeline, ledger, table)
        with ledger.hold(target, f"forget {table}"):
            ledger.forget(target, target)
        return str(target)

    def find_row(self, pipeline: str, table: TableName, key: Mapping[str, WrittenCell]) -> FoundRow:
        """The table takes Spark, which is not started for one row."""
        target, columns = (
            history_of(self.config, lake_dialect(self.config.database), table),
            [self.config.commit_ts_column, OP],
        )
        how = how_to_look(self.config, format_of(self.config).name_of(target), columns, key)
        return FoundRow(where=str(target), keeps="all", not_looked=how)

    def _require_of(self, pipeline: str, ledger: HistoryLedger, table: TableName) -> Relation:
        """The history of *table*, which is of *pipeline*."""
        target = history_of(self.config, lake_dialect(self.config.database), table)
        state = ledger.state_of(target)
        if state is not None:
            refuse_others(target, state, pipeline, self.config.same_upstream_as)
        return target

    def load(self, load: Load, execute: Execute) -> Loaded:
        self._refuse_what_cannot_be(load)
        with self._session(load) as session, session.translated("reach the catalog"):
            session.sql.set(format_of(self.config).catalog_settings(self._secrets), self._secrets)
            return LakeAttempt(self.config, load, session).run(execute)

    def _refuse_what_cannot_be(self, load: Load) -> None:
        refuse_offsets(load)
        if self.config.mode == "scd2" and (
            getattr(self.config, "path", None) is not None or self.config.settings.get("type") == "hadoop"
        ):
            raise no_views(self.config)

    @contextmanager
    def _session(self, load: Load) -> Iterator[LakeSession]:
        session = LakeSession(
            load.sql, format_of(self.config), self._ledger(), StagedFiles(self._address), load.attempt
        )
        try:
            yield session
        finally:
            session.close()

    def _ledger(self) -> HistoryLedger:
        return HistoryLedger(self._address.open())

    @property
    def _address(self) -> StoreAddress:
        return StoreAddress(self.config.ledger, self.connections.get(self.config.ledger_connection))

    @property
    def _secrets(self) -> Mapping[str, str]:
        return self.config.secret_settings(self.connections.get(self.config.connection))


class LakeAttempt(HistoryAttempt[Part]):
    """One attempt to load one window."""

    session: LakeSession

    def __init__(self, config: LakeSection, load: Load, session: LakeSession) -> None:
        assert isinstance(session.ledger, HistoryLedger), "the ledger of a history"
        super().__init__(config, lake_dialect(config.database), load, session, session.ledger)
        self._lake = config
        self._documents = session.ledger

    def note(self) -> None:
        self._documents.flush()

    def refuse(self, each: Pending) -> None:
        """Raise TargetMismatchError for intervals of a key whose values are texts of numbers."""
        if self.config.mode != "scd2":
            return
        for schema in each.schemas:
            for column in schema.columns:
                if column.name in schema.handle_key and is_text(column.type):
                    raise TargetMismatchError(
                        f"{each.table}: the decimal {column.name} of its key is text in {self.config.database}, and one number "
                        "may have several texts: give its digits in the table's definition (definitions) where it has up to 38, "
                        "or load it in mode history"
                    )

    def bring(
        self, pending: Sequence[Pending], left: Sequence[TableName], execute: Execute
    ) -> dict[TableName, Brought[Part]]:
        """Check the rows: they stay in the changelog's files until a statement reads them."""
        load = self.load
        files = [file for each in pending for file in version_files(load, load.index, each.versions, column_of)]
        count = max(1, min(load.parallelism, len(files)))
        shares = [tuple(islice(files, number, None, count)) for number in range(count)]
        tasks = [
            CheckTask(share, f"{load.folder}/quarantine/{number:03d}.parquet" if load.quarantine_values else None)
            for number, share in enumerate(shares)
            if share
        ]
        results: list[Checked] = execute(check, tasks, f"check rows for {self.config.name}") if tasks else []
        left_out = {}
        listed: dict[TableName, set[str]] = {each.table: set() for each in pending}
        for task, result in zip(tasks, results, strict=True):
            for file, positions in zip(task.files, result.left_out, strict=True):
                left_out[file.name, file.only] = positions
                if positions and result.quarantine is not None:
                    listed[file.table].add(result.quarantine)
        found = {}
        for each in pending:
            of_table = tuple(file for file in files if file.table == each.table)
            gone = tuple(left_out[file.name, file.only] for file in of_table)
            quarantined = sum(len(one) // 8 for one in gone)
            found[each.table] = Brought(Part(of_table, gone), quarantined, tuple(sorted(listed[each.table])))
        return found

    def held(self, target: Relation, source: TableName, work: Callable[[HistoryTable[Part]], Result]) -> Result:
        for left in reversed(range(_TRIES)):
            try:
                with self._documents.hold(target, self.load.attempt) as lease:
                    return work(LakeHistoryTable(self._lake, self.session, self.load, lease, target, source))
            except LeaseLostError:
                self._documents.discard()
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")
