"""Whatever happens between a plan and the end of its execution: what is needed stays, and each object has one result."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.deletions import LOW, Scene, name, with_clock
from tests.support.examples import examples
from ticdc_replay.reconcile.delete.results import deletion_folder, progress_of
from ticdc_replay.store_stages import deletion

pytestmark = pytest.mark.slow

OBJECTS = 6


class KilledError(Exception):
    """The process ends here."""


class Attempt(NamedTuple):
    """An execution: what happens before it, and after how many objects it ends; with or without its results written."""

    referenced: int | None
    overwritten: int | None
    removed: int | None
    ends_after: int | None
    silently: bool


NUMBERS = st.one_of(st.none(), st.integers(1, OBJECTS))
ATTEMPTS = st.lists(st.builds(Attempt, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans()), max_size=4)
REFERENCES = st.dictionaries(st.integers(1, OBJECTS), st.sampled_from([LOW - 1, LOW]), max_size=OBJECTS)


def attempt(scene: Scene, plan: str, references: dict[str, int], ends_after: int | None, silently: bool) -> bool:
    """Execute the plan; whether it came to its end. An attempt that is killed *silently* has no time to write its results."""
    folder = f"{deletion_folder(plan)}/"
    before = {found.name for found in scene.artifacts.list(folder)}
    begun = 0

    class Ends:
        def __init__(self, _hold: object) -> None:
            pass

        def __call__(self) -> None:
            nonlocal begun
            begun += 1
            if ends_after is not None and begun > ends_after:
                raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deletion, "EverySoOften", Ends)
        patch.setattr(deletion, "_THREADS", 1)
        try:
            scene.execute(plan, references)
        except KilledError:
            after = {found.name for found in scene.artifacts.list(folder)} - before
            results = sorted(found for found in after if "results" in found)
            if silently and results:
                scene.artifacts.delete(results[-1])
            return False
    return True


@settings(max_examples=examples(0.2))
@given(REFERENCES, ATTEMPTS)
def test_nothing_that_is_needed_goes_and_each_object_has_one_result(planned_references, attempts):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for scene in with_clock(Scene(Path(folder), (Path(folder) / "objects").as_uri()), patch):
            scene.put(*range(1, OBJECTS + 1))
            references = {name(number): offset for number, offset in planned_references.items()}
            planned = {name(number) for number in range(1, OBJECTS + 1)} - {
                found for found, offset in references.items() if offset >= LOW
            }
            if not planned:
                return
            plan = scene.plan(references).plan_hash
            overwritten: set[str] = set()
            removed: set[str] = set()
            done = False
            for each in (*attempts, Attempt(None, None, None, None, False)):
                there = scene.names()
                if each.overwritten and name(each.overwritten) in there:
                    scene.store.put(name(each.overwritten), b"another object that TiCDC would never write here")
                    overwritten.add(name(each.overwritten))
                if each.referenced and name(each.referenced) in there:
                    references[name(each.referenced)] = LOW + 5
                if each.removed and name(each.removed) in there - overwritten:
                    scene.store.delete(name(each.removed))
                    removed.add(name(each.removed))
                needed = {found for found, offset in references.items() if offset >= LOW} | overwritten
                if not done:
                    done = attempt(scene, plan, references, each.ends_after, each.silently)
                assert (needed & there) - removed <= scene.names()
                assert {name(number) for number in range(1, OBJECTS + 1)} - planned - removed <= scene.names()
            results = scene.results(plan)
            assert results.keys() == planned
            written = [name for file in progress_of(scene.artifacts, plan).values() for name in file.results]
            assert sum(pq.read_metadata(scene.artifacts_folder / file).num_rows for file in written) == len(planned)
            ours = {
                found.name
                for found in results.values()
                if found.outcome == "deleted" or (found.outcome == "gone" and found.tried_before)
            }
            assert planned - scene.names() - removed <= ours
            assert not ours & scene.names()
