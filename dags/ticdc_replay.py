"""Every DAG of ticdc-replay: Airflow takes those that this file leaves in its namespace.

Each pipeline file in ``include/pipelines`` gives a DAG that replays its windows, and one for what was set aside. Each store file
in ``include/stores`` gives a DAG that reconciles claim-check objects, and one that deletes left-overs, if its policy allows that.
A file that can't be used gives a DAG that says why. The environment may name other folders.
"""

import os
from pathlib import Path

from ticdc_replay.airflow.dags import build_dags

INCLUDE = Path(__file__).absolute().parents[1] / "include"

globals().update(
    build_dags(
        pipelines=os.environ.get("TICDC_REPLAY_PIPELINES", INCLUDE / "pipelines"),
        stores=os.environ.get("TICDC_REPLAY_STORES", INCLUDE / "stores"),
    )
)
