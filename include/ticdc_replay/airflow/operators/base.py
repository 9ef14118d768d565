"""What all operators of a replay share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from ticdc_replay.config.load import LoadedPipeline
    from ticdc_replay.stages.context import ReplayContext


class ReplayOperator(BaseOperator):
    """A task of the pipeline in *pipeline_file*. The file is read again when the task runs."""

    template_fields: Sequence[str] = ()
    ui_color = "#e8f1fa"

    def __init__(self, *, pipeline_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline_file = pipeline_file

    @contextmanager
    def replay_context(self) -> Iterator["ReplayContext"]:
        """The engine's context, with the pipeline's connections resolved; closed afterwards."""
        from ticdc_replay.airflow.connections import resolve
        from ticdc_replay.stages.context import ReplayContext, connection_ids

        loaded = load(self.pipeline_file)
        for warning in loaded.warnings:
            self.log.warning("%s", warning)
        with ReplayContext(loaded, resolve(connection_ids(loaded.pipeline), loaded.pipeline)) as context:
            yield context


def load(pipeline_file: str) -> "LoadedPipeline":
    """The pipeline of *pipeline_file*."""
    from ticdc_replay.config.load import load_pipeline

    return load_pipeline(pipeline_file)
