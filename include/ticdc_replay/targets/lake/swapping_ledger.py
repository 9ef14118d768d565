"""The ledger of a lake mirror, while one that was filled anew takes the place of another one.

The swap is decided when the document of the old mirror notes it. From then on nothing is loaded into the new one, so that every
step can be repeated: whoever locks the old mirror next ends it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import PermanentError, TransientError
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import AppliedRun
from ticdc_replay.targets.generations import with_mark
from ticdc_replay.targets.lake.documents import (
    MARKS,
    REGISTRY,
    Marks,
    MirrorEntry,
    Registry,
    SwapNote,
    TableDocument,
    WindowReport,
    report_name,
    run_of,
    state_name,
    window_of_report,
    windows_folder,
)
from ticdc_replay.targets.lake.ledger import LakeLedger
from ticdc_replay.targets.mirror.ledger import SwappingLedger
from ticdc_replay.targets.mirror.planning.tables import Relation

_REQUESTS = 16
"""Documents that are read at once."""


class SwappingLakeLedger(LakeLedger, SwappingLedger):
    """Also knows which mirror takes the place of another one. What it notes of that it writes at once."""

    def applied_runs(self, target: Relation) -> Sequence[AppliedRun]:
        document = self._document(target)
        if document is None:
            return ()
        done = {
            run: AppliedRun(window=run[0], run_hash=run[1], report=found.report)
            for run, found in self._reports(target, document)
        }
        stopped = {
            (each.window, each.run_hash): AppliedRun(window=each.window, run_hash=each.run_hash, report=each.report)
            for each in document.stopped
        }
        return [run for _, run in sorted({**stopped, **done}.items(), key=lambda each: each[0])]

    def forget_place(self, place: str) -> None:
        def without(marks: Marks) -> Marks:
            return {each: marks[each] for each in marks if each != place}

        self._change_marks(place, without)
        if any(note.place == place for note in self._registry().drops):
            self._documents.update(REGISTRY, Registry, partial(_without_drops, place=place))

    def swap_of(self, target: Relation) -> SwapNote | None:
        """The swap that is decided for the mirror *target*, and has not ended."""
        document = self._document(target)
        return document.swap if document is not None else None

    def taken_from(self, side: Relation) -> Relation | None:
        """The mirror whose place *side* takes, as is decided; None for another mirror."""
        document = self._document(side)
        target = document.takes_place_of if document is not None else None
        note = self.swap_of(target) if target is not None else None
        return target if note is not None and note.side == side else None

    def held_by(self, target: Relation) -> str:
        """A hash of the runs that *target* has."""
        return canonical.hash_of([(run.window, run.run_hash) for run in self.applied_runs(target)])

    def begin_swap(
        self, target: Relation, side: Relation, tombstones: Relation, held: str, columns: Sequence[str] | None
    ) -> None:
        """Decide that *side* takes the place of *target*, which need not be known, has *tombstones*, and had the runs of *held*
        (``held_by``) when both were compared. Its table has *columns*; None if it is lost."""
        made = self._known(side)
        self._write_now(side, lambda document: document.with_place_of(target))
        is_new = self._document(target) is None
        note = SwapNote(side, held, is_new=is_new, is_lost=columns is None, columns=tuple(columns or ()))
        if is_new:
            self.add_table(
                target,
                source=made.source,
                pipeline=made.pipeline,
                tombstones=tombstones,
                newest_ts=0,
                floor_ts=made.floor_ts,
                form_floor_ts=made.form_floor_ts,
            )
        self._write_soon(target, lambda document: document.with_swap(note))
        self.flush()

    def note_rows(self, target: Relation) -> None:
        """Note that the rows of the mirror that takes the place of *target* are in its table."""
        note = self.swap_of(target)
        assert note is not None, "a swap is decided"

        def noted(document: TableDocument) -> TableDocument:
            _require(document, note, target)
            return document.with_swap(msgspec.structs.replace(note, has_rows=True))

        self._write_now(target, noted)

    def take_over(self, target: Relation, place: str) -> None:
        """Let all that is written down of the mirror that takes the place of *target* be about *target*, whose loads leave
        their marks in *place*. Reports of *target* stay, but for those of the same runs."""
        own = self._known(target)
        assert own.swap is not None, "a swap is decided"
        side, made = own.swap.side, self._known(own.swap.side)
        for (window, run_hash), found in self._reports(side, made):
            report = msgspec.structs.replace(found.report, destination=str(target))
            moved = msgspec.structs.replace(found, incarnation=own.incarnation, report=report)
            self._documents.put(report_name(target, window, run_hash), moved)
        self._change_marks(side.schema, partial(_moved, old=place, new=side.schema))
        entry = self._registry().entry_of(side)
        loaded_by = entry.loaded_by if entry is not None else (made.pipeline,)
        listed = MirrorEntry(made.source, target, made.pipeline, own.incarnation, loaded_by)
        self._documents.update(REGISTRY, Registry, lambda found: (found or Registry()).with_mirrors([listed]))

        def taken(document: TableDocument) -> TableDocument:
            _require(document, own.swap, target)
            return made.in_place_of(document, target)

        self._write_now(target, taken)

    def end_swap(self, target: Relation) -> None:
        """Forget the mirror that has taken the place of *target*, but for the deletes, which *target* lists now."""
        note = self.swap_of(target)
        assert note is not None, "a swap is decided"
        self._documents.update(REGISTRY, Registry, lambda found: (found or Registry()).without_mirror(note.side))
        self._documents.delete(state_name(note.side))
        for info in self._documents.store.list(windows_folder(note.side)):
            self._documents.store.delete(info.name)
        self.withdraw_swap(target)

    def withdraw_swap(self, target: Relation) -> None:
        """Note no longer that a mirror takes the place of *target*, which is forgotten if only the swap has made it known."""
        note = self.swap_of(target)
        if note is not None and note.is_new and not note.is_written and not self.applied_runs(target):
            self.forget(target, self._known(target).tombstones)
            return

        def ended(document: TableDocument) -> TableDocument:
            _require(document, note, target)
            return document.with_swap(None)

        self._write_now(target, ended)

    def _known(self, target: Relation) -> TableDocument:
        document = self._document(target)
        if document is None:
            raise PermanentError(
                f"the ledger has lost what it knew of {target} ({state_name(target)}) while that took the place of a mirror. "
                "Restore the document from a version or backup of the ledger's folder"
            )
        return document

    def _reports(self, target: Relation, document: TableDocument) -> Iterator[tuple[tuple[Window, str], WindowReport]]:
        """The reports of *target* that count, by window and run."""
        names = [info.name for info in self._documents.store.list(windows_folder(target))]
        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="ledger") as pool:
            reports = list(pool.map(partial(self._documents.read_now, kind=WindowReport), names))
        for name, found in zip(names, reports, strict=True):
            if found is not None and found.incarnation == document.incarnation:
                yield (window_of_report(name), run_of(name)), found

    def _change_marks(self, place: str, change: Callable[[Marks], Marks]) -> None:
        """*change* the marks of each window that has some of *place*."""
        names = [info.name for info in self._documents.store.list(MARKS)]
        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="ledger") as pool:
            found = list(pool.map(partial(self._documents.read_now, kind=Marks), names))
        for name, marks in zip(names, found, strict=True):
            if marks is not None and place in marks:
                self._documents.update(name, Marks, lambda stored: change(stored or {}))


def _require(document: TableDocument, swap: SwapNote | None, target: Relation) -> None:
    """Raise TransientError if *document* does not note *swap* any more."""
    if document.swap != swap:
        raise TransientError(f"another attempt has ended the swap of {target} meanwhile; try again")


def _moved(marks: Marks, old: str, new: str) -> Marks:
    """*marks* with those of the place *new* in the place *old*; of two of the same patterns the newer one stays."""
    if new not in marks:
        return marks
    both = reduce(with_mark, marks[new], marks.get(old, ()))
    return {**{place: marks[place] for place in marks if place != new}, old: both}


def _without_drops(found: Registry | None, place: str) -> Registry:
    registry = found or Registry()
    return registry.with_drops(note for note in registry.drops if note.place != place)
