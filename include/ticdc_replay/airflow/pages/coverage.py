"""The coverage page of a pipeline: which windows each target holds, and the gaps."""

from pathlib import Path
from typing import Any

from fastapi import APIRouter
from jinja2 import Environment, FileSystemLoader

from ticdc_replay.airflow.pages.application import opened_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.load.coverage import Covered, TargetCoverage, coverage

router = APIRouter()

_KINDS = {
    "complete proven": "complete",
    "complete unproven": "complete as far as is known, not proven",
    "complete offset": "what was recorded in this time, by offset",
    "quarantine proven": "a part is in quarantine",
    "quarantine unproven": "a part is in quarantine, the rest not proven",
    "quarantine offset": "a part is in quarantine, the rest by offset",
    "partial": "only some of the tables",
}
"""Classes of the style sheet, and their meaning."""

_TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)


@router.get("/coverage/{dag_id}")
def coverage_page(dag_id: str) -> str:
    """The page of the pipeline whose DAG is *dag_id*."""
    with opened_pipeline(dag_id) as (pipeline, state):
        targets = coverage(pipeline, state)
    return _TEMPLATES.get_template("coverage.html").render(pipeline=pipeline.name, **_shown(targets), moment=_moment)


def _shown(targets: tuple[TargetCoverage, ...]) -> dict[str, Any]:
    """The values of the template: bars are drawn on one scale, from the first loaded moment to the last."""
    extents = [extent for target in targets if (extent := _extent(target.target)) is not None]
    if not extents:
        return {"whole": None, "targets": targets}
    whole = Window(min(extent.from_ts for extent in extents), max(extent.to_ts for extent in extents))

    def bar(covered: Covered) -> list[dict[str, Any]]:
        scale = 100 / (whole.to_ts - whole.from_ts)
        parts = [(span.window, f"{span.held.quality} {span.held.grade}") for span in covered.spans]
        parts += [(gap.window, "partial") for gap in covered.gaps if gap.partial]
        return [
            {
                "left": (window.from_ts - whole.from_ts) * scale,
                "width": (window.to_ts - window.from_ts) * scale,
                "kind": kind,
                "title": f"{_moment(window.from_ts)} to {_moment(window.to_ts)}: {_KINDS[kind]}",
            }
            for window, kind in sorted(parts)
        ]

    return {"whole": whole, "targets": targets, "bar": bar, "own_gaps": _own_gaps, "extent": _extent, "kinds": _KINDS}


def _extent(covered: Covered) -> Window | None:
    """From the first loaded moment to the last, None where nothing is loaded."""
    windows = [*(span.window for span in covered.spans), *(gap.window for gap in covered.gaps)]
    if not windows:
        return None
    return Window(min(window.from_ts for window in windows), max(window.to_ts for window in windows))


def _own_gaps(covered: Covered, of: Covered) -> list[Window]:
    """The gaps of a table where they are not those of its target *of*."""
    gaps = [gap.window for gap in covered.gaps]
    return [] if gaps == [gap.window for gap in of.gaps] else gaps


def _moment(ts: int) -> str:
    moment = tso.to_datetime(ts)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{moment.microsecond // 1000:03}" if moment.microsecond else "")
