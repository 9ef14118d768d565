"""A survey: what Kafka retained of all changefeeds of a claim-check store at one moment, and which offsets nobody had searched.

Immutable, put once as ``surveys/<sha256>.json`` below the store's artefacts. All that follows is about this moment: messages that
come later refer to objects that are too young to be judged.
"""

import msgspec

from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.reconcile.judge.rules import PartitionBounds
from ticdc_replay.storage.base import ObjectStore
from ticdc_replay.storage.documents import put_document


class SurveyedFeed(msgspec.Struct, frozen=True, kw_only=True):
    """The changefeed of one pipeline."""

    pipeline: str
    cluster_id: str
    """Kafka's own."""
    partitions: tuple[PartitionBounds, ...]
    """Every partition of every topic, empty ones included."""
    gone_topics: tuple[str, ...]
    """Topics that it has written to and that, according to Kafka, do not exist."""
    unsearched: tuple[OffsetRange, ...]
    """Retained offsets that no decode and no scan had searched for references."""


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What must be known before anything is judged."""

    format: int = 1
    store: str
    uri: str
    bounds_ms: int
    """A moment (Unix ms, this program's clock) before Kafka was asked anything: each message that was there then is within the
    bounds."""
    feeds: tuple[SurveyedFeed, ...]


def put_survey(artifacts: ObjectStore, made: Survey) -> str:
    """Put *made* into *artifacts*, the store's; its name."""
    return put_document(artifacts, "surveys/", made)


def read_survey(artifacts: ObjectStore, name: str) -> Survey:
    """The survey called *name*. Raises ArtifactNotFoundError, msgspec.ValidationError with the path inside the document."""
    return msgspec.json.decode(artifacts.get(name), type=Survey)
