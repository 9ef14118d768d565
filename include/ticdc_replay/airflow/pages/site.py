"""All pages of the plugin, as one application."""

from ticdc_replay.airflow.pages import coverage, stores
from ticdc_replay.airflow.pages.application import page_application

app = page_application("ticdc-replay")
app.include_router(coverage.router)
app.include_router(stores.router)
