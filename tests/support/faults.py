"""What may happen to a task of a decode, done to it by itself: for workers, which import it by name."""

import os
import resource
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark import TaskContext

from ticdc_replay.decode.plan.tasks import Split, SplitResult
from ticdc_replay.decode.read import split as splits
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.reader import read_ranges

FILE_BYTES = 2_000


def _is_first(split: Split) -> bool:
    """Whether this is the first attempt at the first split; a new worker takes seconds of processor time."""
    running = TaskContext.get()
    return split.number == 0 and running is not None and running.attemptNumber() == 0


def killed_while_reading(split: Split, **arguments: Any) -> SplitResult:
    """The worker is killed after the first messages of the first split, the first time."""
    if not _is_first(split):
        return splits.decode_split(split, **arguments)

    def until_killed(settings: Any, ranges: Sequence[OffsetRange]) -> Iterator[list[RawMessage]]:
        for messages in read_ranges(settings, ranges):
            yield messages
            os.kill(os.getpid(), signal.SIGKILL)

    splits.read_ranges = until_killed
    return splits.decode_split(split, **arguments)


def killed_after_writing(split: Split, **arguments: Any) -> SplitResult:
    """The worker is killed when the files of the first split are written and nobody knows of them, the first time."""
    result = splits.decode_split(split, **arguments)
    if _is_first(split):
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def run_twice(split: Split, **arguments: Any) -> SplitResult:
    """As with speculation: another copy of the task writes its files, too; the one that ends first counts."""
    first = splits.decode_split(split, **arguments)
    second = splits.decode_split(split, **arguments)
    return first if split.number % 2 else second


def disk_full(split: Split, **arguments: Any) -> SplitResult:
    """No file may grow beyond ``FILE_BYTES``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, hard))
    try:
        return splits.decode_split(split, **arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
