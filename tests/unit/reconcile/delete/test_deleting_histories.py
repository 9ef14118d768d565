"""Whatever happens before, between and during the steps of a deletion: nothing that a readable message needs is deleted.

The world of ``test_histories``, with a store in a folder. What Kafka and Spark would find stands in the model, found in the order
in which ``store_stages.evidence`` asks; plan, approval, recheck and execution are what runs.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.deletions import Scene, with_clock
from tests.support.examples import examples
from tests.support.reconciliation_rules import ObjectFacts, Protection, classify_object, deletable
from tests.unit.reconcile.look.test_histories import (
    KINDS,
    PARTITIONS,
    SKEW,
    YOUNG,
    Known,
    Message,
    Step,
    World,
    history,
    scanned,
)
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.reconcile.delete import deletion_plan as plans
from ticdc_replay.reconcile.judge.records import OBJECTS
from ticdc_replay.reconcile.judge.rules import Evidence, PartitionBounds, ReplayableRange
from ticdc_replay.state import tables
from ticdc_replay.store_stages import deletion, deletion_guards

pytestmark = pytest.mark.slow

TICK_MS = 180_000
"""The world's unit of time: what is too young to be judged is younger than an hour, which is the grace period, too."""
BEGIN_MS = 1_700_000_000_000
GRACE = 20
KINDS_HERE = (*KINDS, "pin", "decode_ends", "quarantine", "quarantine", "accept", "write_again", "write_again")
"""``pin`` begins a decode, which takes a lease."""
STEP = st.builds(
    Step, st.sampled_from(KINDS_HERE), st.integers(0, PARTITIONS - 1), st.integers(0, YOUNG - 1), st.integers(0, SKEW)
)
WAIT = history(("wait", YOUNG - 1)) * 3
"""What is there before is old after it."""
BEFORE = st.tuples(st.lists(STEP, min_size=5, max_size=25), st.lists(STEP, max_size=8)).map(
    lambda found: [*found[0], *WAIT, *found[1]]
)
MEANWHILE = st.lists(st.tuples(st.integers(0, 24), STEP), max_size=12)
"""Steps, and between which parts of the program they happen."""


def ms(tick: int) -> int:
    return BEGIN_MS + tick * TICK_MS


class Decode(NamedTuple):
    """A decode that runs: what it reads, Kafka may expire behind it."""

    part: ReplayableRange
    messages: tuple[Message, ...]


@dataclass
class StoredWorld(World):
    """Objects are files in *folder*."""

    folder: Path = Path()
    lost: set[str] = field(default_factory=set)
    """Objects that somebody else removed."""
    running: list[Decode] = field(default_factory=list)
    quarantined: set[tuple[str, int, int]] = field(default_factory=set)

    def live(self, steps: Iterable[Step]) -> None:
        for step in steps:
            before = dict(self.objects)
            self.do(step)
            for name, (size, modified) in self.objects.items() - before.items():
                self.store(name, size, modified)
            for name in before.keys() - self.objects.keys():
                (self.folder / name).unlink(missing_ok=True)
                self.lost.add(name)

    def do(self, step: Step) -> None:
        place = self.topic_id, step.partition
        log = self.sent.get(place, [])
        match step.kind:
            case "pin":
                low = self.low.get(place, 0)
                self.running.append(Decode(ReplayableRange("t", *place, low, len(log)), tuple(log[low:])))
            case "decode_ends":  # it leaves its references, then its lease
                for part, messages in self.running[:1]:
                    for message in messages:
                        found = (part.topic_id, part.partition, message.offset)
                        names, searched = scanned(message.name, message.odd)
                        self.known |= {Known(*found, name, name in self.garbled) for name in names}
                        if searched:
                            self.decoded.add(found)
                self.running = self.running[1:]
            case "quarantine":
                self.quarantined |= {found for found in self.decoded if found[1:] == (step.partition, step.number % 4)}
            case "accept":
                self.quarantined -= set(sorted(self.quarantined)[: step.number % 2])
            case (
                "write_again"
            ):  # TiCDC gives each object a new name; somebody may restore one, and send its message again
                for name in sorted(self.objects)[: step.number % 3]:
                    self.objects[name] = 2, self.now
                    self.pending.append((self.now + step.number, step.partition, 0, name))
            case _:
                super().do(step)

    def store(self, name: str, size: int, modified: int) -> None:
        (self.folder / name).write_bytes(b"x" * size)
        os.utime(self.folder / name, ns=(ms(modified) * 1_000_000,) * 2)

    def bounds(self) -> tuple[PartitionBounds, ...]:
        return tuple(
            replace(part, first_ms=None if part.first_ms is None else ms(part.first_ms)) for part in super().bounds()
        )

    def replayable(self) -> tuple[ReplayableRange, ...]:
        """What decodes that run and quarantined messages protect."""
        one = (ReplayableRange("t", *found, found[2] + 1) for found in self.quarantined)
        return (*(found.part for found in self.running), *one)

    def needed(self) -> set[str]:
        """The objects of all messages that can be read now, or are still to come."""
        return (
            {name for _, _, _, name in self.pending}
            | {message.name for found in self.running for message in found.messages}
            | {
                message.name
                for place, log in self.sent.items()
                for message in log
                if (*place, message.offset) in self.quarantined
                or (place[0] == self.topic_id and message.offset >= self.low.get(place, 0))
            }
        )

    def check(self) -> None:
        missing = {name for name in self.needed() if not (self.folder / name).exists()}
        assert missing <= self.lost


class Program:
    """The library at work in a world; *meanwhile* is what happens between its parts."""

    def __init__(self, scene: Scene, world: StoredWorld, clock: int, meanwhile: list[tuple[int, Step]]) -> None:
        self.scene, self.world, self.clock, self.meanwhile = scene, world, clock, meanwhile
        self.moment = 0

    def now_ms(self) -> int:
        return ms(self.world.now + self.clock)

    def time_passes(self) -> None:
        self.world.check()
        self.world.live(step for moment, step in self.meanwhile if moment == self.moment)
        self.moment += 1
        self.world.check()

    def judge(self, plan_hash: str | None = None) -> str:
        """Survey, scan, list (or read the plan), gather and join, in the order of ``store_stages.reconcile``."""
        world = self.world
        bounds_ms, surveyed = self.now_ms(), world.bounds()
        self.time_passes()
        for part in surveyed:
            world.read((part.topic_id, part.partition), part.low, part.high)
        self.time_passes()
        listed_ms = bounds_ms if plan_hash else ms(world.now)
        objects = self._planned(plan_hash) if plan_hash else self._listed()
        self.time_passes()
        held = {part.partition: part for part in world.bounds() if part.topic_id == surveyed[0].topic_id}
        self.time_passes()
        running, replayable = [found.part for found in world.running], world.replayable()
        self.time_passes()
        partitions, readable = [], set[tuple[str, int, int]]()
        for asked in surveyed:
            now = held.get(asked.partition)  # None where the topic was made anew
            if now is not None and now.low > asked.low:
                part = replace(asked, low=min(now.low, asked.high), first_ms=now.first_ms)
            else:
                part = asked
            partitions.append(part)
            if now is not None:
                readable |= {(part.topic_id, part.partition, offset) for offset in range(part.low, part.high)}
        ends = {(part.topic_id, part.partition): part.high for part in surveyed}
        for read in running:
            place = read.topic_id, read.partition
            readable |= {(*place, offset) for offset in range(read.start, min(read.end, ends.get(place, read.end)))}
        store = self.scene.context.store
        evidence = Evidence(
            bounds_ms=bounds_ms,
            listed_ms=listed_ms,
            partitions=tuple(partitions),
            replayable=replayable,
            young_ms=store.rules.young_ms,
            skew_ms=store.rules.clock_skew_seconds * 1000,
            grace_ms=store.deletion.grace_hours * 3_600_000,
            owners_complete=True,
            unread_offsets=len(readable - world.decoded),
        )
        protection = Protection(evidence)
        rows = []
        for row in objects:
            name, size, _, modified, _ = row
            references = [found for found in world.known if found.name == name]
            protecting = sum(protection.protects("t", *found[:3]) for found in references)
            facts = ObjectFacts(len(references), protecting, any(found.unreadable for found in references))
            kind, reason = classify_object(evidence, name, size, modified, facts)
            may_go = deletable(evidence, kind, modified)
            rows.append((*row, kind, reason, len(references), protecting, None, None, may_go))
        return self.scene.write_classified(rows, (), evidence, plan_hash)

    def guard(self, _pipeline: object) -> tuple[ReplayableRange, ...]:
        """In place of ``replayable_ranges``, which is asked before each file of the plan."""
        self.time_passes()
        found = self.world.replayable()
        self.time_passes()
        return found

    def _listed(self) -> list[tuple[object, ...]]:
        return [
            (found.name, found.size, found.etag, int(found.last_modified.timestamp() * 1000), None)
            for found in self.scene.store.list()
        ]

    def _planned(self, plan_hash: str) -> list[tuple[object, ...]]:
        plan = plans.read_plan(self.scene.artifacts, plan_hash)
        tables = [plans.read_planned(self.scene.artifacts, plan, number) for number in range(len(plan.files))]
        return [tuple(row[name] for name in OBJECTS.names) for table in tables for row in table.to_pylist()]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("store")
    (folder / "objects").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        made = Scene(folder, (folder / "objects").as_uri())
        made.write(
            "automatic",
            deletion={"policy": "automatic", "grace_hours": 1},
            rules={"young_hours": 1, "clock_skew_seconds": SKEW * TICK_MS // 1000},
        )
        yield from with_clock(made, patch)


def lived(
    scene: Scene, before: list[Step], meanwhile: list[tuple[int, Step]], clock: int
) -> tuple[StoredWorld, set[str]]:
    """A world with a deletion in it, and the names that were deleted."""
    folder = scene.folder / "objects"
    for left in folder.iterdir():
        left.unlink()
    world = StoredWorld(folder=folder)
    program = Program(scene, world, clock, meanwhile)
    context = scene.context
    with pytest.MonkeyPatch.context() as patch:
        for module in (deletion, deletion_guards):
            patch.setattr(module, "now_ms", program.now_ms)
        patch.setattr(deletion_guards, "replayable_ranges", program.guard)
        world.live(before)
        try:
            record = deletion.make_plan(context, program.judge())
        except PolicyStopError:
            record = None
        if record is None:
            return world, set()
        try:
            program.time_passes()
            world.live([Step("wait", 0, GRACE + SKEW, 0)])
            program.time_passes()
            recheck = program.judge(record.plan_hash)
            program.time_passes()
            with contextlib.suppress(PolicyStopError):
                deletion.execute(context, record.plan_hash, recheck)
            world.check()
            world.live(WAIT)
            world.check()
        finally:  # else later worlds would find its objects on a plan that waits
            with contextlib.suppress(PolicyStopError):
                deletion.decide(context, record.plan_hash, False, "the test", "it is over")
            with context.state._database.writing() as connection:  # and every world has the same names
                connection.execute(tables.deletion_execution.delete())
            context.__exit__()
    results = scene.results(record.plan_hash)
    return world, {name for name, result in results.items() if result.outcome == "deleted"}


READ = history(("write", 0), ("wait", 0), ("write", 0), ("wait", 0), ("write", 0), ("wait", 0), ("retry", 0))
"""Three messages that refer to an object each, and an object without a message."""
EXPIRED = history(("expire", 3))


@settings(max_examples=examples(0.6))
@example([*READ, *history(("decode", 0), ("quarantine", 1)), *EXPIRED, *WAIT], [], 0)
@example([*READ, *history(("decode", 0), ("pin", 0)), *EXPIRED, *WAIT], [], 0)
@example(  # a decode begins after the survey, and what it has read expires before the scan
    [*READ, *WAIT], [(0, step) for step in history(("pin", 0), ("expire", 3))], 0
)
@example(  # the same, and it ends after it was asked for, with one of its messages set aside
    [*READ, *WAIT],
    [(0, step) for step in history(("pin", 0), ("expire", 3))]
    + [(4, step) for step in history(("decode_ends", 0), ("quarantine", 1))],
    0,
)
@example(  # somebody restores the object, and sends its message again, while the plan is executed
    [*history(("retry", 0)), *WAIT], [(13, *history(("write_again", 1)))], 0
)
@given(BEFORE, MEANWHILE, st.integers(0, SKEW))
def test_what_a_message_needs_is_there_all_the_time(scene, before, meanwhile, clock):
    lived(scene, before, meanwhile, clock)


def test_what_nobody_needs_is_deleted_and_what_only_a_decode_or_a_quarantine_needs_stays(scene):
    world, deleted = lived(scene, [*READ, *WAIT], [], 0)
    assert len(deleted) == 1
    assert not deleted & world.needed()
    _, deleted = lived(scene, [*READ, *EXPIRED, *WAIT], [], 0)
    assert len(deleted) == 4
    world, deleted = lived(scene, [*READ, *history(("decode", 0), ("quarantine", 1)), *EXPIRED, *WAIT], [], 0)
    assert len(deleted) == 3
    assert len(world.needed()) == 1
    _, deleted = lived(scene, [*READ, *history(("decode", 0), ("pin", 0)), *EXPIRED, *WAIT], [], 0)
    assert len(deleted) == 1
    _, deleted = lived(scene, [*READ, *history(("pin", 0)), *EXPIRED, *WAIT], [], 0)
    assert deleted == set(), "what the decode has found is not known yet"
