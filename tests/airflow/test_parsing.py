"""From pipeline files to DAGs: which there are, what is in them, and what a broken file does."""

import json
import subprocess
import sys
from datetime import timedelta

import pytest

pytestmark = pytest.mark.airflow


@pytest.fixture
def parse(pipelines):
    """Parses the folder as the DAG processor does: through the bundle, file by file."""

    def parse():
        from airflow.dag_processing.dagbag import DagBag

        from ticdc_replay.airflow.bundle import PipelineBundle

        bundle = PipelineBundle(name=f"pipelines-{pipelines.path.parent.name}", pipelines=str(pipelines.path))
        bundle.initialize()
        return DagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)

    return parse


def test_each_pipeline_is_a_dag_and_one_for_its_quarantine(parse, pipelines):
    pipelines.add("billing", {})
    bag = parse()
    assert bag.import_errors == {}
    names = ["ticdc_replay_billing", "ticdc_replay_shop"]
    assert sorted(bag.dags) == sorted([*names, *(f"{name}_quarantine" for name in names)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name: [", "broken.yaml, line 1"),
        ({"targets": []}, "broken.yaml: targets: empty; give at least one"),
        ({"artifacts": "s3://key:hunter2@lake"}, "broken.yaml: artifacts: the URI holds a password"),
    ],
)
def test_a_broken_pipeline_is_an_import_error_of_its_own_dag_alone(parse, pipelines, content, message):
    pipelines.add("broken", content)
    bag = parse()
    assert list(bag.import_errors) == ["broken_yaml.py"]
    assert message in bag.import_errors["broken_yaml.py"]
    assert "hunter2" not in bag.import_errors["broken_yaml.py"]
    assert sorted(bag.dags) == ["ticdc_replay_shop", "ticdc_replay_shop_quarantine"]


def test_two_pipelines_of_one_name_are_an_import_error(parse, pipelines):
    pipelines.add("shop2", {"name": "shop"})
    bag = parse()
    assert sorted(bag.dags) == ["ticdc_replay_shop", "ticdc_replay_shop_quarantine"]
    assert "ticdc_replay_shop" in bag.import_errors["shop2_yaml.py"]


def test_a_removed_pipeline_goes_and_a_new_one_comes_with_its_pools(pipelines, airflow_database):
    from airflow.models.pool import Pool

    from ticdc_replay.airflow.bundle import PipelineBundle

    bundle = PipelineBundle(name=f"pipelines-{pipelines.path.parent.name}", pipelines=str(pipelines.path))
    bundle.initialize()
    pipelines.add("billing", {})
    (pipelines.path / "shop.yaml").unlink()
    Pool.create_or_update_pool("ticdc_replay_billing_lake", slots=4, description="ours", include_deferred=False)
    bundle.refresh()
    assert [file.name for file in bundle.path.iterdir()] == ["billing_yaml.py"]
    pools = {pool.pool: pool.slots for pool in Pool.get_pools()}
    assert pools["ticdc_replay_billing_warehouse"] == 1
    assert pools["ticdc_replay_billing_lake"] == 4, "a pool that exists is left alone"


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
    assert dag.get_task("load_lake").pool == "ticdc_replay_shop_lake"
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
    assert {dag.get_task(f"{task}_lake").pool for task in ("load_window", "load")} == {"ticdc_replay_shop_lake"}
    assert all(task.doc_md for task in dag.tasks)
    assert (dag.schedule, dag.max_active_runs, dag.params["action"]) == (None, 1, "list")


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
from ticdc_replay.airflow.factory import build_dag
build_dag({str(pipelines.path / "shop.yaml")!r})
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
    from ticdc_replay.airflow.factory import build_dag
    from ticdc_replay.domain.errors import ConfigError

    with pytest.raises(ConfigError, match=r"changefeed\.toml: sink\.dispatchers\[0\]\.topic"):
        build_dag(pipelines.path / "toml.yaml")
