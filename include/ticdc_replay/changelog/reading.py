"""Finds and opens a complete changelog."""

from ticdc_replay.changelog import index as changelog_index
from ticdc_replay.changelog.index import ChangelogIndex
from ticdc_replay.changelog.layout import INDEX, changelog_root
from ticdc_replay.storage.base import ObjectStore


def read_index(store: ObjectStore, run_hash: str) -> ChangelogIndex:
    """The index of the changelog of *run_hash* in the pipeline's artefacts. Raises ArtifactNotFoundError without one."""
    return changelog_index.decode(store.get(f"{changelog_root(run_hash)}/{INDEX}"))
