"""The contract of a target, and what a load reports."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from ticdc_replay.changelog.cells.written import WrittenCell
from ticdc_replay.changelog.files.index import ChangelogIndex, DataFile
from ticdc_replay.changelog.files.reading import file_name, read_index
from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.config.target_rules import DdlPolicy, DropColumn
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.former_names import FormerNames
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import SourceWindow
from ticdc_replay.schemas.changes import BreakingChange, TableChanges
from ticdc_replay.storage import ObjectStore, open_store
from ticdc_replay.targets.sql import Sql

Task = TypeVar("Task")
Result = TypeVar("Result")
Config = TypeVar("Config", bound=TargetSection)

Outcome = Literal["loaded", "done_before", "without_key", "reserved_name", "stopped"]
"""``done_before``: the ledger knows this run and window; ``without_key``: history only, a mirror can't hold it;
``reserved_name``: the same, as the target needs the name for itself; ``stopped``: never in a load report, see ``StoppedLoad``;
of a history, a load that has begun to write its slice in several commits."""

LEFT_OUT: frozenset[Outcome] = frozenset({"without_key", "reserved_name"})
"""Of tables that the target does not hold."""


class Execute(Protocol):
    """Runs independent tasks, on executors or in the calling process.

    ``work`` and each task survive pickling; a task may run more than once, also at the same time. Results come in the order
    of the tasks. Errors of the library come back with their own type.
    """

    def __call__(self, work: Callable[[Task], Result], tasks: Sequence[Task], name: str) -> list[Result]: ...


class StoreAddress(msgspec.Struct, frozen=True):
    """Where a store is, in a form that workers can open. Holds the connection: never written to an artefact."""

    uri: str
    connection: Connection | None

    def open(self) -> ObjectStore:
        """The store."""
        return open_store(self.uri, self.connection)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to load one changelog into one target."""

    index: ChangelogIndex
    selection: tuple[str, ...]
    """The patterns of the tables that are wanted."""
    tables: tuple[TableName, ...]
    """The tables of ``index`` that are wanted, sorted."""
    named: frozenset[TableName]
    """Those of ``tables`` that the pipeline names in full, without wildcard."""
    artifacts: StoreAddress
    target: str
    """The target's name in the pipeline."""
    attempt: str
    """Unique per attempt: scopes whatever is written before the commit."""
    quarantine_values: bool
    """Whether rows with values that the target can't hold are set aside; otherwise they stop the load."""
    stopping: frozenset[DdlPolicy]
    """The policies by which schema changes stop the load that a target could apply."""
    reload: bool
    drop_column: DropColumn | None = None
    """What a mirror does about DROP COLUMN; None if ``policies.drop`` decides."""
    generation: int = 0
    """Of the run: a target refuses the load once a larger one of the window has begun there. 0: nobody gave it one."""
    sources: tuple[SourceWindow, ...] = ()
    """The windows whose changelogs it takes rows from: a target refuses it once a larger generation of one has begun there."""
    parallelism: int = 1
    """How many tasks run at the same time. Decides how work is divided, never what is loaded."""
    sql: Sql | None = None
    """The driver's Spark SQL, for targets that Spark writes to; None where there is no Spark."""

    former_names: tuple[FormerNames, ...] = ()
    """Of tables that are loaded, and of their columns, at the window's end."""

    shaped: str = ""
    """The folder, relative to the artefacts, of the shaped copies of the files of ``shaped_tables``."""
    shaped_tables: frozenset[TableName] = frozenset()
    """The tables that ``index`` has as the target is to have them, not as the upstream has them."""
    shapes_seen: Mapping[TableName, str] = {}
    """The ETag of each table's recorded shape, empty for none: ``index`` has that shape. Without tables if nobody has looked."""

    def file_name(self, file: DataFile, index: ChangelogIndex | None = None, *, table: TableName) -> str:
        """The name of a data file of *table* in *index*, by default ``index``, relative to the artefacts."""
        name = file_name(index or self.index, file)
        return f"{self.shaped}/{name}" if table in self.shaped_tables else name

    def index_of(self, run: str, tables: Collection[TableName]) -> ChangelogIndex:
        """The index of another run's changelog, of which rows of *tables* are loaded, too. Raises ConfigError for tables with a
        shape, as its rows are not shaped; ArtifactNotFoundError without a complete changelog."""
        unshaped = sorted(self.shaped_tables.intersection(tables))
        if unshaped:
            raise ConfigError(
                f"target {self.target}: rows of {unshaped[0]} that came out of a quarantine can't be added to a table with a "
                "`shape` that keeps each window's rows. Decode the window again, with a new run, and load that"
            )
        return read_index(self.artifacts.open(), run)

    @property
    def folder(self) -> str:
        """The folder of this attempt's own artefacts, relative to the artefacts."""
        return f"loads/{self.index.run_hash}/{self.target}/{self.attempt}"

    def generation_in(self, window: Window) -> int | None:
        """The largest generation of *window* beside which its rows count; None for one that says nothing of them."""
        if window == self.index.window:
            return self.generation
        return min((each.generation for each in self.sources if each.window == window), default=None)

    def with_index(self, **changes: Any) -> "Load":
        """This load with other members of ``index``."""
        return msgspec.structs.replace(self, index=msgspec.structs.replace(self.index, **changes))


class TargetColumn(msgspec.Struct, frozen=True):
    """One column of a target's table, with the type as the target spells it."""

    name: str
    type: str


class TableReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a load did to one table. Counts of ``done_before`` are those of the load that did it."""

    table: TableName
    outcome: Outcome
    destination: str
    """The table or folder in the target."""
    fields: tuple[TargetColumn, ...] = ()
    events: int = 0
    """Row versions in the changelog: the sum of ``folded``, ``quarantined``, ``below_floor`` and ``keys``."""
    keys: int = 0
    """Rows whose last version was applied or was older than the target's: the sum of ``upserted``, ``tombstones`` and
    ``superseded``. Without a fold, each row version counts as one."""
    folded: int = 0
    """Row versions that a later one of the same key in the same window replaces."""
    upserted: int = 0
    deleted: int = 0
    """Rows of the target that a delete removed."""
    tombstones: int = 0
    """Deletes that were applied; more than ``deleted`` where the row was not there."""
    superseded: int = 0
    """Keys left alone because the target has a newer version, or because they lie below its floor."""
    quarantined: int = 0
    """Row versions with a value that the target can't hold: set aside, an older version of the row may stay visible."""
    quarantine_files: tuple[str, ...] = ()
    """Parquet below the artefacts that these are in; each may have rows of other tables, too. Not of Parquet targets."""
    below_floor: int = 0
    """Row versions of schemas that had ended before the table's floor: not looked at."""
    ddl: tuple[str, ...] = ()
    """The schema changes that were applied to the target."""
    redrives: str | None = None
    """Of a load into a history, the run whose quarantine its run re-drives; None if it is of a window itself."""
    content: str = ""
    """Of a base, the digest of what the table's rows follow from (``ChangelogIndex.contents``)."""
    commit: str = ""
    """The table's snapshot id or version with the rows, where it has such; empty too if the load changed no row."""


class HeldTable(msgspec.Struct, frozen=True, order=True):
    """A table that the target holds from a run."""

    run_hash: str
    table: TableName


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt to load did. The caller keeps it as ``loads/<run_hash>/<target>/<attempt>.json``."""

    pipeline: str
    run_hash: str
    input_hash: str
    window: Window
    target: str
    type: str
    attempt: str
    selection: tuple[str, ...]
    """The patterns of the tables that were wanted."""
    tables: tuple[TableReport, ...]
    """Those of them with rows or DDL in the window."""
    quarantine_files: tuple[str, ...] = ()
    """Parquet below the artefacts: rows set aside, with column and reason, also by earlier loads that the tables count."""
    other_runs: tuple[HeldTable, ...] = ()
    """What the target holds from other runs of the window once the load has ended, such as re-drives of its quarantine."""
    place: str = ""
    """Where it was loaded into (``TargetSection.place``); empty in reports of earlier versions."""
    generation: int = 0
    """Of the run, as the load carried it."""
    took_ms: int = 0
    """How long the load took, by the clock."""

    @property
    def name(self) -> str:
        """The report's name below the artefacts."""
        return f"loads/{self.run_hash}/{self.target}/{self.attempt}.json"


class Loaded(msgspec.Struct, frozen=True):
    """What a target returns. The names of quarantine files are relative to the artefacts."""

    tables: tuple[TableReport, ...]
    quarantine_files: tuple[str, ...] = ()
    other_runs: tuple[HeldTable, ...] = ()


class FoundRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a target has of one row of the upstream, as ``Target.find_row`` found it."""

    where: str
    """The table or folder."""
    keeps: Literal["row", "window", "all"] = "row"
    """Which versions stay: the last of each row, the last of each row in each window, or all."""
    not_looked: str = ""
    """Why the row was not looked for, and how a person can; empty if it was."""
    version: int | None = None
    """Of the row, or of its delete, the newest where the target keeps all; None if the target has neither."""
    order: VersionOrder = "commit_ts"
    """What ``version`` is: a commitTs (TSO), or a place."""
    is_deleted: bool = False
    """Whether ``version`` is that of a delete."""
    floor_ts: int = 0
    """Nothing below it is applied (TSO)."""


class Target(ABC, Generic[Config]):
    """One kind of target. Lives in the driver; what runs elsewhere are the tasks it hands to ``Execute``."""

    def __init__(self, config: Config, connections: Connections) -> None:
        self.config = config
        self.connections = connections

    @abstractmethod
    def load(self, load: Load, execute: Execute) -> Loaded:
        """Bring the target to the state in which every row version of the changelog was applied once.

        Applying twice, after an attempt that broke anywhere, or after a newer window gives the same end state. Each
        table is committed on its own: after an error, earlier tables are loaded and this one is unchanged.

        Raises SupersededError, and applies nothing more, once a load with a larger generation, of this window or of a
        source's, has begun in the target; TargetMismatchError if a table can't take the rows; PolicyStopError for a
        schema change that the target does not follow (``ddl``); UnrepresentableValueError for a value that the target
        can't hold, if policy stops; CommitStateUnknownError if the connection broke in a commit; TransientError if the
        target is away.
        """

    def holds(self, pipeline: str, table: TableName) -> bool:
        """Whether a load of *pipeline* has brought rows of *table*. Raises TransientError if the target is away.

        Here: no, as nothing is known.
        """
        return False

    def find_row(self, pipeline: str, table: TableName, key: Mapping[str, WrittenCell]) -> FoundRow:
        """Look up what the target has now of the row of *table* with *key*, the cells of its handle key by column. No column
        holds a cell with ``exact``, only files in the changelog's layout. *pipeline* is who asks. Changes no row. Raises
        TransientError if the target is away.

        Here: nothing is looked at.
        """
        return FoundRow(
            where=self.config.description,
            keeps="row" if self.config.is_mirror else "all",
            not_looked=f"a target of type {self.config.type} can't be asked for one row: look there yourself",
        )


class FloorRaised(msgspec.Struct, frozen=True):
    """The floor of a mirror table: the name of the table, and its floor before and now (TSO)."""

    table: str
    before: int
    now: int
    newest_ts: int = 0
    """No version is newer that a load has applied (TSO); 0 where none has applied any."""


class StoppedLoad(msgspec.Struct, frozen=True):
    """A load that applied all rows of its window to one mirror table, and was then stopped by DDL at the window's end.

    It is not done: the run's next load reads the window again, and reports what this one set aside as its own.
    """

    run_hash: str
    window: Window
    report: TableReport


class StoppingDdl(msgspec.Struct, frozen=True):
    """A DDL that stopped a load of ``table``, all of whose rows from before it are loaded."""

    table: TableName
    commit_ts: int
    """TSO."""
    changes: tuple[TableChanges, ...]
    """All that was changed at this commitTs, of whatever table: a RENAME concerns several."""
    selection: tuple[str, ...]
    """The patterns of the tables that are mirrored."""

    @property
    def tables(self) -> list[TableName]:
        """The tables whose mirrors have to follow it together, sorted: of a RENAME all that give or take a name."""
        entries = {entry.table: entry for entry in self.changes}
        found, fresh = {self.table}, [self.table]
        while fresh:
            entry = entries.get(fresh.pop())
            for change in entry.changes if entry is not None else ():
                other = change.other if isinstance(change, BreakingChange) else None
                if other in entries and other is not None and other not in found:
                    found.add(other)
                    fresh.append(other)
        return sorted(found)


class Followed(msgspec.Struct, frozen=True):
    """What was done, or is to be done, to follow a DDL."""

    tables: tuple[TableName, ...]
    """The upstream's tables whose mirrors follow together. Of each the floor is at least just above the DDL."""
    steps: tuple[str, ...]
    """For people, in their order; empty if the mirrors have the form already."""


class RebuildableTarget(Target[Config]):
    """A target with a ledger of what was loaded, in which one table can be forgotten, and then be built again."""

    @abstractmethod
    def require_gone(self, pipeline: str, table: TableName) -> None:
        """Raise what ``forget`` would raise for what holds *table*; change nothing."""

    @abstractmethod
    def forget(self, pipeline: str, table: TableName) -> str:
        """Forget what was loaded of *table*, so that its windows can be loaded again; the name of what held it.

        Raises ConfigError if that still exists, where the ledger lies beside it, TargetMismatchError if it is of another
        pipeline, and TransientError if the target is away.
        """


class Mirror(RebuildableTarget[Config]):
    """A target that holds the last version of each row."""

    @abstractmethod
    def floor_of(self, table: TableName) -> int:
        """The commitTs (TSO) below which nothing is applied to the mirror of *table*; 0 where nobody raised it."""

    @abstractmethod
    def stopped_loads(self, pipeline: str, table: TableName) -> tuple[StoppedLoad, ...]:
        """The loads of *pipeline* into the mirror of *table* that DDL at their window's end stopped, oldest first."""

    @abstractmethod
    def raise_floor(self, pipeline: str, table: TableName, floor_ts: int) -> FloorRaised:
        """Apply nothing below *floor_ts* (TSO) to the mirror of *table* any more. A floor is never lowered.

        The mirror need not exist yet. Raises TargetMismatchError for a mirror of another pipeline, TransientError if
        the target is away.
        """

    def how_to_follow(self, pipeline: str, ddl: StoppingDdl) -> Followed:
        """What ``follow`` would do; nothing is changed. Raises what ``follow`` raises."""
        raise self._cannot_follow(ddl)

    def follow(self, pipeline: str, ddl: StoppingDdl) -> Followed:
        """Do to the mirrors what *ddl* did upstream, and raise their floors to just above it. Rows from before it must be
        loaded: no load applies them afterwards. A repeat ends what an attempt that broke has begun.

        Raises PolicyStopError if that needs rows of the upstream, if rows of a mirror do not fit, or if one has rows from after
        *ddl*; TargetMismatchError for a mirror of another pipeline, and TransientError if the target is away.

        Here: no DDL is followed so.
        """
        raise self._cannot_follow(ddl)

    def _cannot_follow(self, ddl: StoppingDdl) -> ConfigError:
        return ConfigError(
            f"{ddl.table}: `mirror follow` can't change tables of a target of type {self.config.type}. Do by hand what the "
            "load's message says, then raise the floor with `ticdc-replay mirror floor`"
        )


class AppliedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was applied to one mirror table, as the ledger has it."""

    window: Window
    run_hash: str
    report: TableReport


class Replaced(msgspec.Struct, frozen=True):
    """What came of the swap of a mirror table: it was done if nothing is ``lacking``."""

    table: str
    """The name of the mirror."""
    floor_ts: int
    """That of the new mirror (TSO)."""
    lacking: tuple[AppliedRun, ...]
    """What the old mirror has, and the new one lacks."""
    lost: tuple[str, ...]
    """Indexes of the old mirror that the new one can't have."""


class ReplaceableMirror(Mirror[Config]):
    """A mirror of which one table can be filled anew beside the old one, and then take its place."""

    @abstractmethod
    def beside(self, table: TableName) -> Config:
        """The section of a target whose mirror of *table* is the one that is filled anew."""

    @abstractmethod
    def applied(self, table: TableName) -> tuple[AppliedRun, ...]:
        """The runs whose loads into the mirror of *table* have ended. Raises TransientError if the target is away."""

    @abstractmethod
    def applied_beside(self, table: TableName) -> tuple[AppliedRun, ...]:
        """The same of the one that is filled anew; nothing if none was begun."""

    @abstractmethod
    def require_replaceable(self, pipeline: str, table: TableName) -> None:
        """Raise TargetMismatchError if the mirror of *table* is of another pipeline, or if something depends on it that a new
        table would lack or break, such as a view: each is named."""

    def is_swapping(self, table: TableName) -> bool:
        """Whether an attempt at ``replace`` broke after the swap was decided, so that nothing is filled anew before another one
        has ended it. Here: what locks the mirror ends it."""
        return False

    @abstractmethod
    def replace(
        self, pipeline: str, table: TableName, superseded: Collection[str], needed: Collection[str]
    ) -> Replaced:
        """Let what was filled anew take the place of the mirror of *table*, with its ledger, if it has all runs that the mirror
        has, but for those that are *superseded* and windows below its floor. Loads of the table wait meanwhile.

        Killed anywhere, the mirror is either the old or the new one. Raises what ``require_replaceable`` raises, and
        TransientError if what was filled anew lacks one of the runs *needed*.
        """

    @abstractmethod
    def deleted_before(self, table: TableName, before_ts: int) -> int:
        """How many deleted rows the mirror of *table* keeps, by this section, whose deletes are from before *before_ts* (TSO)."""

    @abstractmethod
    def withdraw_swap(self, table: TableName) -> None:
        """Let no swap of the mirror of *table* be decided. One that ``is_swapping`` shows is taken back, another is done. Raises
        PolicyStopError if the new rows are there, and ``replace`` has still to end that."""

    @abstractmethod
    def abandon(self, table: TableName) -> bool:
        """Drop what was filled anew of *table*, and forget it; whether there was anything. Raises what ``withdraw_swap`` raises,
        which it does before."""


AnyTarget = Target[Any]
