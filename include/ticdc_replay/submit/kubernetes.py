"""Kubernetes: applications are driver pods, found by their labels, and a key is a Secret that ends with its pod."""

import base64
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError
from ticdc_replay.jobspec import CONNECTIONS_VARIABLE
from ticdc_replay.submit.cluster import Application, Cluster

_JOB, _ATTEMPT = "ticdc-replay/job", "ticdc-replay/attempt"
_KEY = "key"
_TOKEN = re.compile(r"[!-~]+")
_MOUNTED = "/etc/ticdc-replay-key"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod, such as Airflow's worker, has its own token and the certificate of the API server."""
_TIMEOUT = httpx.Timeout(30, connect=10)
_ENDED = frozenset({"Succeeded", "Failed"})


class Kubernetes(Cluster):
    """The API server of *master* (``k8s://https://…``), in the namespace that the extra of *connection* names.

    Its token is the password of *connection*, or that of this pod. Raises ConfigError where one of these is missing.
    """

    def __init__(self, connection: Connection, master: str) -> None:
        self._url = master.removeprefix("k8s://").rstrip("/")
        if "://" not in self._url:
            self._url = f"https://{self._url}"
        self._namespace = str(connection.extra.get("namespace") or "")
        if not self._namespace:
            raise ConfigError(
                f'connection {connection.conn_id!r}: deploy-mode cluster on Kubernetes needs extra {{"namespace": …}}'
            )
        self._password = connection.password
        self._name = connection.conn_id
        authority = connection.extra.get("ca_file") or (_ACCOUNT / "ca.crt" if (_ACCOUNT / "ca.crt").exists() else None)
        self._trusted = ssl.create_default_context(cafile=authority)

    def properties(self, mark: str, attempt: str, environ: Mapping[str, str]) -> dict[str, str]:
        is_sealed = environ.get(CONNECTIONS_VARIABLE) == self.envelope_key
        secret = {f"spark.kubernetes.driver.secrets.{_secret(attempt)}": _MOUNTED} if is_sealed else {}
        return {
            "spark.kubernetes.namespace": self._namespace,
            f"spark.kubernetes.driver.label.{_JOB}": mark,
            f"spark.kubernetes.driver.label.{_ATTEMPT}": attempt,
            "spark.kubernetes.submission.waitAppCompletion": "false",
            **secret,
            **{f"spark.kubernetes.driverEnv.{name}": value for name, value in environ.items()},
        }

    @property
    def envelope_key(self) -> str:
        return f"envelope:{_MOUNTED}/{_KEY}"

    def hand_over(self, key: bytes, mark: str, attempt: str, folder: Path) -> dict[str, str]:
        content = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _secret(attempt), "labels": {_JOB: mark, _ATTEMPT: attempt}},
            "type": "Opaque",
            "immutable": True,
            "data": {_KEY: base64.b64encode(key).decode("ascii")},
        }
        self._ask("POST", "secrets", content=content)
        return {}

    def bind(self, application: Application) -> None:
        pod = self._ask("GET", f"pods/{application.id}")
        if pod is None:
            return
        owner = {"apiVersion": "v1", "kind": "Pod", "name": application.id, "uid": pod["metadata"]["uid"]}
        self._ask(
            "PATCH", f"secrets/{_secret(application.attempt)}", content={"metadata": {"ownerReferences": [owner]}}
        )

    def take_back(self, attempt: str) -> None:
        self._ask("DELETE", f"secrets/{_secret(attempt)}")

    def find(self, mark: str) -> list[Application]:
        pods = [pod for pod in self._pods(_JOB, mark) if "deletionTimestamp" not in pod["metadata"]]
        return [each for each in map(self._application, pods) if not each.has_ended]

    def find_attempt(self, attempt: str) -> Application | None:
        return next(map(self._application, self._pods(_ATTEMPT, attempt)), None)

    def _pods(self, label: str, value: str) -> list[Mapping[str, Any]]:
        """Those with this label, the newest first."""
        answer = self._ask("GET", "pods", {"labelSelector": f"{label}={value}"})
        pods = (answer or {}).get("items") or []
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)

    def look(self, application_id: str) -> Application | None:
        pod = self._ask("GET", f"pods/{application_id}")
        return None if pod is None else self._application(pod)

    def end(self, application_id: str) -> None:
        self._ask("DELETE", f"pods/{application_id}")

    def _application(self, pod: Mapping[str, Any]) -> Application:
        name, status = str(pod["metadata"]["name"]), pod.get("status") or {}
        phase = str(status.get("phase") or "Pending")
        return Application(
            id=name,
            attempt=str((pod["metadata"].get("labels") or {}).get(_ATTEMPT) or ""),
            status=phase,
            has_ended=phase in _ENDED,
            diagnostics=_why(status),
            log=f"kubectl logs --namespace {self._namespace} {name}",
        )

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, content: Mapping[str, Any] | None = None
    ) -> Any:
        """The answer, None for 404."""
        where = f"the API server of Kubernetes at {self._url}"
        headers = {"Authorization": f"Bearer {self._token()}"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        try:
            answer = httpx.request(
                method,
                f"{self._url}/api/v1/namespaces/{self._namespace}/{path}",
                params=dict(query or {}),
                json=content,
                headers=headers,
                verify=self._trusted,
                timeout=_TIMEOUT,
            )
        except httpx.RequestError as error:  # its text may have the header with the token
            raise TransientError(f"{where} does not answer: {type(error).__name__}") from None
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        if (
            answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR
            or answer.status_code == httpx.codes.TOO_MANY_REQUESTS
        ):
            raise TransientError(f"{where} answered {answer.status_code} to {method} {path}")
        if answer.is_error:
            raise PermanentError(
                f"{where} answered {answer.status_code} to {method} {path} in namespace {self._namespace}: its role needs pods "
                "(get, list, create, delete) and secrets (create, patch, delete)"
            )
        return answer.json()

    def _token(self) -> str:
        if self._password:
            token = self._password.strip()
            if not _TOKEN.fullmatch(token):
                raise ConfigError(f"connection {self._name!r}: its password is no token: it has spaces or other signs")
            return token
        try:
            return (_ACCOUNT / "token").read_text(encoding="ascii").strip()  # it is renewed
        except OSError:
            raise ConfigError(
                f"connection {self._name!r}: this is no pod with a service account, so the connection's password must be a token"
            ) from None


def _secret(attempt: str) -> str:
    return f"ticdc-replay-{attempt}"


def _why(status: Mapping[str, Any]) -> str:
    """What a person reads of a pod that did not end well, or does not start."""
    said = [str(status[name]) for name in ("reason", "message") if status.get(name)]
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said.append(": ".join(str(condition[name]) for name in ("reason", "message") if condition.get(name)))
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended:
            said.append(f"{ended.get('reason', 'ended')}, exited with code {ended.get('exitCode')}")
        elif waiting:
            said.append(": ".join(str(waiting[name]) for name in ("reason", "message") if waiting.get(name)))
    return "; ".join(said)
