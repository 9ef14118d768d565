"""The part of Airflow's REST API that the demo, benchmarks and tests use, as a person would use the UI."""

import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx

REQUEST_SECONDS = 300.0
"""Long: beside running jobs on a slow machine an answer may take more than half a minute."""
PAGE = 100


class TaskState(NamedTuple):
    """One task of one run. ``state`` is Airflow's word, "" before it is scheduled."""

    task_id: str
    state: str


class RunState(NamedTuple):
    """One run of a DAG, by the start of its interval."""

    run_id: str
    start: datetime
    state: str
    tasks: dict[str, TaskState]


class AirflowApi:
    """A client of an Airflow that makes everybody an administrator. Raises httpx.HTTPError when a call fails."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=REQUEST_SECONDS)
        token = self._client.get("/auth/token").raise_for_status().json()["access_token"]
        self._client.headers["Authorization"] = f"Bearer {token}"

    def add_connection(self, conn_id: str, conn_type: str, extra: dict[str, str] | None = None, **fields: Any) -> None:
        """Add a connection; *fields*: host, port, login, password, schema."""
        body = {"connection_id": conn_id, "conn_type": conn_type, "extra": json.dumps(extra or {}), **fields}
        self._post("/connections", body)

    def dag_is_known(self, dag_id: str) -> bool:
        """Whether the DAG was parsed. Raises RuntimeError when its file can't be imported."""
        errors = self._get("/importErrors")["import_errors"]
        if errors:
            raise RuntimeError("\n".join(f"{error['filename']}:\n{error['stack_trace']}" for error in errors))
        return self._client.get(f"/api/v2/dags/{dag_id}").status_code == httpx.codes.OK

    def unpause(self, dag_id: str) -> None:
        """Let the DAG's runs start."""
        self._client.patch(f"/api/v2/dags/{dag_id}", json={"is_paused": False}).raise_for_status()

    def backfill(self, dag_id: str, first: datetime, last: datetime, max_active_runs: int) -> None:
        """Run every interval that starts between *first* and *last*, both included."""
        interval = {"from_date": first.isoformat(), "to_date": last.isoformat()}
        self._post("/backfills", {"dag_id": dag_id, **interval, "max_active_runs": max_active_runs, "dag_run_conf": {}})

    def trigger(self, dag_id: str, conf: dict[str, Any]) -> str:
        """Start a run with the answers *conf*, and return its id."""
        return str(self._post(f"/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": conf})["dag_run_id"])

    def state(self, dag_id: str, run_id: str) -> str:
        """Of a run, in Airflow's word."""
        return str(self._get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def tasks(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """Of a run, by id, as Airflow describes them: ``id``, ``state``, ``try_number``, ``queued_when``, ``duration`` in s …"""
        found = self._get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {task["task_id"]: task for task in found}

    def mark_failed(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Set the state of a task, as a person does who has seen enough."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        self._client.patch(path, json={"new_state": "failed"}).raise_for_status()

    def runs(self, dag_id: str, run_type: str) -> list[RunState]:
        """The DAG's runs of one type (``backfill``, ``scheduled``), by time."""
        found = self._get(f"/dags/{dag_id}/dagRuns", limit=PAGE, run_type=run_type)["dag_runs"]
        tasks: dict[str, dict[str, TaskState]] = defaultdict(dict)
        for task in self._get(f"/dags/{dag_id}/dagRuns/~/taskInstances", limit=PAGE)["task_instances"]:
            tasks[task["dag_run_id"]][task["task_id"]] = TaskState(task["task_id"], task["state"] or "")
        runs = [
            RunState(
                run["dag_run_id"],
                datetime.fromisoformat(run["data_interval_start"]).astimezone(UTC),
                run["state"],
                tasks[run["dag_run_id"]],
            )
            for run in found
        ]
        return sorted(runs, key=lambda run: run.start)

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """What a task of a run returned."""
        return self._get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value")["value"]

    def _get(self, path: str, **query: Any) -> Any:
        return self._client.get(f"/api/v2{path}", params=query).raise_for_status().json()

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        response = self._client.post(f"/api/v2{path}", json=body)
        if response.is_error:  # without the body, which may hold a password
            raise httpx.HTTPStatusError(
                f"POST {path}: {response.status_code} {response.text[:500]}",
                request=response.request,
                response=response,
            )
        return response.json()
