"""Which changefeeds were seen to write to a claim-check store, and where, in earlier surveys.

A later survey may not see them: a pipeline may no longer be listed, a connection may lead to another cluster, and a topic may no
longer be in a rule. Messages there may still refer to objects. Each survey puts what it saw as ``owners/<sha256>.json`` below the
store's artefacts, once for the same content; nothing removes them.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from ticdc_replay.changefeed.rules import Dispatch
from ticdc_replay.config.store import Store
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.storage.base import ObjectStore
from ticdc_replay.storage.documents import put_document, read_documents
from ticdc_replay.storage.names import may_be_same_folder

_FOLDER = "owners/"


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The changefeed of one pipeline, as one survey or several saw it."""

    format: int = 1
    uri: str
    """The claim-check store's."""
    pipeline: str
    cluster_id: str
    """Kafka's own."""
    topic_ids: dict[str, str]
    """Kafka's id of each of its topics, by name."""
    dispatch: Dispatch
    """Which topics its tables went to."""


class ReadTopic(NamedTuple):
    """A topic with known references."""

    pipeline: str
    topic: TopicIdentity


def put_owner(artifacts: ObjectStore, owner: Owner) -> None:
    """Put *owner* into *artifacts*, the store's."""
    put_document(artifacts, _FOLDER, owner)


def read_owners(artifacts: ObjectStore, uri: str) -> list[Owner]:
    """All that surveys of the claim-check store at *uri* have seen; *artifacts* are the store's.

    Raises msgspec.ValidationError with the path inside the document.
    """
    owners = read_documents(artifacts, _FOLDER, Owner)
    return [owner for owner in owners if may_be_same_folder(owner.uri, uri)]


def objections(
    store: Store, owners: Iterable[Owner], clusters: Mapping[str, str], references_of: Iterable[ReadTopic]
) -> list[str]:
    """Why Kafka may not show all messages now: for people, who can acknowledge each reason in the store's file.

    *clusters* are Kafka's ids by listed pipeline, *references_of* the topics whose references are known.
    """
    seen = list(owners)
    gone = sorted({owner.pipeline for owner in seen} - set(clusters) - set(store.former_pipelines))
    found = [
        f"the pipeline {name} wrote to the store and is no longer listed: messages of it may still refer to objects. List it, "
        "or, when nobody will ever read them again, name it in former_pipelines"
        for name in gone
    ]
    for pipeline, cluster_id in sorted(clusters.items()):
        before = {owner.cluster_id for owner in seen if owner.pipeline == pipeline}
        found += [
            f"the pipeline {pipeline} reads the Kafka cluster {cluster_id}, and earlier surveys read {other}: messages there may "
            "still refer to objects. Correct the connection, or, when nobody will ever read them again, name that id in "
            "former_clusters"
            for other in sorted(before - {cluster_id} - set(store.former_clusters))
        ]
    confirmed = {*clusters.values(), *store.former_clusters}
    known = [
        TopicIdentity(owner.cluster_id, name, id_)
        for owner in seen
        if owner.cluster_id in confirmed
        for name, id_ in owner.topic_ids.items()
    ]
    found += [
        f"references of {read.pipeline} are of topic {read.topic.name} with the id {read.topic.topic_id}, which no survey of a "
        "cluster that counts has seen: it was recreated before the first survey, or is in another cluster. When nobody will ever "
        "read its messages again, name that id in former_topics"
        for read in sorted(set(references_of))
        if read.topic.topic_id not in store.former_topics and not any(map(read.topic.may_be, known))
    ]
    return found
