"""Cluster mode: the driver of a job is an application of a cluster, which goes on without its submitter.

The application carries two marks: one of its job spec, by which a later attempt finds it while it runs, and one of its attempt,
by which its outcome is found.
"""

import logging
import os
import re
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactNotFoundError, PermanentError, TicdcReplayError, TransientError
from ticdc_replay.jobspec import ARTIFACTS_CONNECTION_VARIABLE, CONNECTIONS_VARIABLE, EXIT_PERMANENT
from ticdc_replay.submit.commands import search_path
from ticdc_replay.submit.environment import driver_environment
from ticdc_replay.submit.outcome import JobFile, JobOutcome, judge
from ticdc_replay.submit.signals import held_back
from ticdc_replay.submit.submitter import LogLine, Submission, Submitter

log = logging.getLogger(__name__)

POLL_S = 6.0
"""How often somebody who waits looks at an application."""
_FOUND_WITHIN_S = 60.0
_LEFT_AFTER_S = 1800.0
"""An envelope so old, of a job that does not run, is one whose submitter was killed."""
_TAIL = 20
_EXIT_CODE = re.compile(r"exited with (?:status|code) (\d+)")


class Application(NamedTuple):
    """One application of a cluster, as its manager sees it."""

    id: str
    attempt: str
    """Of the job, as ``Submission.attempt`` has it."""
    status: str
    """The manager's word."""
    has_ended: bool
    diagnostics: str
    log: str
    """Where people find its log."""

    @property
    def holder(self) -> str:
        """Who holds what is held while it runs, whoever waits for it."""
        return f"replay {self.id}"

    @property
    def described(self) -> str:
        """What a person who waits reads."""
        why = f" ({' '.join(self.diagnostics.split())})" if self.diagnostics else ""
        return f"application {self.id}: {self.status}{why}; log: {self.log}"


class Cluster(ABC):
    """The manager of a cluster. Its methods raise TransientError where it does not answer, PermanentError where it refuses."""

    @abstractmethod
    def properties(self, mark: str, attempt: str, environ: Mapping[str, str]) -> dict[str, str]:
        """The Spark properties with which an application carries both marks, its driver has the variables *environ*, the manager
        starts it once, and spark-submit does not wait for its end."""

    @property
    @abstractmethod
    def envelope_key(self) -> str:
        """Where a driver finds the key of its envelope, as ``CONNECTIONS_VARIABLE`` has it."""

    @abstractmethod
    def hand_over(self, key: bytes, mark: str, attempt: str, folder: Path) -> dict[str, str]:
        """Let the driver of *attempt*, at the job of *mark*, have *key*, perhaps by a private file in *folder*; the variables
        spark-submit needs."""

    def bind(self, application: Application) -> None:  # noqa: B027 - most have nothing to do
        """Let what ``hand_over`` left in the cluster end with *application*."""

    def take_back(self, attempt: str) -> None:  # noqa: B027
        """Remove what ``hand_over`` left in the cluster for *attempt*, if it is there."""

    @abstractmethod
    def find(self, mark: str) -> list[Application]:
        """The applications that carry *mark* and have not ended."""

    @abstractmethod
    def find_attempt(self, attempt: str) -> Application | None:
        """The application of *attempt*, also one that has ended; None where the manager knows none."""

    @abstractmethod
    def look(self, application_id: str) -> Application | None:
        """The application as it is now, None where the manager does not know it (any more)."""

    @abstractmethod
    def end(self, application_id: str) -> None:
        """End the application, if it has not ended."""


def mark_of(uri: str) -> str:
    """What marks every application that runs the job whose spec is at *uri*."""
    return f"ticdc-replay-{canonical.digest(uri.encode())[:32]}"


def prepare(submission: Submission, cluster: Cluster, declared: Pipeline | Store) -> None:
    """Give *submission* the properties of an application of *cluster*; call it before the command is made."""
    properties = dict(submission.properties)
    if "spark.pyspark.driver.python" not in declared.spark.conf:
        del properties["spark.pyspark.driver.python"]  # the submitter's
    way = declared.spark.connections
    environ = {CONNECTIONS_VARIABLE: cluster.envelope_key if way == "envelope" else way}
    if submission.connections.artifacts:
        environ[ARTIFACTS_CONNECTION_VARIABLE] = submission.connections.artifacts
    own = cluster.properties(mark_of(submission.uri), submission.attempt, environ)
    for name, value in own.items():
        if declared.spark.conf.get(name, value) != value:
            log.warning("%s: spark.conf: %s is set by cluster mode, and not as declared", declared.name, name)
    submission.properties = {**properties, **own}


class ClusterDriver(Submitter):
    """Runs *submission*, which ``prepare`` has seen, as an application of *cluster*: by *command*, in what spark-submit gets of
    *environ*. If an application of the same job runs there already, this is its submitter from then on."""

    def __init__(
        self,
        submission: Submission,
        cluster: Cluster,
        command: Sequence[str],
        environ: Mapping[str, str],
        declared: Pipeline | Store,
    ) -> None:
        self._submission = submission
        self._cluster = cluster
        self._command = command
        self._environ = environ
        self._seals = declared.spark.connections == "envelope"
        self._process: subprocess.Popen[str] | None = None
        self._cancelled = False
        self._released = False
        self.application: Application | None = None
        """What runs the job, once it is started."""

    def __exit__(self, *_: object) -> None:
        if not self._released:
            self.cancel()

    def release(self) -> None:
        """From now on the application goes on without this process. Raises TransientError where ``cancel`` came before."""
        self._refuse_cancelled()
        self._released = True

    def start(self) -> None:
        """Start the application, or find the one that runs. Raises TransientError where the cluster took none."""
        running = self._cluster.find(mark_of(self._submission.uri))
        if running:
            self.application, *others = running
            self._submission.attempt = self.application.attempt
            log.info("%s: application %s runs this job already", self._submission.name, self.application.id)
            for other in others:
                log.warning("%s: application %s runs the same job, and is ended", self._submission.name, other.id)
                self._cluster.end(other.id)
        if self._cancelled:  # while it was looked for
            self.cancel()
        self._refuse_cancelled()
        if running:
            return
        self._remove_left()
        with tempfile.TemporaryDirectory(prefix="ticdc-replay-key-") as folder:
            # No secret of the machine's own cloud identity: Spark writes it to the configuration that it uploads.
            environment = driver_environment(self._environ, Connections())
            environment["PATH"] = search_path(environment)
            try:
                if self._seals:
                    environment |= self._sealed(Path(folder))
                self._submit(environment)
                if self._seals and self.application is not None:
                    self._cluster.bind(self.application)
            except BaseException:
                if self._process is None:  # else the cluster may have the application: ``cancel`` finds out
                    self._remove_key()
                raise

    def wait(self, show: Callable[[LogLine], object]) -> JobOutcome:
        assert self.application is not None, "start comes first"
        said = ("", "")
        while not self.application.has_ended:
            if said != (self.application.status, self.application.diagnostics):
                said = (self.application.status, self.application.diagnostics)
                show(LogLine(self.application.described, None))
            time.sleep(POLL_S)
            self._refuse_cancelled()
            self.look()
        return self.settled()

    def look(self) -> Application:
        """The application as it is now; as it was last where it had ended, or the manager does not answer."""
        assert self.application is not None, "start comes first"
        if self.application.has_ended:
            return self.application
        try:
            self.application = look(self._cluster, self.application)
        except TransientError as error:
            log.warning("application %s: %s", self.application.id, error)
        return self.application

    def settled(self) -> JobOutcome:
        """How the application, which has ended, ended; see ``settle_application``."""
        assert self.application is not None, "start comes first"
        self._released = True
        self._refuse_cancelled()
        return settle_application(self._submission.file, self._cluster, self._submission.name, self.application)

    def cancel(self) -> None:
        self._cancelled = True
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._released = True
        try:
            self._end()
        except TicdcReplayError as error:  # what goes on needs its key
            name = "of this job" if self.application is None else self.application.id
            log.error("%s: application %s may go on: %s", self._submission.name, name, error)
        else:
            self._remove_key()

    def _end(self) -> None:
        found = self.application
        if found is None and self._process is not None:  # it may have been taken before spark-submit said so
            found = self._cluster.find_attempt(self._submission.attempt)
        if found is not None and not found.has_ended:
            self._cluster.end(found.id)

    def _sealed(self, folder: Path) -> dict[str, str]:
        from ticdc_replay.submit.envelope import put_envelope  # with cryptography

        attempt = self._submission.attempt
        key = put_envelope(self._submission.file, attempt, self._submission.connections)
        return self._cluster.hand_over(key.encode(), mark_of(self._submission.uri), attempt, folder)

    def _submit(self, environment: Mapping[str, str]) -> None:
        with held_back(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._refuse_cancelled()
            self._process = subprocess.Popen(
                self._command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=0,
            )
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line.rstrip("\n"))
            log.info("%s", lines[-1])
        code = self._process.wait()
        self._refuse_cancelled()
        until = time.monotonic() + (_FOUND_WITHIN_S if code == 0 else 0)
        while True:
            try:
                self.application = self._cluster.find_attempt(self._submission.attempt)
            except TransientError as error:  # the application may be there
                log.warning("%s: %s", self._submission.name, error)
            if self.application is not None:
                return
            if time.monotonic() > until:
                tail = "\n".join(lines[-_TAIL:])
                raise TransientError(
                    f"{self._submission.name}: spark-submit ended with code {code}, and the cluster names no application of this "
                    f"attempt. Its last lines:\n{tail}"
                )
            time.sleep(1)

    def _remove_left(self) -> None:
        """Remove envelopes and keys of attempts whose submitter was killed before the cluster had their application."""
        if self._seals:
            for attempt in self._submission.file.sealed_attempts(older_than_s=_LEFT_AFTER_S):
                remove_key(self._submission.file, self._cluster, attempt)

    def _remove_key(self) -> None:
        if self._seals:
            remove_key(self._submission.file, self._cluster, self._submission.attempt)

    def _refuse_cancelled(self) -> None:
        if self._cancelled:
            raise TransientError(f"{self._submission.name}: the job was cancelled")


def look(cluster: Cluster, application: Application) -> Application:
    """*application* as it is now. One that *cluster* has forgotten counts as ended. Raises what ``Cluster.look`` raises."""
    found = cluster.look(application.id)
    if found is not None:
        return found
    return application._replace(status="unknown", has_ended=True, diagnostics="the cluster does not know it any more")


def settle_application(file: JobFile, cluster: Cluster, name: str, application: Application) -> JobOutcome:
    """The outcome of *application* of *cluster*, which has ended; it succeeded. *name* is what errors call the job.

    Raises what ``judge`` raises. An application that left no outcome has failed, whatever its manager says; then the error has
    the manager's diagnostics.
    """
    remove_key(file, cluster, application.attempt)
    try:
        outcome = file.outcome(application.attempt)
    except ArtifactNotFoundError:
        code = _EXIT_CODE.search(application.diagnostics)
        kind = PermanentError if code and int(code[1]) == EXIT_PERMANENT else TransientError
        why = " ".join(application.diagnostics.split()) or "no diagnostics"
        raise kind(
            f"{name}: application {application.id} ended as {application.status}, and its driver left no outcome: {why}. "
            f"Its log: {application.log}"
        ) from None
    return judge(outcome, name)


def remove_key(file: JobFile, cluster: Cluster, attempt: str) -> None:
    """Remove the envelope of *attempt*, where its driver has not done so, and its key. Where one can't be removed, the log
    says so. The envelope alone opens nothing; the key still holds the connection of the artefact store."""
    for remove in (file.remove_envelope, cluster.take_back):
        try:
            remove(attempt)
        except TicdcReplayError as error:
            log.warning("the envelope of attempt %s, or its key, is not removed: %s", attempt, error)
