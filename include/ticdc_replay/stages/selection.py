"""Which of the pipeline's tables a run is for."""

from collections.abc import Sequence

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.table_patterns import TablePatterns


def selected_tables(pipeline: Pipeline, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The patterns that a run is for: *wanted*, by default the pipeline's.

    Raises ConfigError for one that no pattern of the pipeline covers: windows are pinned over the topics of the
    pipeline's tables, so nothing shows that rows of another table are complete.
    """
    if not wanted:
        return pipeline.tables
    allowed = TablePatterns(pipeline.tables)
    outside = [pattern for pattern in wanted if not allowed.covers(pattern)]
    if outside:
        raise ConfigError(
            f"this run is for tables {', '.join(outside)}, which no pattern of pipeline {pipeline.name} covers: "
            f"{', '.join(pipeline.tables)}. A run can be for fewer tables than its pipeline, not for others: choose patterns "
            "within one of these, or widen tables in the pipeline's file"
        )
    return tuple(wanted)


def undecoded(index: ChangelogIndex, selection: Sequence[str]) -> tuple[str, ...]:
    """The patterns of *selection* that the decode of *index* did not cover; none where that is by a version which did not say."""
    held = TablePatterns(index.selection)
    return tuple(pattern for pattern in selection if index.selection and not held.covers(pattern))
