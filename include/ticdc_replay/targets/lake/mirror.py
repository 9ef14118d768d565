"""The mirror in a lake: what the room ``mirror`` does, over Spark SQL and a ledger in an object store."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import cast

import msgspec

from ticdc_replay.changelog.cells.written import WrittenCell
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import FoundRow, Load, StoreAddress
from ticdc_replay.targets.lake.comparison import LakeComparisons
from ticdc_replay.targets.lake.dialect import lake_dialect
from ticdc_replay.targets.lake.look_up import how_to_look
from ticdc_replay.targets.lake.merge import SOURCE_COLUMNS
from ticdc_replay.targets.lake.section import LakeSection
from ticdc_replay.targets.lake.stage import LakeDestination, StagedFiles, stage
from ticdc_replay.targets.lake.swap import SwappingLakeSession
from ticdc_replay.targets.lake.swapping_ledger import SwappingLakeLedger
from ticdc_replay.targets.lake.table_format import TableFormat
from ticdc_replay.targets.lake.types import is_text
from ticdc_replay.targets.mirror.beside import BesideMirror
from ticdc_replay.targets.mirror.comparison import ComparableMirror, Comparisons, MirrorTable
from ticdc_replay.targets.mirror.followable import FollowableMirror
from ticdc_replay.targets.mirror.load import DatabaseMirror
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan, target_of
from ticdc_replay.targets.mirror.planning.tables import TableState
from ticdc_replay.targets.mirror.session import Session
from ticdc_replay.targets.mirror.staging import StageResult, StageTask
from ticdc_replay.targets.sql import Sql


def format_of(config: LakeSection) -> TableFormat:
    """The table format of *config*."""
    return cast(TableFormat, resolve_name(config.table_format)(config))


class LakeMirror(
    DatabaseMirror[LakeSection],
    FollowableMirror[LakeSection],
    BesideMirror[LakeSection],
    ComparableMirror[LakeSection],
):
    """Loads changelogs into Iceberg or Delta tables."""

    sql: Sql | None = None
    """Spark SQL, in the driver of a job that looks at tables, or changes them, outside of loads (``drivers.mirror``,
    ``drivers.verify``). Without it, people ask for what the ledger knows."""

    @property
    def dialect(self) -> Dialect:
        return lake_dialect(self.config.database)

    @property
    def destination(self) -> LakeDestination:
        return LakeDestination(self._address, self.dialect, self.config.deletes == "soft")

    def marker_in(self, state: TableState | None) -> str | None:
        """As configured: the ledger of a lake does not know."""
        return self.config.deleted_column if self.config.deletes == "soft" else None

    @property
    def writers(self) -> int:
        return 1_000_000

    @property
    def stage(self) -> Callable[[StageTask], StageResult]:
        return stage

    def plan(self, session: Session, load: Load, table: TableName, spellings: Iterable[TableName]) -> TablePlan:
        """Ends a swap of the mirror first that a rebuild has decided: what was known of the old table counts no more."""
        assert isinstance(session, SwappingLakeSession), "a session of a lake"
        session.end_swap(target_of(self.config, self.dialect, table))
        plan = super().plan(session, load, table, spellings)
        texts = [
            name
            for name in plan.handle_key
            for version in plan.versions
            if (column := version.schema.column(name)) is not None and is_text(column.type)
        ]
        own = {*SOURCE_COLUMNS, *([self.config.deleted_column] if self.config.deletes == "soft" else [])}
        taken = [column.target for column in plan.form if column.target.lower() in {name.lower() for name in own}]
        if taken:
            conflict = (
                f"the mirror needs the name of its column {taken[0]} for itself: choose another `deleted_column` if it is that, "
                "or leave the column out by a column selector of the changefeed"
            )
            return msgspec.structs.replace(plan, conflicts=(*plan.conflicts, conflict))
        if not texts:
            return plan
        conflict = (
            f"the decimal {texts[0]} of its key is text in {self.config.database}, and one number may have several texts: give "
            "its digits in the table's definition (definitions) where it has up to 38, or load its history (mode: history)"
        )
        return msgspec.structs.replace(plan, conflicts=(*plan.conflicts, conflict))

    def holds(self, pipeline: str, table: TableName) -> bool:
        """By the ledger: the table itself takes Spark."""
        target = target_of(self.config, self.dialect, table)
        with self.session(f"look up the rows of {target}") as session:
            state = session.ledger.state_of(target)
        return state is not None and state.newest_ts > 0

    def find_row(self, pipeline: str, table: TableName, key: Mapping[str, WrittenCell]) -> FoundRow:
        """The floor is from the ledger. The table itself takes Spark, which is not started for one row."""
        config, target = self.config, target_of(self.config, self.dialect, table)
        columns = [config.commit_ts_column, *([config.deleted_column] if config.deletes == "soft" else [])]
        how = how_to_look(config, format_of(config).name_of(target), columns, key)
        return FoundRow(where=str(target), not_looked=how, floor_ts=self.floor_of(table))

    def mirror_of(self, table: TableName) -> MirrorTable | None:
        """Of a table that a person made, which does not say what its key is, the ledger's."""
        mirror = super().mirror_of(table)
        if mirror is None:
            return None
        found, state = mirror.found, mirror.state
        if found is not None and not found.primary_key:
            key = tuple(sorted(name for name, known in state.columns.items() if known.in_key))
            found = msgspec.structs.replace(found, primary_key=key)
        state = msgspec.structs.replace(state, deleted_column=self.marker_in(state))
        return msgspec.structs.replace(mirror, found=found, state=state)

    @contextmanager
    def comparisons(self) -> Iterator[Comparisons]:
        if self.sql is None:
            raise ConfigError(f"a comparison of target {self.config.name} needs Spark: set runner to spark")
        table_format = format_of(self.config)
        self.sql.set(table_format.catalog_settings(self._secrets), self._secrets)
        yield LakeComparisons(self.sql, table_format, self._address, self.dialect)

    @contextmanager
    def session(self, doing: str) -> Iterator[SwappingLakeSession]:
        session = self._session(self.sql, doing)
        try:
            with session.translated(doing):
                if self.sql is not None:
                    self.sql.set(format_of(self.config).catalog_settings(self._secrets), self._secrets)
                yield session
                session.commit()
        finally:
            session.close()

    @contextmanager
    def attempt(self, load: Load) -> Iterator[Session]:
        session = self._session(load.sql, load.attempt)
        try:
            with session.translated("reach the catalog"):
                session.sql.set(format_of(self.config).catalog_settings(self._secrets), self._secrets)
            yield session
        except BaseException:
            session.abandon()
            raise
        finally:
            session.close()

    def is_swapping(self, table: TableName) -> bool:
        target = target_of(self.config, self.dialect, table)
        with self.session(f"look for a swap of {target}") as session:
            return session.ledger.swap_of(target) is not None

    def _session(self, sql: Sql | None, attempt: str) -> SwappingLakeSession:
        ledger = SwappingLakeLedger(self._address.open())
        return SwappingLakeSession(sql, format_of(self.config), ledger, StagedFiles(self._address), attempt)

    @property
    def _secrets(self) -> Mapping[str, str]:
        return self.config.secret_settings(self.connections.get(self.config.connection))

    @property
    def _address(self) -> StoreAddress:
        return StoreAddress(self.config.ledger, self.connections.get(self.config.ledger_connection))
