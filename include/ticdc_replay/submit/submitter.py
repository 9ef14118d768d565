"""The contract of whatever runs a job."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.resources import files
from typing import NamedTuple, Self

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.jobspec import TargetJob, connections_of, first_of, kind_of
from ticdc_replay.submit.outcome import JobFile, JobOutcome
from ticdc_replay.submit.properties import job_properties


class Submission:
    """One attempt at the job whose spec is at *uri*, for a pipeline or a store; errors call it *name*, or else its kind.

    *spark* is the connection that the driver itself finds Spark by, if it does.

    Raises what reading the spec raises, and ConfigError for a connection of the job that is not among *connections*.
    """

    def __init__(
        self,
        uri: str,
        connections: Connections,
        declared: Pipeline | Store,
        name: str = "",
        spark: Connection | None = None,
    ) -> None:
        self.uri = uri
        self.attempt = uuid.uuid4().hex[:12]
        self.file = JobFile(uri, connections)
        self.job = self.file.read()
        self.name = name or kind_of(self.job)
        needed = {*connections_of(self.job), *filter(None, [connections.artifacts])}
        by_id = {conn_id: connections[conn_id] for conn_id in sorted(needed)}
        if spark is not None:
            by_id[spark.conn_id] = spark
        self.connections = Connections(by_id, connections.artifacts)
        """Those that the job and its spec need, and no more."""
        first = first_of(self.job)
        target = read_section(first.target) if isinstance(first, TargetJob) else None
        self.properties = job_properties(declared, kind_of(self.job), target)

    @property
    def script(self) -> str:
        """Path of the job's entry script, in the installed library."""
        return str(files("ticdc_replay") / "spark" / "jobs" / f"{kind_of(self.job)}.py")

    @property
    def arguments(self) -> list[str]:
        """What the entry script is given."""
        return [self.uri, self.attempt]


class LogLine(NamedTuple):
    """A line of a job's log; ``progress`` is what it says of how far the job is, if it does."""

    text: str
    progress: str | None


class Submitter(ABC):
    """Runs one submission, once. A context manager: leaving it ends a job that still runs, with all that it started.

    However the process of the submitter ends, the job ends with it, but for an application of a cluster (``cluster``), which goes
    on after SIGKILL of its submitter, until a later attempt takes it over. After SIGKILL of the driver itself, what runs at a
    Spark Connect server ends when the server notices.
    """

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def start(self) -> None:
        """Start the driver. Raises TransientError where ``cancel`` came before."""

    @abstractmethod
    def wait(self, show: Callable[[LogLine], object]) -> JobOutcome:
        """Wait for the end of the job; *show* is given its log, line by line, as it comes.

        Raises the driver's own error (``outcome.settle``), a PermanentError or TransientError, and TransientError
        after ``cancel``.
        """

    @abstractmethod
    def cancel(self) -> None:
        """End the job, with all that it started. May be called at any time, also by a signal's handler; ``wait`` then raises."""
