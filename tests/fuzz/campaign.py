"""Many changes of many messages, and what came out."""

import resource
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzz.mutations import MUTATIONS, Changed, edited
from tests.fuzz.oracle import Allowed, Answer, DefectError, Subject, judge, same_meaning
from ticdc_replay.captures import Capture
from ticdc_replay.domain.events import RowEvent

_FRESH_EVERY = 50
"""Of so many changed messages one is also read by a codec that has read nothing before."""


_CONVERT_EVERY = 200
"""So many changed messages are typed at a time."""
_MOST_MEMORY = 2 << 30
"""Bytes of address space of one process, libraries included."""


class Found(NamedTuple):
    """A defect, and how to see it again: ``python -m tests.fuzz --again <capture> <seed>``."""

    capture: str
    mutation: str
    seed: int
    what: str


class Outcome(NamedTuple):
    """What a campaign against one capture came to."""

    protocol: str
    changed: Counter[str]
    """By kind of change."""
    answers: Counter[str]
    """By what came out: the same events, other events, quarantine and its reasons."""
    defects: list[Found]


def run(folder: Path, seed: int, count: int, subject: Subject | None = None) -> Outcome:
    """Change *count* messages of the capture in *folder*; the n-th change follows from *seed* + n alone."""
    subject = subject or Subject(Capture(folder))
    outcome = Outcome(subject.changefeed.protocol, Counter(), Counter(), [])
    for number in range(seed, seed + count):
        kind, problem = once(subject, number, outcome.answers, fresh=number % _FRESH_EVERY == 0)
        outcome.changed[kind] += 1
        if problem is None and (number % _CONVERT_EVERY == 0 or number == seed + count - 1):
            kind, problem = "conversion", _conversion(subject)
        if problem is not None:
            outcome.defects.append(Found(f"{folder.parent.name}/{folder.name}", kind, number, problem))
    return outcome


def _conversion(subject: Subject) -> str | None:
    try:
        subject.convert()
    except DefectError as defect:
        return f"among the rows of the last {_CONVERT_EVERY} seeds: {defect}"
    return None


def once(subject: Subject, seed: int, answers: Counter[str], fresh: bool = True) -> tuple[str, str | None]:
    """The change that *seed* stands for: its kind, and the defect that it showed."""
    chance = Random(seed)
    number = chance.randrange(len(subject.messages))
    message = subject.messages[number]
    original = subject.original(number)
    kind = ""
    try:
        if any(_reference(event) for event in original.events) and chance.random() < 0.5:
            kind = "claim-check object"
            _claim_check(chance, subject, number, answers)
            return kind, None
        kind, changed = _change(chance, subject, number)
        answer = subject.ask(changed.message)
        # Again, for a codec learns a form when it meets it, and compiles it when it meets it for the second time.
        if not same_meaning(answer, subject.ask(changed.message)):
            raise DefectError("a message says something else the second time")
        _count(answers, original, answer)
        judge(original, answer, changed.allowed)
        if fresh and not same_meaning(answer, subject.ask(changed.message, subject.fresh_codec())):
            raise DefectError("what was read before changes what a message says")
    except DefectError as defect:
        return kind, f"{defect} ({message.place})"
    return kind, None


def _change(chance: Random, subject: Subject, number: int) -> tuple[str, Changed]:
    weights = [weight for _, weight in MUTATIONS.values()]
    while True:
        kind = chance.choices(list(MUTATIONS), weights)[0]
        changed = MUTATIONS[kind][0](chance, subject, subject.messages[number])
        if changed is not None:
            return kind, changed


def _reference(event: object) -> bool:
    return isinstance(event, RowEvent) and event.reference is not None


def _claim_check(chance: Random, subject: Subject, number: int, answers: Counter[str]) -> None:
    """An object that is damaged, or another row's."""
    message, original = subject.messages[number], subject.original(number)
    small = chance.choice([event for event in original.events if _reference(event)])
    assert isinstance(small, RowEvent)
    assert small.reference is not None
    objects = sorted((subject.capture.folder / "objects").iterdir())
    own = (subject.capture.folder / "objects" / small.reference.object_name).read_bytes()
    other = chance.choice(objects).read_bytes()
    right = subject.resolve(message, small, own)
    if chance.random() < 0.4:
        answer, allowed = subject.resolve(message, small, other), Allowed.SAME_OR_BAD
    else:
        content = (
            edited(chance, own, other) if chance.random() < 0.8 else chance.choice((b"", b"{}", own + own, own[:-1]))
        )
        answer, allowed = subject.resolve(message, small, content), Allowed.ANYTHING
    _count(answers, right, answer)
    judge(right, answer, allowed)


def _count(answers: Counter[str], original: Answer, answer: Answer) -> None:
    if answer.bad:
        for event, text in zip(answer.events, answer.lines, strict=True):
            if text is None:
                answers[f"quarantine: {getattr(event, 'reason', 'bad_cell')}"] += 1
    else:
        answers["the same" if answer.lines == original.lines else "other events"] += 1


def summary(outcomes: Iterable[Outcome]) -> list[str]:
    """A table, one line a protocol: messages changed, what came out, defects."""
    rows: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.protocol, []).append(outcome)
    lines = [
        "| protocol | changed | the same | other events | quarantined | reasons | defects |",
        "|---|---|---|---|---|---|---|",
    ]
    for protocol, members in sorted(rows.items()):
        answers = sum((member.answers for member in members), Counter[str]())
        reasons = Counter({name: count for name, count in answers.items() if name.startswith("quarantine")})
        cells: Sequence[object] = (
            protocol,
            sum(member.changed.total() for member in members),
            answers["the same"],
            answers["other events"],
            reasons.total(),
            len(reasons),
            sum(len(member.defects) for member in members),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def measured(folder: Path, seed: int, count: int) -> tuple[Outcome, int]:
    """What ``run`` came to, and the largest resident set of this process so far, in bytes.

    More memory than ``_MOST_MEMORY`` is refused to this process from now on, and is then a defect.
    """
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    outcome = run(folder, seed, count)
    return outcome, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
