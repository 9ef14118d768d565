"""What all operators of a replay share."""

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from ticdc_replay.lineage.datasets import Lineage
    from ticdc_replay.stages.context import ReplayContext
    from ticdc_replay.store_stages.context import StoreContext


_STANDSTILL_S = 900
"""Every so many seconds a task's log gets the stack of every thread."""
_STDERR = 2


@contextmanager
def open_replay(pipeline_file: str) -> Iterator["ReplayContext"]:
    """The engine's context for the pipeline in *pipeline_file*, its connections resolved; closed afterwards."""
    from ticdc_replay.airflow.connections import resolve
    from ticdc_replay.config.load import load_pipeline
    from ticdc_replay.stages.context import ReplayContext, connection_ids

    loaded = load_pipeline(pipeline_file)
    with ReplayContext(loaded, resolve(connection_ids(loaded.pipeline), loaded.pipeline)) as context:
        yield context


@contextmanager
def open_store(store_file: str, pipelines: str, *, deleting: bool = False) -> Iterator["StoreContext"]:
    """The engine's context for the store in *store_file*, its pipelines in the folder *pipelines*; closed afterwards.

    The connection that may delete is resolved only where *deleting*.
    """
    from ticdc_replay.airflow.connections import resolve
    from ticdc_replay.config.load_store import load_store
    from ticdc_replay.store_stages.context import StoreContext, store_connection_ids

    loaded = load_store(store_file, pipelines)
    ids = [*store_connection_ids(loaded), *filter(None, [loaded.store.connections.deletion if deleting else None])]
    with StoreContext(loaded, resolve(ids, loaded.store)) as context:
        yield context


@contextmanager
def standstill_shown() -> Iterator[None]:
    """Show in the task's log where the task stands if a server never answers."""
    faulthandler.dump_traceback_later(_STANDSTILL_S, repeat=True, file=_STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def logged(log: Any, summary: dict[str, Any]) -> dict[str, Any]:
    """*summary*, each member of it written to *log*."""
    for name, value in summary.items():
        log.info("%s: %s", name, value)
    return summary


class EmitsLineage:
    """Gives OpenLineage what ``execute`` put into ``self.lineage``: read there, since a listener has no connections."""

    lineage: "Lineage | None" = None

    def get_openlineage_facets_on_complete(self, _task_instance: Any) -> "OperatorLineage | None":
        """What the task read and wrote; None where it did nothing."""
        from ticdc_replay.airflow.lineage import operator_lineage

        return None if self.lineage is None else operator_lineage(self.lineage)


class OnStore:
    """What a task of a store is made with: the store's file, and the folder of the pipelines that it lists."""

    store_file: str
    pipelines: str

    @contextmanager
    def opened(self, *, deleting: bool = False) -> Iterator["StoreContext"]:
        """The engine's context, as the files are now; see ``open_store``."""
        with standstill_shown(), open_store(self.store_file, self.pipelines, deleting=deleting) as context:
            yield context


class StoreOperator(OnStore, BaseOperator):
    """A task of the store in *store_file*. Its file, and those in the folder *pipelines*, are read again when the task runs."""

    ui_color = "#e9f5e9"

    def __init__(self, *, store_file: str, pipelines: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_file = store_file
        self.pipelines = pipelines


class ReplayOperator(BaseOperator):
    """A task of the pipeline in *pipeline_file*. The file is read again when the task runs."""

    ui_color = "#e8f1fa"

    def __init__(self, *, pipeline_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline_file = pipeline_file

    @contextmanager
    def opened(self) -> Iterator["ReplayContext"]:
        """The engine's context, as the file is now; see ``open_replay``."""
        with standstill_shown(), open_replay(self.pipeline_file) as context:
            yield context
