"""The runs of a pipeline: each window that was decoded, and its status."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from ticdc_replay.airflow.pages.application import opened_pipeline, page_application
from ticdc_replay.domain import tso

app = page_application("acme-runs")

_TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)


@app.get("/runs/{dag_id}")
def runs_page(dag_id: str) -> str:
    """The page of the pipeline whose DAG is *dag_id*."""
    with opened_pipeline(dag_id) as (pipeline, state):
        runs = state.runs.all(pipeline.name)
    return _TEMPLATES.get_template("page.html").render(pipeline=pipeline.name, runs=runs, moment=tso.to_datetime)
