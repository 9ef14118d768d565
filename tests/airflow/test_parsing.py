"""From pipeline files to DAGs: which there are, what is in them, and what a broken file does."""

import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

pytestmark = [pytest.mark.airflow, pytest.mark.matrix]


def test_each_pipeline_is_a_dag_and_ones_for_its_quarantine_and_base_load(parse, pipelines):
    pipelines.add("billing", {})
    bag = parse()
    names = ["ticdc_replay_billing", "ticdc_replay_shop"]
    assert sorted(bag.dags) == sorted(f"{name}{kind}" for name in names for kind in ("", "_quarantine", "_seed"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name: [", "broken.yaml, line 1"),
        ({"targets": []}, "broken.yaml: targets: empty; give at least one"),
        ({"artifacts": "s3://key:hunter2@lake"}, "broken.yaml: artifacts: the URI holds a password"),
    ],
)
def test_a_broken_pipeline_is_a_dag_that_says_why_and_takes_no_other_down(parse, pipelines, content, message):
    from ticdc_replay.domain.errors import ConfigError

    pipelines.add("broken", content)
    dags = parse().dags
    dag = dags.pop("ticdc_replay_unusable_pipeline_broken.yaml")
    assert sorted(dags) == ["ticdc_replay_shop", "ticdc_replay_shop_quarantine", "ticdc_replay_shop_seed"]
    assert (dag.dag_display_name, dag.schedule) == ("broken.yaml can't be used", None)
    for shown in (dag.description, dag.doc_md):
        assert message in shown
        assert "hunter2" not in shown
    with pytest.raises(ConfigError, match=re.escape(message)):
        dag.get_task("unusable").execute({})


def test_of_two_pipelines_of_one_name_the_second_says_so(parse, pipelines):
    pipelines.add("shop2", {"name": "shop"})
    dags = parse().dags
    assert (
        "another file has the DAG ticdc_replay_shop already" in dags["ticdc_replay_unusable_pipeline_shop2.yaml"].doc_md
    )
    assert len(dags) == 4


def test_a_file_that_can_not_be_used_stands_in_airflow_by_its_name(signed_in, pipelines):
    pipelines.add("broken", "name: [")
    (dag,) = signed_in.get("/api/v2/dags", params={"dag_display_name_pattern": "broken"}).json()["dags"]
    assert (dag["dag_display_name"], dag["is_stale"]) == ("broken.yaml can't be used", False)
    assert "broken.yaml, line 1" in dag["description"]


@pytest.mark.parametrize("of", ["ticdc_replay_shop", "ticdc_replay_shop_quarantine"])
def test_a_task_s_process_makes_no_dag_but_its_own(parse, pipelines, monkeypatch, of):
    for name in ("billing", "taxes", "zoo"):
        pipelines.add(name, {})
    pipelines.add("broken", "name: [")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", of)
    assert list(parse().dags) == [of]


def test_a_task_whose_file_was_broken_meanwhile_is_told_of_it(pipelines, monkeypatch):
    from ticdc_replay.airflow.dags import build_dags
    from ticdc_replay.domain.errors import ConfigError

    pipelines.add("shop", {"targets": []})
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "ticdc_replay_shop")
    with pytest.raises(ConfigError, match=r"shop\.yaml: targets: empty"):
        build_dags(pipelines.path)


def test_a_folder_that_is_missing_is_an_error_that_names_it(tmp_path):
    from ticdc_replay.airflow.dags import build_dags
    from ticdc_replay.domain.errors import ConfigError

    with pytest.raises(ConfigError, match=r"nowhere is not a folder: put the pipeline files there"):
        build_dags(tmp_path / "nowhere")


def test_the_dags_are_as_the_airflow_section_says(parse, pipelines):
    from airflow.serialization.serialized_objects import DagSerialization

    pipelines.add(
        "shop",
        {
            "airflow": {
                "owner": "data",
                "tags": ["finance"],
                "queue": "spark",
                "pool": "replay",
                "priority": 7,
                "executor_config": {"cpu": 2},
                "access_control": {"Analyst": ["can_read"]},
                "callbacks": {
                    "task_failed": "json.dumps",
                    "task_retried": "json.loads",
                    "run_failed": "json.dump",
                    "run_succeeded": "json.load",
                },
            }
        },
    )
    dags = parse().dags
    for dag in (dags["ticdc_replay_shop"], dags["ticdc_replay_shop_quarantine"]):
        assert {"ticdc-replay", "finance"} < dag.tags
        assert dag.access_control == {"Analyst": {"DAGs": {"can_read"}}}
        assert (dag.on_failure_callback, dag.on_success_callback) == (json.dump, json.load)
        for task in dag.tasks:
            assert (task.owner, task.queue, task.pool, task.priority_weight) == ("data", "spark", "replay", 7)
            assert task.executor_config == {"cpu": 2}
            assert (task.on_failure_callback, task.on_retry_callback) == ([json.dumps], [json.loads])
        DagSerialization.to_dict(dag)


def test_a_dag_that_a_cluster_policy_refuses_takes_no_other_down(parse, pipelines, monkeypatch):
    from airflow import settings
    from airflow.exceptions import AirflowClusterPolicyViolation

    def refuse_strangers(dag):
        if dag.owner == "nobody":
            raise AirflowClusterPolicyViolation("an owner that nobody knows")

    monkeypatch.setattr(settings, "dag_policy", refuse_strangers)
    pipelines.add("billing", {"airflow": {"owner": "nobody"}})
    dags = parse().dags
    assert "an owner that nobody knows" in dags.pop("ticdc_replay_unusable_pipeline_billing.yaml").doc_md
    assert sorted(dags) == ["ticdc_replay_shop", "ticdc_replay_shop_quarantine", "ticdc_replay_shop_seed"]


def test_a_file_that_can_not_be_read_stops_no_task_of_others(parse, pipelines, monkeypatch):
    (pipelines.path / "gone.yaml").symlink_to(pipelines.path / "nowhere")
    is_file = Path.is_file  # it was there when the folder was listed
    monkeypatch.setattr(Path, "is_file", lambda self: self.name == "gone.yaml" or is_file(self))
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "ticdc_replay_shop")
    assert list(parse().dags) == ["ticdc_replay_shop"]


def test_a_callback_that_can_not_be_imported_is_named(parse, pipelines):
    pipelines.add("shop", {"airflow": {"callbacks": {"run_failed": "my_company.alerts.page"}}})
    dag = parse().dags["ticdc_replay_unusable_pipeline_shop.yaml"]
    assert "shop.yaml: airflow.callbacks.run_failed: my_company.alerts.page can't be imported" in dag.description


def test_an_executor_s_configuration_may_be_named(parse, pipelines, monkeypatch):
    monkeypatch.setattr("json.small_pod", {"pod_override": "small"}, raising=False)
    pipelines.add("shop", {"airflow": {"executor_config": "json.small_pod"}})
    assert parse().dags["ticdc_replay_shop"].get_task("decode").executor_config == {"pod_override": "small"}


@pytest.mark.parametrize("name", ["ticdc_replay_shop", "ticdc_replay_shop_quarantine"])
def test_airflow_s_database_holds_what_a_dag_was_made_from(process, pipelines, name):
    from ticdc_replay.airflow.declared import declared_in
    from ticdc_replay.config.load import load_pipeline
    from ticdc_replay.config.pipeline import Pipeline
    from ticdc_replay.config.store import Store

    mirror = {"name": "mirror", "type": "postgres", "connection": "warehouse", "schema": "of_its_own"}
    pipelines.add("shop", {"targets": [mirror], "window": {"pin": "head"}, "airflow": {"tags": ["finance"]}})
    process()
    assert declared_in(name, Pipeline) == load_pipeline(pipelines.path / "shop.yaml").pipeline
    assert declared_in(name, Store) is None
    assert declared_in("no_such_dag", Pipeline) is None


def test_a_dag_that_another_version_made_is_told_of(process, monkeypatch):
    from ticdc_replay.airflow import declared
    from ticdc_replay.config.pipeline import Pipeline
    from ticdc_replay.domain.errors import ConfigError

    monkeypatch.setattr(declared, "__version__", "99.0")
    monkeypatch.setattr(Pipeline, "model_dump", lambda self, **_: {"name": self.name, "of_the_future": 1})
    process()
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"made by version 99\.0 of ticdc-replay"):
        declared.declared_in("ticdc_replay_shop", Pipeline)


def test_the_dag_has_the_tasks_of_a_replay_in_their_order(parse):
    dag = parse().dags["ticdc_replay_shop"]
    edges = {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}
    assert edges == {
        "await_watermark": ["snapshot"],
        "snapshot": ["decode"],
        "decode": ["check"],
        "check": ["load_lake", "load_warehouse"],
        "load_warehouse": ["publish"],
        "load_lake": ["publish"],
        "publish": [],
    }
    one_at_a_time = {task.task_id for task in dag.tasks if task.max_active_tis_per_dag == 1}
    assert one_at_a_time == {"load_lake", "load_warehouse"}
    assert all(task.doc_md for task in dag.tasks)
    assert "mistyped is unknown to TiCDC" in dag.doc_md


def test_the_quarantine_s_dag_is_started_by_hand_only_and_lists_unless_it_is_told_to_do_more(parse):
    dag = parse().dags["ticdc_replay_shop_quarantine"]
    edges = {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}
    assert edges == {
        "select": ["decode"],
        "decode": ["check"],
        "check": ["load_window_lake", "load_window_warehouse"],
        "load_window_warehouse": ["load_warehouse"],
        "load_window_lake": ["load_lake"],
        "load_warehouse": ["publish"],
        "load_lake": ["publish"],
        "publish": [],
    }
    assert {dag.get_task(f"{task}_lake").max_active_tis_per_dag for task in ("load_window", "load")} == {1}
    assert all(task.doc_md for task in dag.tasks)
    assert (dag.schedule, dag.max_active_runs, dag.params["action"]) == (None, 1, "list")


def test_lake_tables_are_maintained_by_a_dag_of_their_own(parse, pipelines):
    lake = {"name": "ice", "type": "iceberg", "catalog": "lake", "ledger": "file:///dev/null/ledger"}
    delta = {"name": "delta", "type": "delta", "path": "file:///dev/null/delta", "ledger": "file:///dev/null/d"}
    pipelines.add("shop", {"targets": [lake, delta]})
    dag = parse().dags["ticdc_replay_shop_maintain"]
    assert [(task.task_id, task.downstream_task_ids) for task in dag.tasks] == [
        ("maintain_ice", set()),
        ("maintain_delta", set()),
    ]
    assert (dag.schedule, dag.max_active_runs, dag.is_paused_upon_creation) == (None, 1, False)
    assert dict(dag.params) == {"tables": ["*.*"], "dry_run": False}
    daily = {"maintenance": {"schedule": "0 3 * * *"}}
    pipelines.add("shop", {"targets": [lake | daily, delta | daily]})
    dag = parse().dags["ticdc_replay_shop_maintain"]
    assert (dag.timetable.summary, dag.catchup, dag.is_paused_upon_creation) == ("0 3 * * *", False, True)


def test_mirrors_are_filled_by_a_dag_that_is_started_by_hand_only(parse, pipelines):
    dag = parse().dags["ticdc_replay_shop_seed"]
    edges = {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}
    assert edges == {
        "snapshot": ["decode"],
        "decode": ["check"],
        "check": ["load_lake", "load_warehouse"],
        "load_warehouse": ["publish"],
        "load_lake": ["publish"],
        "publish": [],
    }
    assert all(task.doc_md for task in dag.tasks)
    assert (dag.schedule, dag.max_active_runs, dag.params["targets"]) == (None, 1, ["warehouse"])
    pipelines.add("shop", {"targets": [{"name": "lake", "type": "parquet", "uri": "file:///dev/null/lake"}]})
    assert "ticdc_replay_shop_seed" not in parse().dags


def test_mirrors_are_compared_with_a_named_upstream_by_a_dag_of_their_own(parse, pipelines):
    mirror = {"name": "warehouse", "type": "postgres", "connection": "warehouse"}
    files = {"name": "files", "type": "parquet", "uri": "file:///dev/null/files"}
    lake = {"name": "lake", "type": "iceberg", "catalog": "lakehouse", "ledger": "file:///dev/null/ledger"}
    connections = {"kafka": "kafka_shop", "source": "upstream"}
    pipelines.add("shop", {"targets": [mirror, files]})
    assert "ticdc_replay_shop_verify" not in parse().dags
    pipelines.add("shop", {"targets": [mirror, files], "connections": connections})
    dag = parse().dags["ticdc_replay_shop_verify"]
    assert [task.task_id for task in dag.tasks] == ["verify_warehouse"]
    assert (dag.schedule, dag.max_active_runs) == (None, 1)
    assert dict(dag.params) == {"tables": ["*.*"], "at": "", "share": 0.5}
    pipelines.add("shop", {"targets": [files], "connections": connections})
    assert "ticdc_replay_shop_verify" not in parse().dags
    pipelines.add("shop", {"targets": [mirror, lake], "connections": connections})
    dag = parse().dags["ticdc_replay_shop_verify"]
    operators = {task.task_id: task.task_type for task in dag.tasks}
    assert operators == {"verify_warehouse": "VerifyOperator", "verify_lake": "SparkJobOperator"}


def test_errors_that_may_pass_are_tried_again_as_the_pipeline_says(parse, pipelines):
    pipelines.add("shop", {"retries": {"attempts": 5, "delay_seconds": 45}})
    tasks = {task.task_id: task for task in parse().dags["ticdc_replay_shop"].tasks}
    assert {task.retries for task in tasks.values()} == {5}
    assert {task.retry_delay for task in tasks.values()} == {timedelta(seconds=45)}
    assert all(task.retry_exponential_backoff for task in tasks.values())
    pipelines.add("shop", {"retries": {"attempts": 0}})
    tasks = {task.task_id: task.retries for task in parse().dags["ticdc_replay_shop"].tasks}
    assert tasks.pop("await_watermark") == 1, "a deferral may be failed by Airflow itself"
    assert set(tasks.values()) == {0}


def test_runs_are_windows_of_a_periodic_schedule_that_airflow_can_backfill(parse):
    dag = parse().dags["ticdc_replay_shop"]
    assert dag.is_paused_upon_creation
    assert dag.timetable.periodic


def test_dags_survive_airflow_s_serialization_and_hold_nothing_big_or_secret(parse):
    from airflow.serialization.serialized_objects import DagSerialization

    dag = parse().dags["ticdc_replay_shop"]
    data = DagSerialization.to_dict(dag)
    assert len(json.dumps(data)) < 40_000
    restored = DagSerialization.from_dict(data)
    assert restored.dag_id == "ticdc_replay_shop"
    assert set(restored.params) == {"from", "to", "tables", "targets", "dry_run", "repin", "reload", "pin"}


def test_parsing_imports_no_pyspark_and_opens_nothing(pipelines):
    probe = f"""
import json, socket, sys
def refuse(*_): raise AssertionError("parsing opened a connection")
socket.socket.connect = refuse
from ticdc_replay.airflow.dags import build_dags
assert len(build_dags({str(pipelines.path)!r})) == 3
heavy = ["pyspark", "confluent_kafka", "boto3", "pyarrow", "sqlglot"]
print(json.dumps([name for name in heavy if name in sys.modules]))
"""
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout.splitlines()[-1]) == []


def test_the_file_of_the_toml_is_the_only_other_file_that_parsing_reads(pipelines):
    (pipelines.path / "changefeed.toml").write_text('[sink]\ndispatchers = [{matcher = ["*.*"], topic = "{db}"}]')
    pipelines.add(
        "toml",
        {
            "changefeed": {
                "sink_uri": "kafka://b/t?protocol=open-protocol",
                "timezone": "UTC",
                "config_file": "changefeed.toml",
            }
        },
    )
    from ticdc_replay.airflow.dags.pipeline import build_dag
    from ticdc_replay.domain.errors import ConfigError

    with pytest.raises(ConfigError, match=r"changefeed\.toml: sink\.dispatchers\[0\]\.topic"):
        build_dag(pipelines.path / "toml.yaml")
