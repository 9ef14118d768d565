"""What a task that runs a Spark job is made of, beside running it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ticdc_replay.jobspec import JobSpec, WrittenJob

if TYPE_CHECKING:
    from ticdc_replay.lineage.datasets import Lineage

Engine = TypeVar("Engine")


@dataclass(frozen=True)
class Finished:
    """What a job's task leaves in Airflow."""

    summary: dict[str, Any]
    """Its XCom."""
    lineage: "Lineage | None" = None
    event: dict[str, Any] = field(default_factory=dict)
    """The extra of the events of its assets."""


class SparkStep(ABC, Generic[Engine]):
    """One job of a DAG as a value. *engine* is the engine's context: ``ReplayContext`` or ``StoreContext``.

    The connections that the job needs are those that its spec names.
    """

    one_at_a_time: ClassVar[bool] = True
    """Whether Airflow runs one task of this step at a time, whatever the runs of its DAG."""

    def skip(self, context: Mapping[str, Any]) -> str | None:
        """Why the run is not to do this; None where it is. Asked before the engine is opened."""
        return None

    @abstractmethod
    def find(self, engine: Engine, context: Mapping[str, Any]) -> WrittenJob:
        """The job: handed over by an earlier task, or written here. Called for each attempt.

        Raises where the job must not run any more, though it was right when its spec was written.
        """

    def held(
        self, engine: Engine, job: WrittenJob, spec: JobSpec, holder: str | None = None
    ) -> AbstractContextManager[object]:
        """What is held while the job runs, until ``finish`` is done; by *holder*, if it was handed over to it."""
        return nullcontext()

    @abstractmethod
    def finish(self, engine: Engine, job: WrittenJob) -> Finished:
        """What the task leaves, from the job's results."""
