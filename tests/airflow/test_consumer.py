"""The DAG of the user guide that runs after a load, with what the event of a load carries."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.load.asset_event import asset_event
from ticdc_replay.targets.base import LoadReport, TableReport

pytestmark = pytest.mark.airflow

USER_GUIDE = Path(__file__).resolve().parents[2] / "docs" / "user-guide.md"


def event_of(window: Window, commit: str) -> SimpleNamespace:
    report = LoadReport(
        pipeline="shop",
        run_hash="run1",
        input_hash="input1",
        window=window,
        target="iceberg",
        type="iceberg",
        attempt="a1",
        selection=("*.*",),
        tables=(TableReport(table=TableName("shop", "orders"), outcome="loaded", destination="o", commit=commit),),
    )
    return SimpleNamespace(extra=asset_event(report))


def test_the_dag_of_the_user_guide_is_scheduled_by_the_asset_and_reads_its_events() -> None:
    from airflow.sdk import DAG, Asset

    from ticdc_replay.airflow.naming import asset_name

    guide = USER_GUIDE.read_text(encoding="utf-8").partition("## Schedule in Airflow")[2].partition("\n## ")[0]
    (text,) = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    module: dict[str, Any] = {"__name__": "orders_report"}
    exec(text, module)
    dag = module["orders_report"]()
    assert isinstance(dag, DAG)
    assert [asset.name for asset in dag.timetable.asset_condition.objects] == [asset_name("shop", "iceberg")]
    hours = Window(464626542182400000, 464627485900800000), Window(464627485900800000, 464628429619200000)
    events = [event_of(hours[1], "88"), event_of(hours[0], "")]
    found = dag.get_task("changed_snapshots").python_callable(triggering_asset_events={Asset("any"): events})
    assert found == {"2026-03-02T01:00:00+00:00": "88"}
