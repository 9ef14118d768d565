"""What an asset's event says of a load."""

import json

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.load.asset_event import asset_event
from ticdc_replay.targets.base import LoadReport, TableReport

HOUR = Window(464626542182400000, 464627485900800000)


def test_the_event_has_the_window_the_run_and_the_snapshot_of_each_table_that_the_target_holds() -> None:
    report = LoadReport(
        pipeline="shop",
        run_hash="run1",
        input_hash="input1",
        window=HOUR,
        target="iceberg",
        type="iceberg",
        attempt="a1",
        selection=("*.*",),
        tables=(
            TableReport(
                table=TableName("shop", "orders"),
                outcome="loaded",
                destination="o",
                upserted=20,
                deleted=5,
                commit="87",
            ),
            TableReport(table=TableName("shop", "users"), outcome="done_before", destination="u"),
            TableReport(table=TableName("shop", "log"), outcome="without_key", destination="l"),
        ),
    )
    event = asset_event(report)
    assert event == {
        "pipeline": "shop",
        "target": "iceberg",
        "from": "2026-03-02T00:00:00+00:00",
        "to": "2026-03-02T01:00:00+00:00",
        "from_ts": HOUR.from_ts,
        "to_ts": HOUR.to_ts,
        "run_hash": "run1",
        "tables": {
            "shop.orders": {"outcome": "loaded", "upserted": 20, "deleted": 5, "commit": "87"},
            "shop.users": {"outcome": "done_before", "upserted": 0, "deleted": 0, "commit": None},
        },
    }
    assert json.loads(json.dumps(event)) == event
