"""The topics of a changefeed as Kafka has them."""

from collections.abc import Iterable

from ticdc_replay.domain.errors import TopicChangedError
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.kafka.offsets import Offsets, Topic
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.request import PinRequest


def require_topics(offsets: Offsets, names: Iterable[str], kafka: KafkaSettings) -> list[Topic]:
    """The topics called *names*, by name. Raises TopicChangedError when one does not exist."""
    wanted = sorted(set(names))
    found = offsets.topics(wanted)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise TopicChangedError(
            f"topic {', '.join(missing)} does not exist at Kafka {kafka.where}: it was deleted, or the sink-uri names another"
        )
    return [found[name] for name in wanted]


def verify_topics(manifest: Manifest, kafka: KafkaSettings) -> None:
    """Raise TopicChangedError where a topic of *manifest* is gone or was recreated since it was pinned.

    Offsets alone can't tell: a recreated topic may hold the same ones with other messages.
    """
    with Offsets(kafka) as offsets:
        check_same_topics(require_topics(offsets, (topic.topic for topic in manifest.topics), kafka), manifest)


def find_topics(request: PinRequest, offsets: Offsets, kafka: KafkaSettings) -> list[Topic]:
    """The topics of the changefeed that may hold rows of the window, as Kafka has them now: the default one comes first.

    A topic that a rule names may not exist yet: TiCDC makes it for the first table. Once the default topic carried a resolved-ts,
    all topics with rows up to it exist, since they were sent before. Kafka lists only what the account may describe; topics whose
    names are known without the list are asked for by name. Raises TopicChangedError where the default topic is missing, and
    AuthenticationError where the account may not describe that or a topic that is asked for by name.
    """
    changefeed = request.changefeed
    default = require_topics(offsets, [changefeed.topic], kafka)
    if not has_topic_rules(request):
        return default
    listed = offsets.names()
    candidates = (listed | _known_names(request, listed)) - {changefeed.topic}
    names = changefeed.topics_among(candidates, request.tables)
    found = offsets.topics(name for name in names if not _is_left_out(name, request))
    return default + [found[name] for name in sorted(found)]


def _known_names(request: PinRequest, listed: set[str]) -> set[str]:
    """The topics that rules name outright, and those of wanted tables that are named in full.

    Patterns know no letter case and topics do: one that is *listed* in another letter case is taken for the table's.
    """
    changefeed = request.changefeed
    of_tables = {changefeed.topic_of(*table) for table in tables_in_full(request.tables)}
    seen = {name.lower() for name in listed}
    named = {name for name in of_tables if name is not None and name.lower() not in seen}
    return {*changefeed.dispatch.fixed_topics(), *named}


def tables_in_full(patterns: Iterable[str]) -> set[tuple[str, str]]:
    """The names of schema and table of those of the *patterns* (``schema.table``) that mean one table."""
    in_full = (pattern.partition(".") for pattern in patterns if not set(pattern) & set("*?["))
    return {(schema, table) for schema, _, table in in_full}


def has_topic_rules(request: PinRequest) -> bool:
    """Whether tables may be in other topics than the default one."""
    return any(rule.topic is not None for rule in request.changefeed.dispatch.rules)


def check_none_is_gone(topics: Iterable[Topic], manifest: Manifest, request: PinRequest) -> None:
    """Raise TopicChangedError if *request* selects a topic that *manifest* pinned and that is not among *topics*."""
    names = {topic.name for topic in topics}
    pinned = {topic.topic for topic in manifest.topics} - names
    for name in request.changefeed.topics_among(pinned, request.tables):
        if not _is_left_out(name, request):
            raise TopicChangedError(
                f"topic {name} no longer exists, or the Kafka account may not describe it now, and did when window "
                f"{manifest.window} was pinned. If TiCDC had stopped to write to it, declare it in changefeed.retired_topics, "
                "with a TSO after which nothing came"
            )


def gone_doubts(topics: Iterable[Topic], known: Iterable[TopicIdentity], request: PinRequest) -> list[str]:
    """Doubts about *known* topics of the pipeline that *request* selects and that are not among *topics*: rows may be lost."""
    gone = {identity.name for identity in known} - {topic.name for topic in topics}
    return [
        f"topic {name} no longer exists, or the Kafka account may not describe it now, and the pipeline has read it or "
        "pinned it: rows of the window may be gone with it. Declare it in changefeed.retired_topics, with a TSO after which "
        "nothing came: one before the window says that it held nothing of it"
        for name in request.changefeed.topics_among(gone, request.tables)
        if not _is_left_out(name, request)
    ]


def recreated(topics: Iterable[Topic], known: Iterable[TopicIdentity]) -> list[str]:
    """The names of those *topics* that the pipeline has *known* with another id in the same cluster."""
    known = list(known)
    return [
        topic.name
        for topic in topics
        if any(
            each.name == topic.name and each.topic_id != topic.topic_id and each.cluster_id == topic.identity.cluster_id
            for each in known
        )
    ]


def _is_left_out(name: str, request: PinRequest) -> bool:
    if name not in request.retired_topics:
        return False
    last = request.retired_topics[name]
    return last is None or last < request.window.from_ts


def check_same_topics(topics: Iterable[Topic], manifest: Manifest) -> None:
    """Raise TopicChangedError where a topic is not the one that *manifest* pinned, although it has the name."""
    pinned = {topic.topic: topic for topic in manifest.topics}
    for topic in topics:
        before = pinned.get(topic.name)
        if before is None:
            continue
        if topic.topic_id == before.topic_id and not topic.identity.may_be(manifest.identities[topic.name]):
            raise TopicChangedError(
                f"topic {topic.name} is of Kafka cluster {topic.identity.cluster_id}, and window {manifest.window} was pinned in "
                f"cluster {manifest.cluster_id}: offsets mean something else there. Correct the Kafka connection, or "
                "pin with repin"
            )
        if before.topic_id != topic.topic_id:
            raise TopicChangedError(
                f"topic {topic.name} was recreated: its id is {topic.topic_id}, and was {before.topic_id} when window "
                f"{manifest.window} was pinned, so offsets and what was replayed up to now belong to the topic that is gone. "
                "If that is meant, pin with repin"
            )
        if len(topic.partitions) < len(before.partitions):
            raise TopicChangedError(
                f"topic {topic.name} has {len(topic.partitions)} partitions, and had {len(before.partitions)} when window "
                f"{manifest.window} was pinned"
            )
