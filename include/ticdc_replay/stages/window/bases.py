"""The bases that a pipeline has: changelogs of dumps, whatever they were loaded into."""

from collections.abc import Iterator

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.stages.context import ReplayContext


def find_bases(context: ReplayContext) -> Iterator[ChangelogIndex]:
    """The complete changelogs of dumps, newest TSO first; of one TSO the one that was made last."""
    runs = [run for run in context.state.runs.all(context.pipeline.name) if run.window.to_ts == run.window.from_ts + 1]
    for run in sorted(runs, key=lambda run: (run.window, run.started_at_ms), reverse=True):
        try:
            index = read_index(context.artifacts, run.run_hash)
        except ArtifactNotFoundError:
            continue  # not ended, or somebody removed its files
        if index.is_base:
            yield index
