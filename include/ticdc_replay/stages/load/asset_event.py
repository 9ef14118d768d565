"""What an asset's event says of a load, for whoever is scheduled by the asset."""

from typing import Any

from ticdc_replay.domain import tso
from ticdc_replay.targets.base import LEFT_OUT, LoadReport


def asset_event(report: LoadReport) -> dict[str, Any]:
    """The window of *report*, from (included) and to (not included) as TSO and as ISO 8601, its run, and its tables: rows
    put and removed, and the snapshot id or version (``TableReport.commit``), None where the load made none."""
    window = report.window
    return {
        "pipeline": report.pipeline,
        "target": report.target,
        "from": tso.to_datetime(window.from_ts).isoformat(),
        "to": tso.to_datetime(window.to_ts).isoformat(),
        "from_ts": window.from_ts,
        "to_ts": window.to_ts,
        "run_hash": report.run_hash,
        "tables": {
            str(table.table): {
                "outcome": table.outcome,
                "upserted": table.upserted,
                "deleted": table.deleted,
                "commit": table.commit or None,
            }
            for table in report.tables
            if table.outcome not in LEFT_OUT
        },
    }
