"""Emulators of Google Cloud Storage (in Go) and Azure Blob Storage (in JavaScript). ``make emulators`` fetches them, once."""

import base64
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
from abc import abstractmethod
from email.utils import formatdate
from pathlib import Path
from typing import ClassVar
from urllib.request import Request, urlopen

from demo.embedded_stack import cache
from demo.embedded_stack.errors import MissingToolError, StackError
from demo.embedded_stack.ports import HOST, free_ports
from demo.embedded_stack.process import ManagedProcess
from demo.embedded_stack.server import Server

FAKE_GCS_VERSION = "v1.56.1"
AZURITE_VERSION = "3.35.0"
_TIMEOUT_S = 60.0


class Emulator(Server):
    """One emulator: ``endpoint`` once it is started, and ``make_bucket``.

    Raises MissingToolError on start if it is not fetched.
    """

    endpoint = ""

    def _pick_port(self) -> int:
        (self._port,) = free_ports(1)
        self.endpoint = f"http://{HOST}:{self._port}"
        return self._port

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection((HOST, self._port), timeout=2.0):
                return True
        except OSError:
            return False

    @abstractmethod
    def make_bucket(self, name: str) -> None:
        """Make the bucket, or container, *name*."""


class FakeGcs(Emulator):
    """fake-gcs-server, with objects in memory. It takes whoever asks, and writes by the JSON API only."""

    name: ClassVar[str] = "fake-gcs"

    def _launch(self) -> ManagedProcess:
        port = str(self._pick_port())
        return ManagedProcess(
            [
                *(str(_fetched("fake-gcs-server")), "-scheme", "http", "-host", HOST, "-port", port),
                *("-backend", "memory", "-public-host", f"{HOST}:{port}"),
            ],
            log=self.log,
            env=os.environ,
            cwd=self.folder,
            grace=2.0,
        )

    def make_bucket(self, name: str) -> None:
        body = json.dumps({"name": name}).encode()
        headers = {"Content-Type": "application/json"}
        url = f"{self.endpoint}/storage/v1/b?project=tests"
        with urlopen(Request(url, body, headers, method="POST"), timeout=_TIMEOUT_S):
            pass


class Azurite(Emulator):
    """Azurite's blob service, with objects in memory. It checks keys and signatures."""

    name: ClassVar[str] = "azurite"
    account: ClassVar[str] = "devstoreaccount1"
    key: ClassVar[str] = base64.b64encode(b"a key of these tests alone, of sixty-four bytes as Azure has it.").decode()

    def _launch(self) -> ManagedProcess:
        node = shutil.which("node")
        if node is None:
            raise MissingToolError("there is no node on PATH to run Azurite with")
        program = _fetched("node_modules/azurite/dist/src/blob/main.js")
        return ManagedProcess(
            [
                *(node, str(program), "--blobHost", HOST, "--blobPort", str(self._pick_port())),
                *("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"),
            ],
            log=self.log,
            env={**os.environ, "AZURITE_ACCOUNTS": f"{self.account}:{self.key}"},
            cwd=self.folder,
            grace=2.0,
        )

    @property
    def url(self) -> str:
        """Of the account."""
        return f"{self.endpoint}/{self.account}"

    def make_bucket(self, name: str) -> None:
        date, version = formatdate(usegmt=True), "2021-08-06"
        text = f"x-ms-date:{date}\nx-ms-version:{version}\n/{self.account}/{self.account}/{name}\nrestype:container"
        digest = hmac.digest(base64.b64decode(self.key), f"PUT{chr(10) * 12}{text}".encode(), hashlib.sha256)
        headers = {
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {self.account}:{base64.b64encode(digest).decode()}",
            "Content-Type": "",
        }
        with urlopen(Request(f"{self.url}/{name}?restype=container", b"", headers, method="PUT"), timeout=_TIMEOUT_S):
            pass


def fetch() -> Path:
    """Fetch what is missing: fake-gcs-server is built with Go (minutes), Azurite comes from npm. Returns the folder.

    Raises MissingToolError where there is no Go, or no npm.
    """
    folder = _folder()
    go, npm = shutil.which("go"), shutil.which("npm")
    if not (folder / "fake-gcs-server").exists():
        if go is None:
            raise MissingToolError("there is no Go on PATH to build fake-gcs-server with")
        module = f"github.com/fsouza/fake-gcs-server@{FAKE_GCS_VERSION}"
        _run([go, "install", "-ldflags=-s -w", module], {"GOBIN": str(folder)})
    if not (folder / "node_modules" / "azurite").exists():
        if npm is None:
            raise MissingToolError("there is no npm on PATH to fetch Azurite with")
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder))
        _run([npm, "install", *options, f"azurite@{AZURITE_VERSION}"], {})
    return folder


def _folder() -> Path:
    return cache.folder("emulators") / f"gcs-{FAKE_GCS_VERSION}-azurite-{AZURITE_VERSION}"


def _fetched(name: str) -> Path:
    path = _folder() / name
    if not path.exists():
        raise MissingToolError(f"{path.name} is not fetched; `make emulators` does that")
    return path


def _run(command: list[str], env: dict[str, str]) -> None:
    _folder().mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        raise StackError(f"{command[0]} failed:\n{done.stdout.decode(errors='replace')[-3000:]}")


if __name__ == "__main__":
    print(f"emulators are in {fetch()}")
