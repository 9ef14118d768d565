"""The ledger of a lake mirror: which loads have begun, and which databases their windows dropped."""

from collections.abc import Mapping, Sequence

import msgspec

from ticdc_replay.storage import ObjectStore
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.generations import Mark, with_mark
from ticdc_replay.targets.lake.document_store import DocumentStore
from ticdc_replay.targets.lake.documents import (
    REGISTRY,
    DropNote,
    Marks,
    Registry,
    marks_folder,
    marks_name,
    window_of,
)
from ticdc_replay.targets.mirror.ledger import Ledger, MirrorPlaces, NotedDrop


class BegunLoads(Ledger):
    """The marks, and the drops of ``mirrors.json``. All is written at once."""

    def __init__(self, store: ObjectStore) -> None:
        self._documents = DocumentStore(store)
        self._drops_seen: tuple[DropNote, ...] | None = None
        """The noted drops that the mirrors of this transaction respect, if it makes any."""

    def put_mark(self, load: Load, place: str, mark: Mark) -> None:
        def marked(found: Marks | None) -> Marks:
            marks = found or {}
            return {**marks, place: with_mark(marks.get(place, ()), mark)}

        self._documents.update(marks_name(load.index.pipeline, mark.window), Marks, marked)

    def newer_marks(self, load: Load, generation: int) -> list[tuple[Mark, str | None]]:
        folder, window = marks_folder(load.index.pipeline), load.index.window
        newer: list[tuple[Mark, str | None]] = []
        for info in self._documents.store.list(folder):  # in the order of their windows' starts
            other = window_of(info.name)
            if other.from_ts >= window.to_ts:
                break
            if other.to_ts > window.from_ts:
                marks = self._documents.read_now(info.name, Marks) or {}
                newer += [(mark, place) for place in marks for mark in marks[place] if mark.generation > generation]
        return newer

    def share_drops(self) -> None:
        """Have ``LakeLedger.flush`` add a mirror only if no drop was noted since."""
        self._documents.forget_reads()
        self._drops_seen = self._registry().drops

    def replace_drops(self, load: Load, place: str, window_run: str, floors: Mapping[str, int]) -> None:
        index, selection = load.index, tuple(sorted(load.selection))

        def is_of_window(note: DropNote) -> bool:
            own = (index.pipeline, place, index.window, selection)
            return (note.pipeline, note.place, note.window, note.selection) == own

        def kept(note: DropNote) -> DropNote | None:
            if not is_of_window(note) or note.generation > load.generation:
                return note
            if note.run_hash == index.run_hash or note.window_run != window_run:
                return None
            return msgspec.structs.replace(note, generation=load.generation)

        def replaced(found: Registry | None) -> Registry:
            registry = found or Registry()
            notes = [note for note in map(kept, registry.drops) if note is not None]
            notes += [
                DropNote(
                    pipeline=index.pipeline,
                    place=place,
                    window=index.window,
                    selection=selection,
                    window_run=window_run,
                    database=database,
                    floor_ts=floor_ts,
                    run_hash=index.run_hash,
                    generation=load.generation,
                )
                for database, floor_ts in floors.items()
            ]
            return registry.with_drops(notes)

        if floors or any(map(is_of_window, self._registry().drops)):
            self._documents.update(REGISTRY, Registry, replaced)

    def noted_drops(
        self, mirror: MirrorPlaces, pipelines: Sequence[str], window: tuple[str, int, int], window_run: str
    ) -> list[NotedDrop]:
        counting = [
            note
            for note in self._registry().drops
            if note.pipeline in pipelines
            and _is_about(note, mirror)
            and (_window_key(note) != window or note.window_run == window_run)
        ]
        counting.sort(key=lambda note: note.floor_ts, reverse=True)
        return [NotedDrop(note.floor_ts, note.selection, self._newer_than(note, mirror)) for note in counting]

    def forget_drops(self, mirror: MirrorPlaces) -> None:
        def forgotten(found: Registry | None) -> Registry:
            registry = found or Registry()
            return registry.with_drops(
                msgspec.structs.replace(note, forgotten=tuple(sorted({*note.forgotten, mirror.mirror})))
                if _is_about(note, mirror)
                else note
                for note in registry.drops
            )

        if any(_is_about(note, mirror) for note in self._registry().drops):
            self._documents.update(REGISTRY, Registry, forgotten)

    def _registry(self) -> Registry:
        return self._documents.read(REGISTRY, Registry) or Registry()

    def _newer_than(self, note: DropNote, mirror: MirrorPlaces) -> list[tuple[str, ...]]:
        """The selections of newer loads of the window of *note* that may write to *mirror*."""
        marks = self._documents.read(marks_name(note.pipeline, note.window), Marks) or {}
        return [
            mark.selection
            for place in mirror.places
            for mark in marks.get(place, ())
            if mark.generation > note.generation
        ]


def _is_about(note: DropNote, mirror: MirrorPlaces) -> bool:
    """Whether *note* may be about *mirror*, and still counts for it."""
    return note.database in mirror.names and note.place in mirror.places and mirror.mirror not in note.forgotten


def _window_key(note: DropNote) -> tuple[str, int, int]:
    return note.pipeline, note.window.from_ts, note.window.to_ts
