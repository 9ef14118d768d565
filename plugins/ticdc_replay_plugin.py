"""Registers with Airflow what the library adds to it. The one file that Airflow runs here; what it names lives in the library."""

from airflow.plugins_manager import AirflowPlugin

from ticdc_replay.airflow.pages import URL_PREFIX, app
from ticdc_replay.airflow.timetable import WindowTimetable


class TicdcReplayPlugin(AirflowPlugin):
    """The pages of pipelines and stores, tabs of each DAG; and the timetable of the DAGs, which Airflow wants to be told of."""

    name = "ticdc_replay"
    timetables = [WindowTimetable]
    fastapi_apps = [{"name": "ticdc-replay", "app": app, "url_prefix": URL_PREFIX}]
    external_views = [
        {
            "name": "Coverage",
            "href": f"{URL_PREFIX.lstrip('/')}/coverage/{{DAG_ID}}",
            "destination": "dag",
            "url_route": "ticdc-replay-coverage",
        },
        {
            "name": "Store",
            "href": f"{URL_PREFIX.lstrip('/')}/store/{{DAG_ID}}",
            "destination": "dag",
            "url_route": "ticdc-replay-store",
        },
    ]
