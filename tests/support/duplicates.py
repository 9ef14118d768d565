"""Takes surplus copies out of the files of splits, as the driver of a decode does."""

from collections.abc import Sequence
from typing import Any

from ticdc_replay.changelog.copies.key_buckets import plan_buckets
from ticdc_replay.decode.complete.deduplicate import Rewritten, find_surplus, plan_rewrites, rewrite
from ticdc_replay.decode.plan.tasks import Attempt, SplitResult


def drop_duplicates(
    filesystem: Any, root: str, attempt: Attempt, results: Sequence[SplitResult], bucket_rows: int = 1_000
) -> list[Rewritten]:
    """What the driver does with *results*, in buckets of about *bucket_rows*."""
    buckets = plan_buckets([result.keys_file for result in results if result.keys_file is not None], 1, bucket_rows)
    sought = [find_surplus(filesystem, root, attempt, bucket) for bucket in buckets]
    found = [surplus for surplus in sought if surplus is not None]
    sizes = {file.file.name: file.file.bytes for result in results for file in result.files}
    return [entry for task in plan_rewrites(found, sizes) for entry in rewrite(filesystem, root, task)]
