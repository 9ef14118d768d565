"""Which definition a table has at a commitTs, from declared definitions and the DDL found in Kafka.

DDL is kept as it was sent, with the ranges that were searched, and definitions are computed from it each time: so they
do not depend on the order in which windows are pinned, decoded and repeated. DDL before a gap does not count, since the
gap may hold more: such tables are typed by the wire.
"""

from collections.abc import Iterable, Mapping

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.tso import MAX_TSO
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.schemas.epochs import Epoch
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.unread import UnreadDdl, forgetting
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.base_definitions import base_epochs
from ticdc_replay.stages.window.look_back import look_back
from ticdc_replay.stages.window.searched_ddl import Reach, reaches


def known_schemas(context: ReplayContext, window: Window) -> SchemaHistory:
    """The table definitions at the start of *window*, with all earlier DDL. Looks back into Kafka for what is not known
    yet, and raises what ``look_back`` raises."""
    ends = look_back(context, window)
    return _history(context, window, window.from_ts, window.from_ts, ends).since(window.from_ts)


def recorded_schemas(
    context: ReplayContext, window: Window, unread: Iterable[UnreadDdl] | None = None
) -> SchemaHistory:
    """The definitions known by now for *window*, its own DDL included. Asks nothing of Kafka.

    *unread* is its DDL that can't be read, if known; otherwise DDL before a gap in the window does not count. If a
    person accepted such DDL as lost, its tables are typed by the wire, or as declared.
    """
    if unread is None:
        return _history(context, window, window.to_ts, window.to_ts - 1, {}).since(window.from_ts)
    history = _history(context, window, window.to_ts, window.from_ts, {})
    losses = {
        (loss.topic.name, loss.partition, loss.offset)
        for loss in context.state.quarantine.accepted_losses(context.pipeline.name)
    }
    lost: list[UnreadDdl] = []
    held: list[UnreadDdl] = []
    for each in unread:
        (lost if (each.topic, each.partition, each.offset) in losses else held).append(each)
    topic_of = context.changefeed.topic_of
    history = forgetting(history, lost, topic_of, accepted_as=_declared(context))
    return forgetting(history, held, topic_of).since(window.from_ts)


def all_schemas(context: ReplayContext) -> SchemaHistory:
    """All that is known of the pipeline's tables by now, of whatever time. Reads no message."""
    state, name = context.state, context.pipeline.name
    history = _declared(context).with_epochs(state.ddl.earlier_epochs(name))
    history = history.with_ddls(known.event for known in state.ddl.all(name))
    return _with_bases(context, history, MAX_TSO).with_versions(state.table_versions.all(name))


def _history(
    context: ReplayContext, window: Window, until_ts: int, at_ts: int, ends: Mapping[TopicIdentity, int]
) -> SchemaHistory:
    """The definitions that DDL below *until_ts* (TSO) gives rows of *window*; *ends* are ``look_back``'s.

    DDL counts if no gap lies between it and *at_ts* (TSO). DDL before the changefeed's start-ts came from another
    changefeed, and DDL between the two from nobody.
    """
    state, name = context.state, context.pipeline.name
    start_ts = context.loaded.start_ts or 0
    if window.to_ts <= start_ts:  # of the other one altogether
        start_ts = 0
    searched = reaches(state.ddl.scans(name), state.ddl.earlier_scans(name), at_ts, ends)
    by_topic = {topic: reach.since(start_ts) for topic, reach in searched.items()}
    declared = _declared(context)
    counting = [
        known.event
        for known in state.ddl.all(name)  # read after the scans, which are recorded after it
        if known.event.commit_ts < until_ts
        and known.topic in by_topic
        and known.event.commit_ts >= by_topic[known.topic].known_from
    ]
    by_name = {topic.name: reach for topic, reach in by_topic.items()}
    earlier = [
        epoch
        for epoch in state.ddl.earlier_epochs(name)
        if start_ts <= epoch.after < until_ts
        and (
            (reach := _reach_of(context, by_name, epoch.name)) is None
            or reach.known_from <= epoch.after < reach.ddl_from
        )
    ]
    history = _with_bases(context, declared.with_epochs(earlier).with_ddls(counting), window.to_ts)
    # A table may come into a topic from another one, whose DDL is known from further back. What it became there counts no more,
    # from the moment it came: DDL that is not known may have changed it at once. ``known_from`` may be later than the window;
    # from then on it is what a person declares, until the next DDL.
    # One that was dropped may have come back from any topic.
    anywhere = max((reach.known_from for reach in by_topic.values()), default=0)
    forgotten: list[Epoch] = []
    for epoch in history.epochs:
        reach = _reach_of(context, by_name, epoch.name)
        known_from = anywhere if epoch.dropped else reach.known_from if reach is not None else 0
        if 0 < epoch.after < known_from:
            forgotten.append(Epoch(epoch.name, epoch.after))
            before = declared.definition_at(epoch.name.schema, epoch.name.table, 1)
            if before is not None:
                forgotten.append(Epoch(epoch.name, known_from - 1, before))
    return history.with_epochs(forgotten).with_versions(state.table_versions.all(name))


def _with_bases(context: ReplayContext, history: SchemaHistory, until_ts: int) -> SchemaHistory:
    """*history* with what dumps from before *until_ts* (TSO) say of tables that it does not know at their TSO."""
    unknown = [
        epoch
        for epoch in base_epochs(context)
        if epoch.after < until_ts
        and history.definition_at(epoch.name.schema, epoch.name.table, epoch.after + 1) is None
    ]
    return history.with_epochs(unknown) if unknown else history


def _reach_of(context: ReplayContext, by_name: Mapping[str, Reach], table: TableName) -> Reach | None:
    """How far back the DDL of *table* is known; None of a topic that was never searched."""
    topic = context.changefeed.topic_of(table.schema, table.table)
    if topic is None:  # routing leaves open which it is
        return max(by_name.values(), key=lambda reach: reach.known_from, default=None)
    return by_name.get(topic)


def _declared(context: ReplayContext) -> SchemaHistory:
    definitions = []
    for declared in context.pipeline.definitions:
        schema, _, table = declared.name.partition(".")
        definitions.append(definition_from_sql(TableName(schema, table), declared.create_table))
    return SchemaHistory(Epoch(definition.name, 0, definition) for definition in definitions)
