"""S3 servers: moto (from PyPI, checks no signatures) and versitygw (written in Go, checks them)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from demo.embedded_stack import cache
from demo.embedded_stack.errors import MissingToolError, StackError
from demo.embedded_stack.ports import HOST, free_ports
from demo.embedded_stack.process import ManagedProcess
from demo.embedded_stack.server import Server

VERSITYGW_VERSION = "v1.8.0"


class S3Server(Server):
    """An S3 endpoint with path-style addressing. Use ``access_key`` and ``secret_key`` with it."""

    access_key: ClassVar[str] = "replay"
    secret_key: ClassVar[str] = "replay-secret"
    region: ClassVar[str] = "us-east-1"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.endpoint = ""
        """``http://host:port``, once started."""

    def _pick_port(self) -> int:
        (port,) = free_ports(1)
        self.endpoint = f"http://{HOST}:{port}"
        return port

    def _is_ready(self) -> bool:
        try:
            with urlopen(self.endpoint, timeout=2.0):
                return True
        except HTTPError:  # it answers, if only to say that this is forbidden
            return True
        except (URLError, OSError):
            return False


class MotoServer(S3Server):
    """moto's server: keeps objects in memory, checks no signatures, sets every LastModified to now."""

    name: ClassVar[str] = "moto"

    def _launch(self) -> ManagedProcess:
        command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(self._pick_port())]
        return ManagedProcess(command, log=self.log, env=os.environ, cwd=self.folder, grace=2.0)


class VersityGateway(S3Server):
    """versitygw on a local folder: checks signatures; ``set_last_modified`` makes objects old.

    Raises MissingToolError on start where it is not in the cache and there is no Go to build it.
    """

    name: ClassVar[str] = "versitygw"

    def _launch(self) -> ManagedProcess:
        self._data.mkdir(exist_ok=True)
        versions = self.folder / "versions"
        versions.mkdir(exist_ok=True)
        address = f"{HOST}:{self._pick_port()}"
        return ManagedProcess(
            [
                *(str(find_versitygw()), "--port", address, "--region", self.region),
                *("posix", "--versioning-dir", str(versions), str(self._data)),
            ],
            log=self.log,
            env={**os.environ, "ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key},
            cwd=self.folder,
            grace=3.0,
        )

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def set_last_modified(self, bucket: str, key: str, epoch_seconds: float) -> None:
        """Change when the object *key* of *bucket* was last modified."""
        os.utime(self._data / bucket / key, (epoch_seconds, epoch_seconds))


def find_versitygw() -> Path:
    """The pinned versitygw: from the cache, or built into the cache with Go (once, about a minute).

    Raises MissingToolError where it is not in the cache and there is no Go.
    """
    binaries = cache.folder("bin") / f"versitygw-{VERSITYGW_VERSION}"
    program = binaries / "versitygw"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise MissingToolError(f"there is no Go on PATH to build versitygw {VERSITYGW_VERSION} with")
    # Not optimised: that builds in two thirds of the time, and serves what is asked of it here as quickly.
    flags = ("-gcflags=all=-N -l", "-ldflags=-s -w")
    done = subprocess.run(
        [go, "install", *flags, f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW_VERSION}"],
        env={**os.environ, "GOBIN": str(binaries)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        raise StackError(f"versitygw can't be built:\n{done.stdout.decode(errors='replace')[-3000:]}")
    return program
