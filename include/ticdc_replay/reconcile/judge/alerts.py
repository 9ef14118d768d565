"""The alerts of a reconciliation, as sentences. Pure: the facts are given."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ticdc_replay.domain import tso
from ticdc_replay.reconcile.judge.lost_rows import LaterVersion, LostRow
from ticdc_replay.reconcile.judge.report import Alert
from ticdc_replay.reconcile.judge.rules import Evidence, ObjectClass, PartitionBounds, ReferenceClass
from ticdc_replay.reconcile.judge.summary import Summary
from ticdc_replay.storage.facts import Archival, Expiration, StoreFacts

MOST = 1_000
"""Missing objects that a report names one by one."""

_DAY_MS = 86_400_000


def missing_alerts(
    lost: Sequence[LostRow], later: Mapping[LostRow, LaterVersion], sources: Mapping[str, str | None]
) -> Iterator[Alert]:
    """One for each of *lost*. *sources*: the connection of each pipeline's upstream database, by pipeline."""
    for row in lost:
        table = f"{row.schema}.{row.table}" if row.table else "an unknown table"
        of_row = f"key {row.key}" if row.key is not None else "a key that is not known"
        commit = "" if row.commit_ts is None else f", commitTs {tso.describe(row.commit_ts)}"
        what = f"object {row.object_name} does not exist" if row.object_name else "the message names no object"
        yield Alert(
            kind="missing",
            text=f"{row.topic}[{row.partition}]@{row.offset}: {what}: the row of {table} with {of_row}{commit}",
            topic=row.topic,
            partition=row.partition,
            offset=row.offset,
            schema=row.schema,
            table=row.table,
            key=row.key,
            commit_ts=row.commit_ts,
            object_name=row.object_name,
            still_from=tuple(_still_from(row, later.get(row), sources.get(row.pipeline))),
        )


def more_missing_alert(references: int) -> Alert:
    """For those of *references* that are missing and not named one by one."""
    return Alert(
        kind="missing",
        text=f"only the first {MOST} of {references} references to missing objects are listed here; the files of references "
        "have all (class missing, protecting)",
    )


def unlisted_alerts(unlisted: Sequence[str]) -> Iterator[Alert]:
    """One where the inventory lacks the objects *unlisted*, which were there before it began."""
    if unlisted:
        more = "" if len(unlisted) == 1 else f" and {len(unlisted) - 1:,} more"
        yield Alert(
            kind="inventory",
            text=f"the inventory lacks objects that exist and are older than it: {unlisted[0]}{more}. What else it lacks is not "
            "known, so nothing is planned by this reconciliation",
            object_name=unlisted[0],
        )


def altered_alerts(summary: Summary) -> Iterator[Alert]:
    """One for each table with messages whose object is another than was recorded."""
    for found in summary.references_by_table:
        if found.kind == ReferenceClass.ALTERED and found.protecting:
            yield Alert(
                kind="altered",
                text=f"{found.schema}.{found.table}: {found.protecting} references of messages that can be read again are to "
                "objects that are other ones than were pinned or read before. A replay puts their rows into quarantine; see the "
                "files of references (class altered)",
                schema=found.schema,
                table=found.table,
            )


def malformed_alerts(summary: Summary) -> Iterator[Alert]:
    """One for each table with objects that messages need and that are none of claim checks."""
    for found in summary.objects_by_table:
        if found.kind == ObjectClass.MALFORMED and found.needed:
            yield Alert(
                kind="malformed",
                text=f"{found.schema}.{found.table}: {found.needed} objects that messages need have no bytes, or could not be "
                "read as claim-check objects. A replay puts their rows into quarantine; see the files of objects "
                "(class malformed, protecting)",
                schema=found.schema,
                table=found.table,
            )


def oldest_ms(partitions: Iterable[PartitionBounds], now_ms: int) -> dict[str, int]:
    """How old (ms) the oldest message of each topic is. Kafka keeps one longer than ``retention.ms``: until its segment is closed
    and the last message in it is old enough."""
    ages: dict[str, int] = {}
    for bounds in partitions:
        if bounds.first_ms is not None:
            ages[bounds.topic] = max(now_ms - bounds.first_ms, ages.get(bounds.topic, 0))
    return ages


def lifecycle_alerts(
    facts: StoreFacts, retention_ms: Mapping[str, int | None], held_ms: Mapping[str, int]
) -> Iterator[Alert]:
    """One for each rule of the store that deletes or archives objects while Kafka still has their messages.

    *retention_ms*: how long Kafka keeps each topic's (-1: for ever, None: not known); *held_ms*: how old the oldest are
    (``oldest_ms``).
    """
    topics = dict(held_ms)
    for topic, ms in retention_ms.items():
        if ms is not None:
            topics[topic] = ms if ms < 0 else max(ms, held_ms.get(topic, 0))
    rules: tuple[Expiration | Archival, ...] = (*(facts.expirations or ()), *(facts.archivals or ()))
    for rule in rules:
        short = sorted(topic for topic, ms in topics.items() if ms < 0 or rule.least_days * _DAY_MS <= ms)
        if short:
            kept = {topics[topic] for topic in short}
            longest = "without end" if min(kept) < 0 else f"for {max(kept) / _DAY_MS:.3g} days"
            yield Alert(
                kind="lifecycle",
                text=f"{_rule(rule)}, but Kafka keeps messages of {_names(short)} {longest}: objects that messages still need "
                "can't be read then",
                topic=short[0] if len(short) == 1 else "",
            )


def lifecycle_notes(facts: StoreFacts, retention_ms: Mapping[str, int | None]) -> Iterator[str]:
    """What could not be found out about rules of the store and Kafka's retention."""
    for unknown in facts.unknown:
        yield f"not known of the store: {unknown}"
    unknown_topics = sorted(topic for topic, ms in retention_ms.items() if ms is None)
    if unknown_topics:
        yield (
            f"not known how long Kafka keeps messages of {_names(unknown_topics)}: the account may not describe the "
            "configuration of topics, so the store's lifecycle rules were not compared with it"
        )


def evidence_alerts(evidence: Evidence) -> Iterator[Alert]:
    """What prevents any deletion until somebody attends to it."""
    if evidence.unread_offsets:
        places = ", ".join(_offsets(part.topic, part.partition, part.start, part.end) for part in evidence.unread)
        yield Alert(
            kind="unread",
            text=f"{evidence.unread_offsets} offsets can be read and were not searched for references, or hold messages that "
            f"can't be searched; nothing may be deleted meanwhile: {places}",
        )
    if evidence.clock_differs:
        yield Alert(kind="clock", text=next(each for each in evidence.obstacles() if "clock" in each))
    for objection in evidence.objections:
        yield Alert(kind="owners", text=f"{objection}; nothing may be deleted meanwhile")


def _still_from(row: LostRow, later: LaterVersion | None, source: str | None) -> Iterator[str]:
    if row.other_object is not None:
        yield f"object {row.other_object}, which holds the same version of the row"
    if row.commit_ts is not None:
        named = f" (connection {source})" if source is not None else ""
        yield f"the upstream database{named} at TSO {row.commit_ts}, as long as its garbage collection keeps that"
    if later is not None:
        yield f"a later version of the row, commitTs {tso.describe(later.commit_ts)}, in object {later.object_name}"


def _rule(rule: Expiration | Archival) -> str:
    when = f"after {rule.days} days" if rule.days is not None else f"of any age from {rule.date} on"
    what = f"moves objects to {rule.storage_class}" if isinstance(rule, Archival) else "deletes objects"
    some = ", of some size or with some tag," if rule.conditional else ""
    return f"lifecycle rule {rule.rule!r} (prefix {rule.prefix!r}){some} {what} {when}"


def _names(topics: Sequence[str]) -> str:
    shown = ", ".join(topics[:5])
    return f"{shown} and {len(topics) - 5} more topics" if len(topics) > 5 else shown


def _offsets(topic: str, partition: int, start: int, end: int) -> str:
    return f"{topic}[{partition}]@{start}" if end == start + 1 else f"{topic}[{partition}]@{start}..{end - 1}"
