"""The servers that data goes through, started together."""

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.postgres import Postgres
from demo.embedded_stack.s3 import MotoServer
from demo.embedded_stack.server import Server


class DataServers:
    """Kafka, S3 and PostgreSQL below one folder: a temporary one, removed on stop, when *folder* is None."""

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = folder is None
        self.folder = folder if folder is not None else temporary_folder()
        self.kafka = Kafka(self.folder / "kafka")
        self.s3 = MotoServer(self.folder / "s3")
        self.postgres = Postgres(self.folder / "postgres")

    @property
    def servers(self) -> tuple[Server, ...]:
        return (self.kafka, self.s3, self.postgres)

    def start(self) -> Self:
        """Start all at the same time. When one fails, the others are stopped and its StackError is raised."""
        with ThreadPoolExecutor(len(self.servers)) as pool:
            starts = [pool.submit(server.start) for server in self.servers]
            try:
                for start in starts:
                    start.result()
            except BaseException:
                self._stop_servers()  # ends the starts that are under way,
                pool.shutdown()
                self._stop_servers()  # and those that had not begun
                raise
        return self

    def stop(self) -> None:
        """Stop all; nothing of them is left when this returns."""
        self._stop_servers()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _stop_servers(self) -> None:
        with ThreadPoolExecutor(len(self.servers)) as pool:
            stops = [pool.submit(server.stop) for server in self.servers]
        for stop in stops:
            stop.result()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def temporary_folder() -> Path:
    """A new folder of the system's temporary one that other users may enter, as PostgreSQL needs when started by root."""
    folder = Path(tempfile.mkdtemp(prefix="ticdc-replay-"))
    folder.chmod(0o711)
    return folder
