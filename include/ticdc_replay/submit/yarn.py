"""YARN: applications by the ResourceManager's REST interface, and a key by Hadoop's credentials."""

import getpass
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError
from ticdc_replay.submit.cluster import Application, Cluster
from ticdc_replay.submit.hadoop_credentials import FILE_VARIABLE, credentials_file

ADDRESS = "yarn_resourcemanager_webapp_address"
"""In the extra of the Spark connection, as Airflow's provider names it."""
_ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
_LIVING = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
_ATTEMPT = "ticdc-replay-attempt-"
_OUTPUT = re.compile(r"Last \d+ bytes of .*", re.DOTALL)
"""What a container printed at its end, which nobody has looked through for secrets."""
_TIMEOUT = httpx.Timeout(30, connect=10)


class Yarn(Cluster):
    """The ResourceManager that the extra of *connection* names. Raises ConfigError where it names none."""

    def __init__(self, connection: Connection) -> None:
        address = str(connection.extra.get(ADDRESS) or "").rstrip("/")
        if not address:
            raise ConfigError(
                f"connection {connection.conn_id!r}: deploy-mode cluster on YARN needs the address of the ResourceManager's web "
                f'interface in extra: {{"{ADDRESS}": "http://host:8088"}}'
            )
        self._url = address if "://" in address else f"http://{address}"
        self._user = connection.login or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()

    def properties(self, mark: str, attempt: str, environ: Mapping[str, str]) -> dict[str, str]:
        return {
            "spark.yarn.tags": f"{mark},{_ATTEMPT}{attempt}",
            "spark.yarn.maxAppAttempts": "1",
            "spark.yarn.submit.waitAppCompletion": "false",
            **{f"spark.yarn.appMasterEnv.{name}": value for name, value in environ.items()},
        }

    @property
    def envelope_key(self) -> str:
        return "envelope:hadoop"

    def hand_over(self, key: bytes, mark: str, attempt: str, folder: Path) -> dict[str, str]:
        if FILE_VARIABLE in os.environ:
            raise ConfigError(
                f"{FILE_VARIABLE} is set where the job is submitted, and the key of its connections needs it: unset it, or set "
                "spark.connections to backends or folder:<path>"
            )
        file = folder / "credentials"
        with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
            out.write(credentials_file(key))
        return {FILE_VARIABLE: str(file)}

    def find(self, mark: str) -> list[Application]:
        return self._tagged({"applicationTags": mark, "states": _LIVING})

    def find_attempt(self, attempt: str) -> Application | None:
        return next(iter(self._tagged({"applicationTags": f"{_ATTEMPT}{attempt}"})), None)

    def _tagged(self, query: dict[str, str]) -> list[Application]:
        """The newest first."""
        answer = self._ask("GET", "apps", query)
        found = ((answer or {}).get("apps") or {}).get("app") or []
        return [_application(each) for each in sorted(found, key=lambda each: -each["startedTime"])]

    def look(self, application_id: str) -> Application | None:
        answer = self._ask("GET", f"apps/{application_id}", {})
        return None if answer is None else _application(answer["app"])

    def end(self, application_id: str) -> None:
        self._ask("PUT", f"apps/{application_id}/state", {}, {"state": "KILLED"})

    def _ask(self, method: str, path: str, query: dict[str, str], content: Any = None) -> Any:
        """The answer, None for 404."""
        where = f"YARN's ResourceManager at {self._url}"
        try:
            answer = httpx.request(
                method,
                f"{self._url}/ws/v1/cluster/{path}",
                params={**query, "user.name": self._user},
                json=content,
                timeout=_TIMEOUT,
                follow_redirects=True,
            )
        except httpx.RequestError as error:
            raise TransientError(f"{where} does not answer: {type(error).__name__}: {error}") from None
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise TransientError(f"{where} answered {answer.status_code} to {method} {path}")
        if answer.is_error:
            raise PermanentError(
                f"{where} answered {answer.status_code} to {method} {path} of user {self._user}: it must allow this user to see "
                "and end applications (login of the Spark connection). Kerberos is not supported here"
            )
        try:
            return answer.json()
        except ValueError:
            # So does one while another takes over from it.
            raise TransientError(f"{where} answered {method} {path} with no JSON: is it a ResourceManager?") from None


def _application(found: Mapping[str, Any]) -> Application:
    tags = str(found.get("applicationTags") or "").split(",")
    attempt = next((tag.removeprefix(_ATTEMPT) for tag in tags if tag.startswith(_ATTEMPT)), "")
    state = str(found["state"])
    return Application(
        id=str(found["id"]),
        attempt=attempt,
        status=str(found["finalStatus"]) if state == "FINISHED" else state,
        has_ended=state in _ENDED,
        diagnostics=_OUTPUT.sub("", str(found.get("diagnostics") or "")),
        log=f"{found.get('amContainerLogs') or found.get('trackingUrl') or ''} (yarn logs -applicationId {found['id']})",
    )
