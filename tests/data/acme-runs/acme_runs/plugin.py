"""What this package adds to Airflow: its entry point ``airflow.plugins`` names this class."""

from airflow.plugins_manager import AirflowPlugin

URL_PREFIX = "/acme"


async def app(scope, receive, send):
    """The page, loaded with the first request: plugins are imported by every process of Airflow."""
    from acme_runs.page import app as page

    await page(scope, receive, send)


class AcmeRunsPlugin(AirflowPlugin):
    """The page as a tab of each DAG."""

    name = "acme_runs"
    fastapi_apps = [{"name": "acme-runs", "app": app, "url_prefix": URL_PREFIX}]
    external_views = [
        {
            "name": "Runs",
            "href": f"{URL_PREFIX.lstrip('/')}/runs/{{DAG_ID}}",
            "destination": "dag",
            "url_route": "acme-runs",
        }
    ]
