"""What all embedded servers share: start with readiness and a second try for a port, stop, context manager."""

import logging
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from demo.embedded_stack.errors import StackError
from demo.embedded_stack.process import ManagedProcess

PORT_TAKEN = ("Address already in use", "address already in use", "Address in use")
START_ATTEMPTS = 3

logger = logging.getLogger(__name__)


class Server(ABC):
    """One server. Its data and its log are below *folder*, which is made if absent."""

    name: ClassVar[str]
    start_seconds: ClassVar[float] = 300.0
    """How long a start may take; generous, because a shared machine may be slow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._process: ManagedProcess | None = None

    @abstractmethod
    def _launch(self) -> ManagedProcess:
        """Pick ports, write configuration, start the process."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the server answers. Asked again and again; must not take longer than a few seconds."""

    @property
    def log(self) -> Path:
        """The file with the server's output."""
        return self.folder / f"{self.name}.log"

    def start(self) -> Self:
        """Start and wait until it answers.

        Raises StackError with the end of the log when it exits or is not ready in time. A start that failed because somebody
        else took a port is tried again with other ports.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, START_ATTEMPTS + 1):
            self._process = process = self._launch()
            try:
                self._await_ready(process)
            except BaseException as error:
                self.stop()
                if isinstance(error, StackError) and attempt < START_ATTEMPTS and self._port_was_taken(process):
                    logger.warning("%s: a port was taken by another process, trying others", self.name)
                    continue
                raise
            break
        return self

    def stop(self) -> None:
        """Stop it; nothing of it is left when this returns. Harmless when it is not running."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _await_ready(self, process: ManagedProcess) -> None:
        deadline = time.monotonic() + self.start_seconds
        while not self._is_ready():
            code = process.exit_code
            if code is not None:
                raise StackError(
                    f"{self.name} ended with exit code {code} while starting; {self._log_for_people(process)}"
                )
            if time.monotonic() > deadline:
                raise StackError(
                    f"{self.name} not ready in {self.start_seconds:.0f} s; {self._log_for_people(process)}"
                )
            time.sleep(0.1)

    def _log_for_people(self, process: ManagedProcess) -> str:
        return f"end of {process.log}:\n{process.log_tail()}"

    def _port_was_taken(self, process: ManagedProcess) -> bool:
        return any(text in process.log_tail() for text in PORT_TAKEN)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
