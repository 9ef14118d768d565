"""A changelog with missing files: the message about it, and whether Kafka still holds its range."""

from collections.abc import Sequence

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.domain.errors import ExpiredRangeError, TopicChangedError
from ticdc_replay.kafka.offsets import Offsets, Partition
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.topics import verify_topics

_SHOWN = 3
_RESTORE = (
    "Restore the files from a backup or from older versions of the objects (the index was left where it is) and clear this task; "
    "else fill the window from a full export"
)


def describe_lost(run_hash: str, index: ChangelogIndex, lost: Sequence[str]) -> str:
    """A sentence that lists the *lost* files of *index*."""
    shown = ", ".join(lost[:_SHOWN]) + (", …" if len(lost) > _SHOWN else "")
    return (
        f"changelog {run_hash} of window {index.window} is no longer complete: {len(lost)} of the {len(index.files())} files "
        f"that its index names are gone ({shown}), removed by someone or by a lifecycle rule"
    )


def require_range(manifest: Manifest, kafka: KafkaSettings, why: str) -> None:
    """Check that Kafka still holds the ranges of *manifest*; errors begin with *why*, a sentence.

    Raises ExpiredRangeError if retention has removed a part, TopicChangedError if a topic is missing or was recreated, or if its
    log ends before the range.
    """
    verify_topics(manifest, kafka)
    ranges = {Partition(part.topic, part.partition): part for part in manifest.ranges()}
    with Offsets(kafka) as offsets:
        bounds = offsets.bounds(ranges)
    expired = [
        f"{partition} offsets {part.start} to {min(bounds[partition].low, part.end) - 1}"
        for partition, part in sorted(ranges.items())
        if bounds[partition].low > part.start
    ]
    if expired:
        raise ExpiredRangeError(
            f"{why}. It can't be decoded again either: Kafka no longer holds {', '.join(expired)}, and pinning again (repin) "
            f"brings nothing back. What targets hold of the window stays. {_RESTORE}"
        )
    cut = [
        f"{partition} ends at offset {bounds[partition].high}, before the end {part.end} of the range"
        for partition, part in sorted(ranges.items())
        if bounds[partition].high < part.end
    ]
    if cut:
        raise TopicChangedError(
            f"{why}. It can't be decoded again either: {', '.join(cut)}, so the topic lost messages, as in an unclean leader "
            f"election. What targets hold of the window stays. {_RESTORE}"
        )
