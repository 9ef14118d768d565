"""One node of Kubernetes for Spark: an API that keeps what Spark asks for, and pods that are processes of this machine.

It stands in for the API server, the kubelet and the cluster's DNS, as far as Spark's driver and ``spark-submit`` use them. What
is under test is on its two sides, and real: Spark's resource manager, and the entry point of the image.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, urlsplit

from demo.embedded_stack.ports import HOST
from tests.support.waiting import wait_for

KINDS = {
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "services": "Service",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}
SERVICE_NAMES = re.compile(r"[a-z][\w-]*(?:\.[\w-]+)+\.svc\b")

Command = Callable[[list[str]], list[str]]


class Node:
    """Starts each container of a pod that is created as *command* of its arguments, with *environment* as that of the image.

    The root of a pod is a folder of its own below *folder*. There are its ConfigMaps, those of *secrets* that it mounts, by name
    and key, and its empty folders. Names of services lead to loopback. *rewrite* replaces words in what is mounted.
    ``pods`` has all pods that were created, also deleted ones; ``requests`` has the verb and resource of each request.
    """

    def __init__(
        self,
        folder: Path,
        command: Command,
        environment: Mapping[str, str],
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        rewrite: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.pods: dict[str, dict[str, Any]] = {}
        self.requests: set[tuple[str, str]] = set()
        self._command = command
        self._environment = dict(environment)
        self._secrets = dict(secrets or {})
        self.rewrite = dict(rewrite or {})
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._lock = threading.RLock()
        handler = type("Handler", (_Api,), {"node": self})
        self._server = ThreadingHTTPServer((HOST, 0), handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            processes = [process for each in self._processes.values() for process in each]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self, pod: str) -> str:
        """What the containers of *pod* wrote so far."""
        logs = sorted((self.folder / pod).glob("*.log"))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)

    def named(self, kind: str, name: str) -> dict[str, Any] | None:
        with self._lock:
            if kind == "pods":
                self._note_end(name)
            return self._objects.get((kind, name))

    def listed(self, kind: str, selector: str) -> list[dict[str, Any]]:
        with self._lock:
            names = [name for each, name in self._objects if each == kind]
            found = [entry for name in names if (entry := self.named(kind, name)) is not None]
        return [each for each in found if _is_selected(each["metadata"].get("labels", {}), selector)]

    def create(self, kind: str, given: dict[str, Any]) -> dict[str, Any]:
        meta = given["metadata"]
        meta.update(uid=str(uuid.uuid4()), creationTimestamp="2026-01-01T00:00:00Z", resourceVersion="1")
        with self._lock:
            self._objects[kind, meta["name"]] = given
            if kind == "pods":
                given["status"] = {"phase": "Pending"}
                self.pods[meta["name"]] = given
        if kind == "pods":
            threading.Thread(target=self._start, args=(given,), daemon=True).start()
        return given

    def change(self, kind: str, name: str, change: dict[str, Any]) -> dict[str, Any]:
        """Merge *change*; an object that is not there is made of it, as a server-side apply does."""
        with self._lock:
            if (kind, name) not in self._objects:
                return self.create(kind, change)
            _merge(self._objects[kind, name], change)
            return self._objects[kind, name]

    def delete(self, kind: str, names: list[str]) -> None:
        with self._lock:
            for name in names:
                self._objects.pop((kind, name), None)
                if kind == "pods":
                    for process in self._processes.get(name, []):
                        process.terminate()

    def _start(self, pod: dict[str, Any]) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        root = self.folder / name
        (root / "local").mkdir(parents=True)
        places = self._mount(root, spec)
        fields = {"status.podIP": HOST, "metadata.name": name, "metadata.namespace": "default"}

        def value_of(entry: dict[str, Any]) -> str:
            if "valueFrom" in entry:
                return fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            return self._seen(entry.get("value", ""), places)

        for container in spec["containers"]:
            environment = {entry["name"]: value_of(entry) for entry in container.get("env", [])}
            arguments = [
                re.sub(r"\$\((\w+)\)", lambda found, known=environment: known[found[1]], self._seen(argument, places))
                for argument in container["args"]
            ]
            with (root / f"{container['name']}.log").open("wb") as log, self._lock:
                process = subprocess.Popen(
                    self._command(arguments),
                    env={**self._environment, **environment, "SPARK_LOCAL_DIRS": str(root / "local")},
                    cwd=root,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._processes.setdefault(name, []).append(process)
        states = [_status(container, {"running": {}}) for container in spec["containers"]]
        pod["status"] = {"phase": "Running", "podIP": HOST, "containerStatuses": states}

    def _mount(self, root: Path, spec: dict[str, Any]) -> dict[str, Path]:
        """Fill *root*. Returns the places of ConfigMaps and Secrets by the paths that the pod knows."""
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        mounts = {
            mount["mountPath"]: mount for container in spec["containers"] for mount in container.get("volumeMounts", [])
        }
        contents = {path: self._content(volumes[mount["name"]]) for path, mount in mounts.items()}
        places = {path: root / path.lstrip("/") for path, content in contents.items() if content is not None}
        for path, content in contents.items():
            place = root / path.lstrip("/")
            if (key := mounts[path].get("subPath")) is not None and content is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(content[key], encoding="utf-8")
                continue
            place.mkdir(parents=True, exist_ok=True)
            for name, text in (content or {}).items():
                (place / name).write_text(self._seen(text, places), encoding="utf-8")
        return places

    def _content(self, volume: dict[str, Any]) -> dict[str, str] | None:
        """Texts of a ConfigMap or Secret by file name; None for an empty folder."""
        if "secret" in volume:
            return dict(self._secrets[volume["secret"]["secretName"]])
        if (source := volume.get("configMap")) is None:
            return None
        # Spark makes the ConfigMap after the pod, and the kubelet waits for it.
        found = wait_for(f"ConfigMap {source['name']}", lambda: self.named("configmaps", source["name"]))
        content = found.get("data", {})
        items = source.get("items") or [{"key": key, "path": key} for key in content]
        return {item["path"]: content[item["key"]] for item in items}

    def _seen(self, text: str, places: Mapping[str, Path]) -> str:
        """*text* as this machine means it: paths of mounts, names of services, words of ``rewrite``."""
        paths = {path: str(place) for path, place in places.items()}
        for words in (self.rewrite, paths):
            if words:
                longest_first = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
                pattern = rf"(?<!\w)(?:{longest_first})(?!\w)"
                if words is paths:
                    pattern = rf"(?<![\w./-])(?:{longest_first})(?![\w.-])"
                text = re.sub(pattern, lambda found, meant=words: meant[found[0]], text)
        return SERVICE_NAMES.sub(HOST, text)

    def _note_end(self, name: str) -> None:
        pod, processes = self._objects.get(("pods", name)), self._processes.get(name, [])
        codes = [process.poll() for process in processes]
        if pod is None or not codes or None in codes:
            return
        pod["status"] = {
            "phase": "Failed" if any(codes) else "Succeeded",
            "containerStatuses": [
                _status(container, {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}})
                for container, code in zip(pod["spec"]["containers"], codes, strict=True)
            ],
        }


class _Api(BaseHTTPRequestHandler):
    node: ClassVar[Node]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing: pytest shows standard error."""

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        address = urlsplit(self.path)
        found = re.fullmatch(r"/api/v1/namespaces/[\w-]+/(\w+)(?:/([^/]+))?", address.path)
        if found is None or found[1] not in KINDS:
            return self._answer(404, _failure(404, f"no {address.path}"))
        kind, name = found[1], found[2]
        self.node.requests.add((_VERBS[self.command][name is None], kind))
        selector = parse_qs(address.query).get("labelSelector", [""])[0]
        if self.command == "POST":
            return self._answer(201, self.node.create(kind, body))
        if self.command in ("PUT", "PATCH"):
            return self._answer(200, self.node.change(kind, name, body))
        if self.command == "DELETE":
            entries = [name] if name else [each["metadata"]["name"] for each in self.node.listed(kind, selector)]
            self.node.delete(kind, entries)
            return self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        if name:
            entry = self.node.named(kind, name)
            return self._answer(200, entry) if entry else self._answer(404, _failure(404, f"no {kind} {name}"))
        items = self.node.listed(kind, selector)
        return self._answer(
            200,
            {"kind": f"{KINDS[kind]}List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items},
        )

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815


_VERBS = {
    "POST": ("create", "create"),
    "PUT": ("update", "update"),
    "PATCH": ("patch", "patch"),
    "DELETE": ("delete", "deletecollection"),
    "GET": ("get", "list"),
}
"""Verbs of Kubernetes for a request for one object, and for all of a kind."""


def _status(container: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": state,
    }


def _failure(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


def _is_selected(labels: Mapping[str, str], selector: str) -> bool:
    """Whether *labels* fit *selector*: equal, present, absent."""
    for part in filter(None, selector.split(",")):
        key, equals, value = part.partition("=")
        if key.startswith("!"):
            fits = key[1:] not in labels
        elif key.endswith("!"):
            fits = labels.get(key[:-1]) != value
        else:
            fits = labels.get(key) == value if equals else key in labels
        if not fits:
            return False
    return True


def _merge(into: dict[str, Any], change: Mapping[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
