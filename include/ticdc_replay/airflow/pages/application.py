"""What all pages share: who may see them, which pipeline or store they are about, and how an error is shown."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse

from ticdc_replay.airflow.connections import resolve
from ticdc_replay.airflow.declared import Declared, declared_in
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain.errors import TicdcReplayError
from ticdc_replay.stages.context import open_pipeline_state
from ticdc_replay.state import StateStore


def page_application(title: str) -> FastAPI:
    """An application for HTML pages about DAGs.

    The path of each route contains ``{dag_id}``. Users who may see the runs of that DAG may see its pages; Airflow answers 401
    or 403 to others. An error of the library becomes status 503 with its text.
    """
    app = FastAPI(
        title=title,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        default_response_class=HTMLResponse,
        dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))],
    )
    app.add_exception_handler(TicdcReplayError, _unavailable)
    return app


def declaration_of(dag_id: str, kind: type[Declared]) -> Declared:
    """The pipeline or store of the DAG *dag_id*. Raises HTTPException with status 404 if it is not the DAG of one."""
    found = declared_in(dag_id, kind)
    if found is None:
        raise HTTPException(404, f"{dag_id} is not the DAG of a {kind.__name__.lower()}")
    return found


@contextmanager
def opened_pipeline(dag_id: str) -> Iterator[tuple[Pipeline, StateStore]]:
    """The pipeline of the DAG *dag_id*, and its state store, open meanwhile. Raises as ``declaration_of`` does."""
    pipeline = declaration_of(dag_id, Pipeline)
    conn_id = pipeline.connections.state
    with closing(open_pipeline_state(pipeline, resolve([conn_id] if conn_id else [], pipeline))) as state:
        yield pipeline, state


def _unavailable(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": f"This page can't be shown: {error}"}, 503)
