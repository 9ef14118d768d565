"""The page of a store: what its newest reconciliation found, how that changed, and what is planned and was deleted."""

from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from jinja2 import Environment, FileSystemLoader
from jinja2.filters import do_filesizeformat

from ticdc_replay.airflow.connections import resolve
from ticdc_replay.airflow.pages.application import declaration_of
from ticdc_replay.airflow.pages.charts import HEIGHT, WIDTH, stacked_areas, stacked_columns
from ticdc_replay.config.store import Store
from ticdc_replay.reconcile.judge.rules import ObjectClass, ReferenceClass
from ticdc_replay.reconcile.judge.summary import Summary
from ticdc_replay.stages.context import state_url
from ticdc_replay.state import open_state
from ticdc_replay.state.reconciliations import Reconciliation
from ticdc_replay.store_stages.context import artifacts_of
from ticdc_replay.store_stages.overview import StoreOverview, store_overview

router = APIRouter()

_size = partial(do_filesizeformat, binary=True)

_ALERTS, _DAYS, _TABLES = 50, 60, 100
"""How much of each the page shows; the report and its Parquet files have the rest."""

_OBJECTS = {
    ObjectClass.REFERENCED: "a message that can be read again needs it",
    ObjectClass.TOO_YOUNG: "its message may be still to come",
    ObjectClass.ORPHANED: "left over from a retry: no message refers to it",
    ObjectClass.EXPIRED: "Kafka has expired the messages of its time",
    ObjectClass.MALFORMED: "not readable as a claim-check object, or empty",
    ObjectClass.FOREIGN: "not a claim-check name",
}
"""What the classes mean, in the order of the page, which is that of the charts from the bottom up."""
_REFERENCES = {
    ReferenceClass.PRESENT: "the object is there, as it was",
    ReferenceClass.DUPLICATE: "one of several objects of the same row version",
    ReferenceClass.ALTERED: "the object is another than was pinned or read",
    ReferenceClass.MISSING: "no object has this name",
    ReferenceClass.TOO_YOUNG: "the message is newer than the inventory",
}

_TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)


@router.get("/store/{dag_id}")
def store_page(dag_id: str) -> str:
    """The page of the store whose DAG is *dag_id*."""
    store = declaration_of(dag_id, Store)
    named = store.connections
    connections = resolve([conn_id for conn_id in (named.state, named.artifacts) if conn_id], store)
    with closing(open_state(state_url(store, connections))) as state:
        overview = store_overview(store.name, state, artifacts_of(store, connections))
    return _TEMPLATES.get_template("stores.html").render(**_shown(store, overview))


def _shown(store: Store, overview: StoreOverview) -> dict[str, Any]:
    """The values of the template."""
    return {
        "store": store,
        "overview": overview,
        "trend": _trend(overview.trend),
        "days": _days(overview.newest.summary) if overview.newest else None,
        "tables": _tables(overview.newest.summary) if overview.newest else [],
        "object_classes": _OBJECTS,
        "reference_classes": _REFERENCES,
        "alerts_shown": _ALERTS,
        "chart": (WIDTH, HEIGHT),
        "moment": _moment,
        "size": _size,
    }


def _trend(done: Iterable[Reconciliation]) -> list[dict[str, Any]]:
    """The charts of all reconciliations; those in which nothing changes from zero are left out."""
    done = list(done)
    times = [each.began_at_ms for each in done]
    charts: list[tuple[str, list[str], Callable[[int], str]]] = [
        ("Objects", [f"objects.{kind}" for kind in _OBJECTS], str),
        ("Bytes", [f"bytes.{kind}" for kind in _OBJECTS], _size),
        ("Messages whose object is missing", ["lost_rows"], str),
    ]
    return [
        {
            "title": title,
            "bands": bands,
            "now": text(sum(done[-1].totals.get(name, 0) for name in names)),
            "most": text(max(sum(each.totals.get(name, 0) for name in names) for each in done)),
            "first": times[0],
            "last": times[-1],
        }
        for title, names, text in charts
        if (bands := stacked_areas(times, {_kind(name): [e.totals.get(name, 0) for e in done] for name in names}))
    ]


def _kind(total: str) -> str:
    return total.partition(".")[2] or "missing"


def _days(summary: Summary) -> dict[str, Any]:
    """Bytes by the day on which objects were last modified: the last ``_DAYS`` days of them that have any."""
    by_day: dict[str, dict[str, int]] = {}
    for part in summary.by_day:
        by_day.setdefault(part.day, dict.fromkeys(map(str, _OBJECTS), 0))[part.kind] += part.bytes
    filled = sorted(day for day, sizes in by_day.items() if any(sizes.values()))
    days = filled[-_DAYS:]
    titles = [
        f"{day}: " + ", ".join(f"{kind} {_size(size)}" for kind, size in by_day[day].items() if size) for day in days
    ]
    return {
        "blocks": [(block, titles[block.column]) for block in stacked_columns([by_day[day] for day in days])],
        "first": days[0] if days else None,
        "last": days[-1] if days else None,
        "left_out": len(filled) - len(days),
    }


def _tables(summary: Summary) -> list[dict[str, Any]]:
    """One row a table, the largest first."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}

    def row(schema: str, table: str) -> dict[str, Any]:
        empty = {"name": f"{schema}.{table}" if table else "", "bytes": 0, "objects": {}, "references": {}, "lost": 0}
        return rows.setdefault((schema, table), empty)

    for part in summary.objects_by_table:
        found = row(part.schema, part.table)
        found["bytes"] += part.bytes
        _add(found["objects"], part.kind, part.objects)
    for of in summary.references_by_table:
        found = row(of.schema, of.table)
        _add(found["references"], of.kind, of.references)
        found["lost"] += of.protecting if of.kind == ReferenceClass.MISSING else 0
    return sorted(rows.values(), key=lambda found: (-found["lost"], -found["bytes"], found["name"]))[:_TABLES]


def _add(counts: dict[str, int], kind: str, more: int) -> None:
    counts[kind] = counts.get(kind, 0) + more


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
