"""All pages of the plugin, as one application."""

from fastapi import FastAPI

from ticdc_replay.airflow.pages import coverage, stores

app = FastAPI(title="ticdc-replay", docs_url=None, redoc_url=None, openapi_url=None)
app.include_router(coverage.router)
app.include_router(stores.router)
