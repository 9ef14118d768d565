"""Finds and opens a complete changelog."""

from ticdc_replay.changelog import index as changelog_index
from ticdc_replay.changelog.index import ChangelogIndex
from ticdc_replay.changelog.layout import INDEX, changelog_root
from ticdc_replay.storage.base import ObjectStore


def complete_changelogs(store: ObjectStore) -> set[str]:
    """The run of every changelog in the pipeline's artefacts that has an index, whether or not anybody has recorded it. Lists all
    changelogs with their files."""
    names = (entry.name.split("/") for entry in store.list("runs/"))
    return {parts[1] for parts in names if len(parts) == 3 and parts[2] == INDEX}


def read_index(store: ObjectStore, run_hash: str) -> ChangelogIndex:
    """The index of the changelog of *run_hash* in the pipeline's artefacts. Raises ArtifactNotFoundError without one."""
    return changelog_index.decode(store.get(f"{changelog_root(run_hash)}/{INDEX}"))
