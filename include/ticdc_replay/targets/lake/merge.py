"""The statements that bring staged versions into a lake table; see ``Session.merge``.

Versions of a row are ordered by (version, delete < put), and an equal put overwrites. A deleted row is gone, and its
delete stands in the ledger; or it stays, marked, and is a version like any other (``deletes: soft``).
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import NamedTuple

from ticdc_replay.changelog.files.version_order import OFFSET_BITS
from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.domain.tables import folded
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.lake.commits import MERGES, commit
from ticdc_replay.targets.lake.dialect import quoted
from ticdc_replay.targets.lake.documents import TombstoneFile
from ticdc_replay.targets.lake.key_ranges import common_ranges, in_list, in_ranges
from ticdc_replay.targets.lake.lease import HeldLease
from ticdc_replay.targets.lake.ledger import LakeLedger
from ticdc_replay.targets.lake.stage import DELETED_AT, ReadTask, StagedFiles, read_staged
from ticdc_replay.targets.lake.table_format import Commit, Counts, TableFormat, load_name
from ticdc_replay.targets.mirror.planning.staged_rows import PUT, VERSION
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import FoundTable
from ticdc_replay.targets.mirror.session import Merged
from ticdc_replay.targets.mirror.staging import Staged
from ticdc_replay.targets.sql import Sql

_NEW, _KEPT, _LOST = "_ticdc_replay_version", "_ticdc_replay_put", "_ticdc_replay_lost"
"""Columns of the source beside the mirror's: the version, whether the row stays, and whether a newer delete decided that."""
SOURCE_COLUMNS = (_NEW, _KEPT, _LOST)

LISTED = 5_000
"""Rows whose keys may be in the statement: Spark takes a tenth of a second to read a thousand."""
_LONGEST = 2**20
"""Characters of a list of keys."""
BROADCAST_ROWS = 500_000
"""Keys that the driver and every worker may hold."""


class _View(NamedTuple):
    """A temporary view, and how many rows it has."""

    name: str
    rows: int


def _hint(views: str, rows: int) -> str:
    """Keeps *views* of so many *rows* from being broadcast: Spark takes a view for as small as the list of its files."""
    return f"/*+ MERGE({views}) */ " if rows > BROADCAST_ROWS else ""


class Merge:
    """The staged versions of one table, and the table they go to."""

    def __init__(
        self,
        sql: Sql,
        table_format: TableFormat,
        ledger: LakeLedger,
        lease: HeldLease,
        files: StagedFiles,
        load: Load,
        plan: TablePlan,
        staged: Staged,
        found: FoundTable,
        defaults: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._sql = sql
        self._format = table_format
        self._ledger = ledger
        self._lease = lease
        self._files = files
        self._load = load
        self._plan = plan
        self._staged = staged
        self._found = found
        self._defaults = defaults
        self._name = table_format.name_of(plan.target)
        self._soft = table_format.config.deletes == "soft"
        self._types = {column.name: column.type for column in found.columns}
        self._views = (f"ticdc_replay_{load.attempt}_{number}" for number in count())

    def tombstones(self) -> list[TombstoneFile]:
        """The deletes of the window, for the ledger; none where deleted rows stay."""
        if self._soft:
            return []
        found = (file for stage in self._staged.stages for file in self._files.deletes_of(stage))
        return [TombstoneFile(*file) for file in found]

    def run(self, *, late: bool) -> Merged:
        """Merge, unless an attempt whose outcome was unknown has; *late*: versions may be older than those applied."""
        load, plan = self._load, self._plan
        incarnation = self._ledger.incarnation_of(plan.target) or ""
        once = not load.reload and self._ledger.report_of(plan.target, load.index.window, load.index.run_hash) is None
        name = load_name(load.index.run_hash, load.index.window, incarnation, "" if once else load.attempt)
        before = self._format.find_commit(self._sql, plan.target, name) if once else None
        if before is not None:
            # An attempt that broke has committed. What it did counts; merged again, late, it repairs what came between.
            late, name = True, f"{name}/{load.attempt}"
        with ExitStack() as views:
            source = views.enter_context(self._source(late=late))
            deletes = self._deletes(source, late=late)
            if plan.order == "place":
                self._refuse_moved(source)
            done = self._commit(source, name)
        self._lease.verify()  # else another load may have decided by rows that were not there yet
        done = before or done
        counts = done.counts if done is not None else Counts()
        commit = done.id if done is not None else ""
        if self._soft:
            return Merged(self._staged, counts.inserted + counts.updated - deletes, 0, deletes, commit)
        return Merged(self._staged, counts.inserted + counts.updated, counts.deleted, deletes, commit)

    @contextmanager
    def _source(self, *, late: bool) -> Iterator[str]:
        """The staged rows as a query: columns as the mirror names them, ``_NEW``, ``_KEPT`` and ``_LOST``.

        A put that is older than a remembered delete is that delete: so a merge repairs a row that should not be there.
        """
        plan = self._plan
        floor = plan.next_floor_ts if plan.order == "commit_ts" else 0
        selects: list[str] = []
        with ExitStack() as views:
            for columns, defaults, tasks in self._groups():
                view = next(self._views)
                layout = [f"{quoted(name)} {type_name}" for name, type_name in columns.items()]
                views.enter_context(self._sql.view(view, read_staged, tasks, ", ".join(layout)))
                selects.append(self._select(view, columns, defaults, floor))
            rows = " UNION ALL ".join(selects)
            if late:  # also of soft deletes: the table may have had hard ones before
                tombstones = views.enter_context(self._tombstones())
                if tombstones is not None:
                    key = ", ".join(quoted(column.target) for column in self._plan.key)
                    cells = ", ".join(f"s.{quoted(name)}" for name in self._types if name != self._plan.version_column)
                    rows = (
                        f"SELECT {_hint('d', tombstones.rows)}{cells}, coalesce(d.{_NEW}, s.{_NEW}) AS {_NEW}, "
                        f"s.{_KEPT} AND d.{_NEW} IS NULL AS {_KEPT}, d.{_NEW} IS NOT NULL AS {_LOST} FROM ({rows}) s LEFT JOIN "
                        f"(SELECT {key}, max({quoted(DELETED_AT)}) AS {_NEW} FROM {tombstones.name} GROUP BY {key}) d "
                        f"ON {self._same_row('s', 'd')} AND d.{_NEW} > s.{_NEW}"
                    )
            yield f"({rows})"

    def _groups(self) -> Iterator[tuple[dict[str, str], Mapping[str, str], list[ReadTask]]]:
        """Staged columns with their types, what rows show in the others, and the files: by the columns they have."""
        versions = {piece.version.version: piece for piece in self._plan.pieces}
        groups: dict[tuple[tuple[str, str], ...], list[ReadTask]] = {}
        defaults: Mapping[str, str] = {}
        for stage in self._staged.stages:
            defaults = self._defaults.get(stage, {})
            for file in self._files.of(stage):
                columns = tuple((column.staged, column.type) for column in versions[file.version].columns)
                columns += ((VERSION, "bigint"), (PUT, "boolean"))
                task = ReadTask(self._files.address, file.name, columns, self._plan.dialect)
                groups.setdefault(columns, []).append(task)
        for columns, tasks in groups.items():
            yield dict(columns), defaults, tasks

    def _select(self, view: str, columns: Mapping[str, str], defaults: Mapping[str, str], floor: int) -> str:
        """The rows of *view* with all columns of the mirror: one that they lack shows what rows from before it show."""
        state = self._ledger.state_of(self._plan.target)
        added = state.added_columns if state is not None else {}
        planned = {column.target: column for column in self._plan.columns}
        cells = []
        for name, type_name in self._types.items():
            if name == self._plan.version_column:
                continue
            column = planned.get(name)
            if column is not None and column.staged in columns:
                cell = quoted(column.staged)
            else:
                recorded = added[name].fill if name in added else None
                cell = defaults.get(name) or recorded or "NULL"
            until_ts = self._plan.kept.get(folded(name))
            if until_ts is not None:  # the upstream has dropped it
                cell = f"CASE WHEN {quoted(VERSION)} <= {until_ts} THEN {cell} END"
            cells.append(f"CAST({cell} AS {type_name}) AS {quoted(name)}")
        cells += [f"{quoted(VERSION)} AS {_NEW}", f"{quoted(PUT)} AS {_KEPT}", f"false AS {_LOST}"]
        return f"SELECT {', '.join(cells)} FROM {view} WHERE {quoted(VERSION)} >= {floor}"

    @contextmanager
    def _tombstones(self) -> Iterator["_View | None"]:
        """A view of the deletes that some staged row may have to be compared with, None without any."""
        files = self._ledger.tombstones_of(self._plan.target)
        if self._plan.order == "commit_ts":
            files = tuple(file for file in files if file.last_ts > self._staged.first_ts)
        if not files:
            yield None
            return
        columns = tuple((column.target, self._types[column.target]) for column in self._plan.key)
        columns += ((DELETED_AT, "bigint"),)
        tasks = [ReadTask(self._files.address, file.name, columns, self._plan.dialect) for file in files]
        layout = ", ".join(f"{quoted(name)} {type_name}" for name, type_name in columns)
        view = next(self._views)
        with self._sql.view(view, read_staged, tasks, layout):
            yield _View(view, sum(file.rows for file in files))

    def _deletes(self, source: str, *, late: bool) -> int:
        """How many staged deletes count: neither below the floor, nor, if *late*, older than what the table has."""
        from_ts = self._plan.next_floor_ts if self._plan.order == "commit_ts" else 0
        if not (self._soft or late) and self._staged.first_ts >= from_ts:
            return sum(file.rows for file in self.tombstones())
        version, new = f"t.{quoted(self._plan.version_column)}", f"s.{_NEW}"
        newer = f"{version} >= {new}"
        if self._soft:
            newer = f"({version} > {new} OR {version} = {new} AND NOT t.{self._deleted})"
        unless = f"LEFT ANTI JOIN {self._name} t ON {self._same_row('s', 't')} AND {newer} " if late else ""
        (row,) = self._sql.run(f"SELECT count(*) AS rows FROM {source} s {unless}WHERE NOT s.{_KEPT} AND NOT s.{_LOST}")
        return int(row["rows"])

    def _refuse_moved(self, source: str) -> None:
        """Raise TargetMismatchError where a row was in another partition before, so that its places don't order it."""
        version, new = f"t.{quoted(self._plan.version_column)}", f"s.{_NEW}"
        before, now = (f"shiftright({place} - 1, {OFFSET_BITS})" for place in (version, new))
        with self._tombstones() as tombstones:
            olds = [(self._name, 0)]
            if tombstones is not None:
                key = ", ".join(quoted(column.target) for column in self._plan.key)
                view = f"(SELECT {key}, {quoted(DELETED_AT)} AS {quoted(self._plan.version_column)} FROM {tombstones.name})"
                olds.append((view, tombstones.rows))
            for old, viewed in olds:
                hint = _hint("s, t", max(self._staged.keys, viewed))
                rows = self._sql.run(
                    f"SELECT {hint}{before} AS before, {now} AS now, "
                    f"to_json(struct({', '.join('t.' + quoted(column.target) for column in self._plan.key)})) AS key "
                    f"FROM {source} s JOIN {old} t ON {self._same_row('s', 't')} "
                    f"WHERE {version} > 0 AND {before} <> {now} LIMIT 1"
                )
                for row in rows:
                    raise TargetMismatchError(
                        f"{self._plan.target}: the row with key {row['key']} was in partition {row['before']}, and is in "
                        f"partition {row['now']} now; without commitTs the later one is unknown. Were partitions added or the "
                        f"dispatcher changed? Bring the table up to date from the upstream, set "
                        f"{self._plan.version_column} to 0 in all its rows, and raise the mirror's floor"
                    )

    def _commit(self, source: str, name: str) -> Commit | None:
        """Merge *source*. None where nothing was to be changed."""
        condition = " AND ".join([self._same_row("s", "t"), *self._conditions()])

        def statements(changed: str, _: bool) -> list[str]:
            return [self._statement(changed, source, condition)]

        table, lease, events = self._plan.target, self._lease, self._staged.events
        return commit(self._sql, self._format, table, lease, self._load, name, events, statements, what=MERGES)

    def _statement(self, table: str, source: str, condition: str) -> str:
        version, new, put = f"t.{quoted(self._plan.version_column)}", f"s.{_NEW}", f"s.{_KEPT}"
        key = {column.target for column in self._plan.key}
        cells = {quoted(name): f"s.{quoted(name)}" for name in self._types if name != self._plan.version_column}
        cells[quoted(self._plan.version_column)] = new
        if self._soft:
            cells[self._deleted] = f"NOT {put}"
        updates = ", ".join(f"t.{name} = {cell}" for name, cell in cells.items() if name not in map(quoted, key))
        inserts = f"INSERT ({', '.join(cells)}) VALUES ({', '.join(cells.values())})"
        rows = f"(SELECT {_hint('r', self._staged.keys)}* FROM {source} r)"
        merge = f"MERGE INTO {table} t USING {rows} s ON {condition} "
        if self._soft:
            newer = f"{new} > {version} OR {new} = {version} AND ({put} OR t.{self._deleted})"
            return f"{merge}WHEN MATCHED AND ({newer}) THEN UPDATE SET {updates} WHEN NOT MATCHED THEN {inserts}"
        return (
            f"{merge}WHEN MATCHED AND {put} AND {new} >= {version} THEN UPDATE SET {updates} "
            f"WHEN MATCHED AND NOT {put} AND {new} > {version} THEN DELETE "
            f"WHEN NOT MATCHED AND {put} THEN {inserts}"
        )

    def _conditions(self) -> Iterator[str]:
        """Conditions that hold for what is staged. By ranges of keys the engine leaves out files of the table before it reads;
        by the keys of few rows, the rows of others before it joins."""
        stages = self._staged.stages
        footers = self._files.metadata_of(stages)
        for column in self._plan.key:
            name, type_name = f"t.{quoted(column.target)}", column.type
            ranges = common_ranges(footers, column.staged, self._types[column.target])
            if ranges:
                yield in_ranges(name, type_name, ranges)
                if self._staged.keys <= LISTED:
                    listed = in_list(name, type_name, self._files.cells_of(stages, column.staged))
                    if len(listed) <= _LONGEST:
                        yield listed

    @property
    def _deleted(self) -> str:
        return quoted(self._format.config.deleted_column)

    def _same_row(self, first: str, second: str) -> str:
        return " AND ".join(
            f"{first}.{quoted(column.target)} = {second}.{quoted(column.target)}" for column in self._plan.key
        )
