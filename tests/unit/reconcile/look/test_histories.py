"""Whatever TiCDC, Kafka, the store and people did before and during a reconciliation: what a message needs is never deletable.

A history is a list of steps in a small model of the world. Each time is real time; the clocks of the store, of TiCDC and of the
reconciliation go wrong by what ``SKEW`` allows.
"""

import inspect
import random
import uuid
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support import canal_json
from tests.support.examples import examples
from tests.support.reconciliation_rules import ObjectFacts, Protection, classify_object, deletable
from tests.support.topics import topic_id
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs import claim_checks
from ticdc_replay.codecs.canal import codec as canal
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.reconcile.judge.rules import UNREADABLE, Evidence, ObjectClass, PartitionBounds, ReplayableRange
from ticdc_replay.reconcile.look.coverage import Searched, unsearched
from ticdc_replay.reconcile.look.scan import ReferenceScan

YOUNG, SKEW, PARTITIONS = 20, 8, 2


class Message(NamedTuple):
    """``odd`` chooses how its location is written; 0 is TiCDC's way."""

    offset: int
    at: int
    timestamp: int
    name: str
    odd: int = 0


class Known(NamedTuple):
    """A reference that a decode or a scan wrote down."""

    topic_id: str
    partition: int
    offset: int
    name: str
    unreadable: bool


class Step(NamedTuple):
    """``number`` and ``clock`` are what the step makes of them."""

    kind: str
    partition: int
    number: int
    clock: int


ODD = ("s3://b/{}", "s3://b/{}?versionId=7", "s3://b/{}/", "s3://b/upper/{}", "s3://b/cut/{}")
"""How locations are written: only the first names an object for every reader."""
CODEC = codec_for(Changefeed(protocol="canal-json", topic="t", timezone="UTC", enable_tidb_extension=True), 1 << 20)

KINDS = (
    "write", "write", "write", "write_odd", "other_topic", "retry", "twice", "wait", "wait", "expire", "decode", "pin",
    "recreate", "lose", "foreign", "empty", "garble",
)  # fmt: skip
STEPS = st.lists(
    st.builds(
        Step, st.sampled_from(KINDS), st.integers(0, PARTITIONS - 1), st.integers(0, YOUNG - 1), st.integers(0, SKEW)
    ),
    max_size=30,
)


@dataclass
class World:
    now: int = 10_000
    objects: dict[str, tuple[int, int]] = field(default_factory=dict)
    """name → (size, last modified by the store's clock)."""
    sent: dict[tuple[str, int], list[Message]] = field(default_factory=dict)
    low: dict[tuple[str, int], int] = field(default_factory=dict)
    topic_id: str = "0"
    pending: list[tuple[int, int, int, str]] = field(default_factory=list)
    """Messages to come: (when, partition, error of the clock, name)."""
    known: set[Known] = field(default_factory=set)
    decoded: set[tuple[str, int, int]] = field(default_factory=set)
    pins: list[ReplayableRange] = field(default_factory=list)
    garbled: set[str] = field(default_factory=set)
    recreated: bool = False
    odd: dict[str, int] = field(default_factory=dict)
    """How the locations of objects are written, where not in TiCDC's way."""
    others: set[tuple[str, int, int]] = field(default_factory=set)
    """Offsets of another topic, with the id of this one, that were searched."""
    names: int = 0

    def do(self, step: Step) -> None:
        place = self.topic_id, step.partition
        match step.kind:
            case "wait":
                self.wait(1 + step.number)
            case "write":
                self.pending.append(
                    (self.now + step.number, step.partition, step.number % (SKEW + 1), self.put(step.clock))
                )
            case "write_odd":
                name = self.put(step.clock)
                self.odd[name] = 1 + step.number % (len(ODD) - 1)
                self.pending.append((self.now, step.partition, 0, name))
            case "other_topic":  # brokers and proxies without topic ids give one id to all
                self.others |= {(*place, offset) for offset in range(20)}
            case "twice":  # one object, and its message again after the broker's answer got lost
                name = self.put(step.clock)
                self.pending += [(self.now + step.number * n // 2, step.partition, step.clock, name) for n in (1, 2)]
            case "retry":  # an object whose message never comes
                self.put(step.clock)
            case "empty":
                self.objects[self.put(step.clock)] = 0, self.now + step.clock
            case "foreign":
                self.objects[f"notes-{step.number}.txt"] = 1, self.now + step.clock
            case "garble":
                self.garbled |= {name for name in self.objects if random.Random(name).random() < 0.2}
            case "lose":
                for name in sorted(self.objects)[: step.number % 2]:
                    del self.objects[name]
            case "expire":
                self.low[place] = min(self.low.get(place, 0) + step.number % 4, len(self.sent.get(place, ())))
            case "decode":
                self.read(place, self.low.get(place, 0), len(self.sent.get(place, ())))
            case "pin":
                start, end = self.low.get(place, 0), len(self.sent.get(place, ()))
                self.pins.append(ReplayableRange("t", *place, start, end))
            case "recreate":
                self.topic_id = str(int(self.topic_id) + 1)
                self.recreated = True

    def put(self, clock: int) -> str:
        self.names += 1
        name = f"{uuid.UUID(int=self.names)}.json"
        self.objects[name] = 1, self.now + clock
        return name

    def wait(self, ms: int) -> None:
        self.now += ms
        due = sorted(found for found in self.pending if found[0] <= self.now)
        self.pending = [found for found in self.pending if found[0] > self.now]
        for when, partition, clock, name in due:
            log = self.sent.setdefault((self.topic_id, partition), [])
            log.append(Message(len(log), when, when + clock, name, self.odd.get(name, 0)))

    def read(self, place: tuple[str, int], start: int, end: int) -> None:
        """What a decode or a scan of these offsets leaves behind, of those that are not expired."""
        for message in self.sent.get(place, [])[max(start, self.low.get(place, 0)) : end]:
            found, searched = scanned(message.name, message.odd)
            self.known |= {Known(*place, message.offset, name, name in self.garbled) for name in found}
            if searched:
                self.decoded.add((*place, message.offset))

    def searched(self) -> list[Searched]:
        """What is known to be searched, of this topic and of the other one."""
        return [
            Searched(TopicIdentity("c", name, topic_id(id_)), OffsetRange(name, partition, offset, offset + 1))
            for name, offsets in (("t", self.decoded), ("u", self.others))
            for id_, partition, offset in sorted(offsets)
        ]

    def bounds(self) -> tuple[PartitionBounds, ...]:
        result = []
        for partition in range(PARTITIONS):
            place = self.topic_id, partition
            low, log = self.low.get(place, 0), self.sent.get(place, [])
            first = min((message.timestamp for message in log[low:]), default=None)
            result.append(PartitionBounds("t", self.topic_id, partition, low, len(log), first))
        return tuple(result)

    def needed(self) -> set[str]:
        """The objects of all messages that can be read now, or that are still to come."""
        retained = {
            message.name
            for place, log in self.sent.items()
            if place[0] == self.topic_id
            for message in log[self.low.get(place, 0) :]
        }
        replayable = {
            known.name
            for known in self.known
            for pin in self.pins
            if (pin.topic_id, pin.partition) == (known.topic_id, known.partition)
            and pin.start <= known.offset < pin.end
        }
        return retained | replayable | {name for _, _, _, name in self.pending}

    def ever_needed(self) -> set[str]:
        return {message.name for log in self.sent.values() for message in log} | {found[3] for found in self.pending}


@cache
def scanned(name: str, odd: int) -> tuple[frozenset[str], bool]:
    """What a scan finds in a message that refers to the object *name* in an *odd* way, and whether it counts as searched."""
    written = {3: name.upper(), 4: name[:-9]}.get(odd, name)
    value = canal_json.row(claimCheckLocation=ODD[odd].format(written))
    scan = ReferenceScan(CODEC, "shop", "id")
    scan.add([RawMessage("t", 0, 0, 0, None, value)])
    return frozenset(scan.table()["object_name"].to_pylist()) - {""}, not scan.unsearched


class Judged(NamedTuple):
    kind: ObjectClass
    deletable: bool


def reconcile(world: World, clock: int, grace: int, steps: list[list[Step]]) -> dict[str, Judged]:
    """One reconciliation, with the world going on between its parts."""
    bounds, bounds_ms = world.bounds(), world.now + clock
    for step in steps[0]:
        world.do(step)
    listing, listed_ms = dict(world.objects), world.now + clock
    for step in steps[1]:
        world.do(step)
    for part in bounds:
        world.read((part.topic_id, part.partition), part.low, part.high)
    held = [replace(part, topic_id=topic_id(part.topic_id), cluster_id="c") for part in bounds]
    unread = sum(part.length for part in unsearched(held, world.searched()))
    evidence = Evidence(
        bounds_ms=bounds_ms,
        listed_ms=listed_ms,
        partitions=bounds,
        replayable=tuple(world.pins),
        young_ms=YOUNG,
        skew_ms=SKEW,
        grace_ms=grace,
        owners_complete=True,
        unread_offsets=unread,
    )
    protection = Protection(evidence)
    result = {}
    for name, (size, last_modified) in listing.items():
        references = [found for found in world.known if found.name == name]
        protecting = [protection.protects("t", found.topic_id, found.partition, found.offset) for found in references]
        facts = ObjectFacts(len(references), sum(protecting), any(found.unreadable for found in references))
        kind = classify_object(evidence, name, size, last_modified, facts).kind
        result[name] = Judged(kind, deletable(evidence, kind, last_modified))
    if not evidence.complete:
        assert not any(judged.deletable for judged in result.values())
    return result


def lived(steps: list[Step]) -> World:
    world = World()
    for step in steps:
        world.do(step)
    return world


def history(*steps: tuple[str, int]) -> list[Step]:
    """Steps by kind and number, in the first partition, by right clocks."""
    return [Step(kind, 0, number, 0) for kind, number in steps]


@settings(max_examples=examples(2))
@example(  # the message is late, and the clock of who reads the offsets is ahead of the store's
    history(("write", YOUNG - 1), ("wait", YOUNG - 2)), [[], []], SKEW, 0
)
@example(  # nobody knows which object its location means
    [Step("write_odd", 0, 0, 0), *history(*[("wait", YOUNG - 1)] * 3)], [[], []], 0, 0
)
@example(  # it expires before the scan, and another topic with its id was searched up to there
    history(("write", 0), ("other_topic", 0), *[("wait", YOUNG - 1)] * 3), [history(("expire", 1)), []], 0, 0
)
@example(  # Kafka has expired it, but a pinned window holds it
    history(("write", 0), ("wait", 0), ("decode", 0), ("pin", 0), ("expire", 1), *[("wait", YOUNG - 1)] * 3),
    [[], []],
    0,
    0,
)
@example(  # it expires after the offsets were read, before the scan: nothing is known of what it referred to
    history(("write", 0), *[("wait", YOUNG - 1)] * 3), [history(("expire", 1)), []], 0, 0
)
@given(STEPS, st.lists(STEPS, min_size=2, max_size=2), st.integers(0, SKEW), st.sampled_from([0, 0, 60]))
def test_no_object_of_a_message_that_can_be_read_is_ever_deletable(before, during, clock, grace):
    world = lived(before)
    needed_at_first = world.needed()
    judged = reconcile(world, clock, grace, during)
    deleted = {name for name, found in judged.items() if found.deletable}
    assert not deleted & world.needed()
    assert all(judged[name].kind in (ObjectClass.ORPHANED, ObjectClass.EXPIRED) for name in deleted)
    assert not {name for name in deleted if judged[name].kind is ObjectClass.ORPHANED} & needed_at_first


@settings(max_examples=examples())
@example(  # Kafka has lost the message of the first; the clock of TiCDC is behind the store's
    [
        Step("write", 0, 0, SKEW),
        *history(("wait", 0), ("write", 0), ("wait", 0), ("expire", 1), *[("wait", YOUNG - 1)] * 3),
    ],
    0,
)
@given(STEPS, st.integers(0, SKEW))
def test_what_is_called_a_left_over_never_had_a_message(before, clock):
    world = lived(before)
    if world.recreated:
        return
    judged = reconcile(world, clock, 0, [[], []])
    orphaned = {name for name, found in judged.items() if found.kind is ObjectClass.ORPHANED}
    assert not (orphaned - world.odd.keys()) & world.ever_needed()
    # As long as a message with such a location is there, nothing is deletable.
    assert not {name for name in orphaned if judged[name].deletable} & world.ever_needed()


def test_every_class_comes_up_and_left_overs_are_deletable_at_last():
    found = set()
    for seed in range(300):
        choose = random.Random(seed)
        steps = [
            Step(choose.choice(KINDS), choose.randrange(PARTITIONS), choose.randrange(YOUNG), choose.randrange(SKEW))
            for _ in range(30)
        ]
        found |= set(reconcile(lived(steps), 0, 50, [[], []]).values())
    assert {judged.kind for judged in found} == set(ObjectClass)
    assert {judged.kind for judged in found if judged.deletable} == {ObjectClass.ORPHANED, ObjectClass.EXPIRED}


def test_the_status_that_marks_unreadable_objects_is_one_that_codecs_give():
    assert all(f'"{UNREADABLE}"' in inspect.getsource(codec) for codec in (canal, claim_checks))
