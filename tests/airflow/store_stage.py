"""The sample changefeed with its claim checks in a folder as a store, and an Airflow in which the DAGs of both can be run."""

import json
import os
import threading
from unittest.mock import patch

import yaml

from demo.sample import contents
from tests.airflow.stage import Stage
from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.deletion import make_plan
from ticdc_replay.store_stages.deletion_guards import now_ms


class StoreStage(Stage):
    """The store ``claims`` of the pipeline ``shop``: nothing of it was decoded yet. Every object is as old as it says."""

    def __init__(self, folder, kafka, s3, s3_client, postgres):
        self.claims = folder / "claims"
        self.claims.mkdir()
        super().__init__(folder, kafka, s3, s3_client, postgres)
        for each in contents.objects():
            file = self.claims / each.name
            file.write_bytes(each.path.read_bytes())
            os.utime(file, (each.written_ms / 1000, each.written_ms / 1000))
        (folder / "stores").mkdir()
        self.store_file = folder / "stores" / "claims.yaml"
        self.store_file.write_text(yaml.safe_dump(self._store()))

    def context(self):
        """The engine's context, as a task has it."""
        found = {
            name.removeprefix("AIRFLOW_CONN_").lower(): json.loads(text) for name, text in self.connections.items()
        }
        connections = {name: Connection(conn_id=name, **fields) for name, fields in found.items()}
        loaded = load_store(self.store_file, self.pipeline_file.parent)
        return StoreContext(loaded, Connections(connections, artifacts="stage_lake"))

    def planned(self, hours):
        """A plan of the only reconciliation, as if it had been made so many *hours* ago."""
        made_at_ms = now_ms() - hours * 3_600_000
        with self.context() as context, patch("ticdc_replay.store_stages.deletion.now_ms", lambda: made_at_ms):
            (done,) = context.state.reconciliations.all("claims")
            return make_plan(context, done.reconciliation_id)

    def events(self, task):
        """The run's OpenLineage events of *task* that tell of its end."""
        events = [json.loads(line) for line in self.lineage.read_text().splitlines()]
        return [
            event for event in events if event["job"]["name"].endswith(f".{task}") and event["eventType"] == "COMPLETE"
        ]

    def _pipeline(self):
        made = super()._pipeline()
        config = made["changefeed"]["config"].replace(f"s3://{self.bucket}/claim-check", self.claims.as_uri())
        del made["connections"]["claim_check"]
        return made | {"changefeed": made["changefeed"] | {"config": config}}

    def _store(self):
        return {
            "name": "claims",
            "uri": self.claims.as_uri(),
            "pipelines": ["shop"],
            "owners_complete": True,
            "connections": {"artifacts": "stage_lake", "state": "stage_state"},
            "artifacts": f"s3://{self.bucket}/stores",
            "schedule": {"cron": "0 3 * * *", "start": "2026-01-01T00:00:00Z"},
            "deletion": {"policy": "approval", "grace_hours": 1},
            "spark": {"conf": {"spark.sql.shuffle.partitions": "2"}},
        }


class Person(threading.Thread):
    """Answers the question of a run of *dag_id*, as somebody does in Airflow's UI, once it is asked."""

    def __init__(self, client, dag_id, answer, why):
        super().__init__(daemon=True)
        self.question = None
        self._client, self._dag_id = client, dag_id
        self._answer = {"chosen_options": [answer], "params_input": {"why": why}}
        self._asked_to_stop = threading.Event()

    def run(self):
        runs = f"/api/v2/dags/{self._dag_id}/dagRuns"
        while self.question is None and not self._asked_to_stop.wait(0.5):
            open_ = self._client.get(f"{runs}/~/hitlDetails", params={"state": "awaiting_input"}).json()
            for detail in open_.get("hitl_details", ()):
                run_id = detail["task_instance"]["dag_run_id"]
                path = f"{runs}/{run_id}/taskInstances/approve/-1/hitlDetails"
                self._client.patch(path, json=self._answer).raise_for_status()
                self.question = detail

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._asked_to_stop.set()
        self.join()
