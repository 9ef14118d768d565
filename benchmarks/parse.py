"""What pipelines cost where Airflow parses DAGs, and the plugin where any of its processes starts.

``python -m benchmarks.parse`` parses the DAG file with the files of 100 pipelines as the DAG processor does (``DagBag``), and
takes off the time of a folder without DAGs. The plugin is imported after Airflow and its plugin manager, which every process of
Airflow imports before. Each run is a fresh process. What importing Airflow itself takes is shown apart.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import yaml

from benchmarks.results import replace_part

PIPELINES = 100
CHECKOUT = Path(__file__).resolve().parent.parent
MEASURE = """
import json, sys, time

def measured(name, work):
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    found[name] = time.perf_counter() - wall, time.process_time() - cpu
    return result

def airflow():
    import airflow, airflow.plugins_manager

def plugin():
    import ticdc_replay.airflow.registration.plugin

found = {}
measured("airflow", airflow)
measured("plugin", plugin)
from airflow.dag_processing.dagbag import DagBag
empty, dags, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
for name, folder in (("first", dags), ("empty", empty), ("again", dags)):
    bag = measured(name, lambda: DagBag(folder, bundle_path=None))
    assert not bag.import_errors, bag.import_errors
    assert len(bag.dags) == (0 if name == "empty" else 2 * wanted), len(bag.dags)
print(json.dumps(found))
"""


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--pipelines", type=int, default=PIPELINES)
    options = arguments.parse_args()
    runs = [_run(options.pipelines) for _ in range(options.runs + 1)][1:]  # the first one warms the file cache up
    found = _text(runs, options.pipelines)
    print(found)
    if options == arguments.parse_args([]):
        replace_part("parse", found)


def _run(pipelines: int) -> dict[str, tuple[float, float]]:
    """Elapsed and processor seconds of each step, in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        (folder / "pipelines").mkdir()
        for number in range(pipelines):
            (folder / "pipelines" / f"shop_{number}.yaml").write_text(yaml.safe_dump(_declared(number)))
        environ = {
            **os.environ,
            "AIRFLOW_HOME": name,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "TICDC_REPLAY_PIPELINES": str(folder / "pipelines"),
            "TICDC_REPLAY_STORES": str(folder / "stores"),
        }
        command = [sys.executable, "-c", MEASURE, str(folder / "empty"), str(CHECKOUT / "dags"), str(pipelines)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return {step: (wall, cpu) for step, (wall, cpu) in json.loads(done.stdout.splitlines()[-1]).items()}


def _declared(number: int) -> dict[str, object]:
    """A pipeline with two targets."""
    return {
        "name": f"shop_{number}",
        "description": "Orders of a shop",
        "changefeed": {"sink_uri": f"kafka://b:9092/shop_{number}?protocol=open-protocol", "timezone": "Asia/Shanghai"},
        "connections": {"kafka": "shop_kafka", "artifacts": "lake"},
        "artifacts": "s3://lake/replay",
        "tables": ["shop.*"],
        "schedule": {"cron": "0 * * * *", "start": "2026-03-01T00:00:00Z"},
        "targets": [
            {"name": "warehouse", "type": "postgres", "connection": "warehouse"},
            {"name": "lake", "type": "parquet", "connection": "lake", "uri": f"s3://lake/shop_{number}"},
        ],
    }


def _text(runs: list[dict[str, tuple[float, float]]], pipelines: int) -> str:
    steps: tuple[tuple[str, str, str, int, str], ...] = (
        ("plugin, after Airflow", "plugin", "", 1, "≤ 0.3"),
        ("a pipeline, parsed first in a process", "first", "empty", pipelines, "≤ 0.2"),
        ("a pipeline, parsed again", "again", "empty", pipelines, "≤ 0.2"),
        ("Airflow itself", "airflow", "", 1, ""),
    )
    lines = [
        f"`python -m benchmarks.parse`: {pipelines} pipelines of two DAGs each, {len(runs)} processes, "
        f"{psutil.cpu_count()} cores, medians. A folder without DAGs is taken off. Elapsed time depends on what else runs.",
        "",
        "| what | elapsed s | processor s | min – max elapsed s | goal |",
        "|---|---|---|---|---|",
    ]
    for title, step, less, count, goal in steps:
        walls, cpus = ([(run[step][of] - (run[less][of] if less else 0)) / count for run in runs] for of in (0, 1))
        lines.append(
            f"| {title} | {statistics.median(walls):.3f} | {statistics.median(cpus):.3f} | "
            f"{min(walls):.3f} – {max(walls):.3f} | {goal} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
