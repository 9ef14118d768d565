"""What a mirror remembers beside its tables, in a schema of its own of the target's database: the contract of its ledger.

* per mirror table where it comes from (the upstream's name, and the pipeline that loaded it first), its floor (no version
  below it is applied) and newest version, the newest schema that it was brought to, its columns as the newest loaded definition
  has them, and what rows from before an ADD COLUMN show (``tables.TableState``);
* per table, window and run that was applied, in the same transaction as its rows, the report; its outcome is ``stopped`` where
  DDL at the window's end stopped the load after them: such a window is not done;
* which loads have begun (``marks``), and which databases they dropped (``dropped_databases``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import AppliedRun, HeldTable, Load, StoppedLoad, TableReport
from ticdc_replay.targets.generations import Mark
from ticdc_replay.targets.mirror.planning.tables import ColumnMove, KnownColumn, Relation, TableState


class MirrorPlaces(NamedTuple):
    """Selects the notes of dropped databases that may be about one mirror."""

    mirror: str
    """Its name."""
    places: list[str]
    """The ``place`` of the loads that may write to it: see ``Ledger.put_mark``."""
    names: list[str]
    """Its database as the upstream compares names, and "" for notes of all databases."""


class NotedDrop(NamedTuple):
    """No row below ``floor_ts`` (TSO) was left of a database, for tables of ``selection``, or all if that is None."""

    floor_ts: int
    selection: Sequence[str] | None
    newer: Sequence[Sequence[str]]
    """The selections of newer loads of the window, which did not note it."""


class Ledger(ABC):
    """All is done in the open transaction of its session. Timestamps are TSO."""

    @abstractmethod
    def state_of(self, target: Relation) -> TableState | None:
        """What is known of *target*; None for a table that no load has touched."""

    @abstractmethod
    def mirrors(self) -> list[tuple[TableName, Relation, str]]:
        """All mirrors: the upstream's table, the mirror, and the pipeline that loaded it first."""

    @abstractmethod
    def add_table(
        self,
        target: Relation,
        *,
        source: TableName,
        pipeline: str,
        tombstones: Relation,
        newest_ts: int,
        floor_ts: int,
        form_floor_ts: int,
    ) -> None:
        """Record *target* as *pipeline*'s mirror of *source*, with the newest commitTs in it. Nothing below *floor_ts*
        is applied, and no DDL below *form_floor_ts*."""

    @abstractmethod
    def note_deleted_column(self, target: Relation, column: str) -> None:
        """Note that deleted rows of *target*, which was just added, stay in it, marked in *column*."""

    @abstractmethod
    def note_shape(self, target: Relation, pipeline: str) -> None:
        """Note that *pipeline* loads *target*, which may be new, with a shape. May be noted again."""

    @abstractmethod
    def raise_floor(self, target: Relation, floor_ts: int, form_floor_ts: int) -> None:
        """Apply no row below *floor_ts* to *target* any more, and no DDL below *form_floor_ts*. Higher floors stay.

        Forgets the fills of columns that ``TableState.forgotten_by`` names: a column of that name may be dropped and added
        again. Also forgets columns last seen, dropped or renamed below *form_floor_ts*.
        """

    def note_base(self, target: Relation, run_hash: str) -> None:  # noqa: B027
        """Note that the rows of the base *run_hash* are about to be written to *target*, before they are. Nothing to do where
        they share a transaction with the ledger."""

    @abstractmethod
    def raise_marks(self, target: Relation, *, schema_ts: int, whole_ts: int, newest_ts: int) -> None:
        """Note that *target* has the schema from *schema_ts* on, and versions up to *newest_ts*. At *whole_ts* its
        definition was known in full."""

    @abstractmethod
    def note_form(self, target: Relation, columns: Mapping[str, KnownColumn]) -> None:
        """Note the *columns* of a definition of *target*, by name; of each the newest definition stays."""

    @abstractmethod
    def note_topic(self, target: Relation, topic_id: str) -> None:
        """Note that the rows of *target* are ordered by their place in the topic with *topic_id*."""

    @abstractmethod
    def note_added_column(self, target: Relation, column: str, commit_ts: int, fill: str | None) -> None:
        """Note what rows of *target* from before the ADD COLUMN at *commit_ts* show in *column*."""

    @abstractmethod
    def note_column_event(self, target: Relation, move: ColumnMove) -> None:
        """Note what *move* does to the columns of *target* (``TableState.after``)."""

    @abstractmethod
    def forget(self, target: Relation, tombstones: Relation) -> None:
        """Delete all that is written down of *target*, and its tombstones."""

    @abstractmethod
    def report_of(self, target: Relation, window: Window, run_hash: str) -> TableReport | None:
        """The report of the load that applied this run and window to *target*, or was stopped after it; None where none did."""

    def find_done(self, target: Relation, window: Window, run_hash: str) -> TableReport | None:
        """The report of the load that applied this run and window to *target*; None where none did, or not to its end."""
        report = self.report_of(target, window, run_hash)
        if report is None or report.outcome == "stopped":
            return None
        return msgspec.structs.replace(report, outcome="done_before")

    @abstractmethod
    def runs_of(self, target: Relation, window: Window) -> Iterable[str]:
        """The runs that have applied *window* to *target*, or were stopped after it."""

    def find_same_base(self, target: Relation, window: Window, content: str) -> TableReport | None:
        """The report of the load that applied a base of *window* with *content* to *target*, and set no row aside; None where
        none did, or not to its end."""
        reports = (self.find_done(target, window, run) for run in self.runs_of(target, window))
        return next((each for each in reports if each and each.content == content and not each.quarantined), None)

    def find_stopped(self, target: Relation, window: Window, run_hash: str) -> TableReport | None:
        """The report of the load of this run and window that DDL at the window's end stopped; None if there is none, or
        a later one ended."""
        report = self.report_of(target, window, run_hash)
        return report if report is not None and report.outcome == "stopped" else None

    @abstractmethod
    def stopped_loads(self, target: Relation, pipeline: str) -> tuple[StoppedLoad, ...]:
        """The loads of *pipeline* into *target* that ``find_stopped`` returns, oldest first."""

    @abstractmethod
    def other_runs(self, load: Load) -> tuple[HeldTable, ...]:
        """What other runs of the window of *load* have applied to the pipeline's mirrors; sorted."""

    @abstractmethod
    def note_done(self, load: Load, target: Relation, report: TableReport) -> None:
        """Keep the *report*, in the transaction that applies the rows. One of a load that was ``stopped`` replaces no other."""

    @abstractmethod
    def put_mark(self, load: Load, place: str, mark: Mark) -> None:
        """Leave the *mark* of *load* on the mirrors in the schema *place*, "" for that of each upstream's table. A
        newer mark of the same window and patterns stays."""

    @abstractmethod
    def newer_marks(self, load: Load, generation: int) -> list[tuple[Mark, str | None]]:
        """The marks above *generation* in windows that overlap that of *load*, and their places; None for unknown."""

    @abstractmethod
    def share_drops(self) -> None:
        """Wait for a transaction to end that has called ``replace_drops`` with floors, and have such a one wait for this one."""

    @abstractmethod
    def replace_drops(self, load: Load, place: str, window_run: str, floors: Mapping[str, int]) -> None:
        """Note the *floors* of databases that the window of *load* dropped, in place of notes of older runs of it.

        With floors, waits for transactions that have called ``share_drops``, and lets others wait for this one. Notes
        of *window_run* and re-drives of its quarantine stay when one of them is loaded again.
        """

    @abstractmethod
    def noted_drops(
        self, mirror: MirrorPlaces, pipelines: Sequence[str], window: tuple[str, int, int], window_run: str
    ) -> list[NotedDrop]:
        """The notes of *pipelines* that may be about *mirror*, the highest floor first. Of the *window*, a pipeline and
        two TSO, only loads of *window_run* count."""

    @abstractmethod
    def forget_drops(self, mirror: MirrorPlaces) -> None:
        """Let no note made so far count for *mirror*."""


class SwappingLedger(Ledger):
    """A ledger of mirrors that can be filled anew beside themselves (``beside``)."""

    @abstractmethod
    def applied_runs(self, target: Relation) -> Sequence[AppliedRun]:
        """The runs that were applied to *target*, also those whose loads were stopped, in order of their windows."""

    @abstractmethod
    def forget_place(self, place: str) -> None:
        """Forget the marks of loads in *place* (``marks.place_of``), and the databases that they dropped."""
