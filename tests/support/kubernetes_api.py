"""A server in place of Kubernetes': it keeps pods and secrets in the shapes of the API's reference (core/v1, PodList, Status),
and refuses what the real one refuses. No cluster was there to run against."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MARK, TOKEN = "ticdc-replay-1f", "planted-token"
NAMESPACE = "/api/v1/namespaces/replay"


def pod(
    name: str,
    phase: str,
    created: str = "2026-03-01T00:00:00Z",
    *,
    mark: str = MARK,
    attempt: str = "",
    **status: Any,
) -> dict[str, Any]:
    """A driver pod, as Spark makes it."""
    labels = {"ticdc-replay/job": mark, "ticdc-replay/attempt": attempt or f"attempt-{name}", "spark-role": "driver"}
    metadata = {
        "name": name,
        "namespace": "replay",
        "uid": f"uid-{name}",
        "creationTimestamp": created,
        "labels": labels,
    }
    return {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase, **status}}


class ApiServer:
    """Keeps ``pods`` and ``secrets``, by name; ``failing`` is the status that it answers all requests with."""

    def __init__(self) -> None:
        self.pods: dict[str, Any] = {}
        self.secrets: dict[str, Any] = {}
        self.failing = 0
        api = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                content = json.loads(self.rfile.read(length)) if length else None
                status, document = api.handle(self.command, self.path, dict(self.headers), content)
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "ApiServer":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def handle(self, method: str, path: str, headers: dict[str, str], content: Any) -> tuple[int, Any]:
        if self.failing:
            return self.failing, {"kind": "Status", "code": self.failing}
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"kind": "Status", "reason": "Unauthorized", "code": 401}
        parts = urlsplit(path)
        assert parts.path.startswith(NAMESPACE), path
        kind, _, name = parts.path.removeprefix(f"{NAMESPACE}/").partition("/")
        kept = {"pods": self.pods, "secrets": self.secrets}[kind]
        if method == "GET" and not name:
            key, _, value = parse_qs(parts.query)["labelSelector"][0].partition("=")
            found = [each for each in kept.values() if each["metadata"]["labels"].get(key) == value]
            return 200, {"kind": "PodList", "items": found}
        if method == "POST":
            kept[content["metadata"]["name"]] = content
            return 201, content
        if name not in kept:
            return 404, {"kind": "Status", "reason": "NotFound", "code": 404}
        if method == "PATCH":
            if headers["Content-Type"] != "application/merge-patch+json":
                return 415, {"kind": "Status", "reason": "UnsupportedMediaType", "code": 415}
            kept[name]["metadata"] |= content["metadata"]
        if method == "DELETE":
            return 200, kept.pop(name)
        return 200, kept[name]
