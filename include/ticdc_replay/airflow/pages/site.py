"""All pages of the plugin, as one application. Each is of a DAG, and seen by whoever may see the runs of that DAG."""

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse

from ticdc_replay.airflow.pages import coverage, stores

app = FastAPI(
    title="ticdc-replay",
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
    default_response_class=HTMLResponse,
    dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))],
)
app.include_router(coverage.router)
app.include_router(stores.router)
