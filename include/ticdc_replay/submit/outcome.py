"""How an attempt at a job ended: its driver writes it beside the job spec, and its submitter reads it there."""

import signal
from typing import Literal

import msgspec

from ticdc_replay.domain import canonical, errors
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactNotFoundError, PermanentError, TicdcReplayError, TransientError
from ticdc_replay.jobspec import EXIT_PERMANENT, JobSpec, decode
from ticdc_replay.storage import open_store


class JobOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one attempt at a job ended, as its driver says."""

    result: Literal["succeeded", "permanent", "transient", "failed"]
    """``permanent`` and ``transient`` as in ``domain.errors``; ``failed``: an error that is none of the library's."""
    error: str = ""
    """Name of the error's class."""
    message: str = ""
    """The error's message. Empty for ``failed``: only the library's messages are known to hold no secret."""
    counts: dict[str, int] = {}
    """What a job that succeeded did."""


class JobFile:
    """The job spec at *uri*, and the outcomes of its attempts beside it: ``<spec without .json>.<attempt>.json``.

    Its methods raise what a store raises. Raises ConfigError where no store can be at *uri*.
    """

    def __init__(self, uri: str, connections: Connections) -> None:
        folder, _, self._name = uri.rpartition("/")
        self._store = open_store(folder, connections.get(connections.artifacts))

    def read(self) -> JobSpec:
        """The job spec."""
        return decode(self._store.get(self._name))

    def put_outcome(self, attempt: str, outcome: JobOutcome) -> None:
        """Keep how *attempt* ended."""
        self._store.put(self._outcome(attempt), canonical.encode(outcome))

    def outcome(self, attempt: str) -> JobOutcome:
        """How *attempt* ended. Raises ArtifactNotFoundError where its driver left no outcome."""
        return msgspec.json.decode(self._store.get(self._outcome(attempt)), type=JobOutcome)

    def put_envelope(self, attempt: str, content: bytes) -> None:
        """Keep the sealed connections of *attempt* (``submit.envelope``)."""
        self._store.put(self._envelope(attempt), content)

    def envelope(self, attempt: str) -> bytes:
        """The sealed connections of *attempt*. Raises ArtifactNotFoundError where they are gone."""
        return self._store.get(self._envelope(attempt))

    def remove_envelope(self, attempt: str) -> None:
        """Remove the sealed connections of *attempt*, if they are there."""
        self._store.delete(self._envelope(attempt))

    def sealed_attempts(self, *, older_than_s: float) -> list[str]:
        """The attempts whose sealed connections were put so long ago, and are still there."""
        beginning, end = f"{self._name.removesuffix('.json')}.", ".sealed"
        before = self._store.now().timestamp() - older_than_s
        return [
            each.name.removeprefix(beginning).removesuffix(end)
            for each in self._store.list(beginning)
            if each.name.endswith(end) and each.last_modified.timestamp() < before
        ]

    def _outcome(self, attempt: str) -> str:
        return f"{self._name.removesuffix('.json')}.{attempt}.json"

    def _envelope(self, attempt: str) -> str:
        return f"{self._name.removesuffix('.json')}.{attempt}.sealed"


def settle(file: JobFile, attempt: str, name: str, code: int) -> JobOutcome:
    """The outcome of *attempt*, which succeeded. *name* is what errors call the job.

    Raises what ``judge`` raises. Where the driver was killed, or left no outcome for another reason, its exit *code* decides
    alone between PermanentError and TransientError, and the error says so; a negative one is that of a signal.
    """
    try:
        outcome = file.outcome(attempt)
    except ArtifactNotFoundError:
        missing = "its driver left no outcome"
    except TicdcReplayError as error:
        missing = f"the outcome that its driver left can't be read ({error})"
    else:
        return judge(outcome, name)
    if code == 0:
        return JobOutcome("succeeded")
    raise _kind(code == EXIT_PERMANENT)(f"{name}: {_ended(code)}, and {missing}; the log of the job has more")


def judge(outcome: JobOutcome, name: str) -> JobOutcome:
    """*outcome*, which succeeded. Raises the driver's own error, in which *name* is the job: of its class if that is one of
    ``domain.errors``, which callers may handle, else PermanentError or TransientError."""
    if outcome.result == "succeeded":
        return outcome
    message = outcome.message or "no error of the library; the log of the job has the traceback"
    kind = _kind(outcome.result == "permanent")
    own = getattr(errors, outcome.error, kind)
    raise (own if isinstance(own, type) and issubclass(own, kind) else kind)(f"{name}: {outcome.error}: {message}")


def _kind(permanent: bool) -> type[PermanentError] | type[TransientError]:
    return PermanentError if permanent else TransientError


def _ended(code: int) -> str:
    number = -code if code < 0 else code - 128  # a shell, and Spark's JVM, add 128
    if number in {*signal.Signals}:
        return f"the job was killed by {signal.Signals(number).name}"
    return f"the job ended with exit code {code}"
