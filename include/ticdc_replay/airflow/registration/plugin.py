"""What the library adds to Airflow: the entry point ``airflow.plugins`` of the wheel names this class."""

from airflow.plugins_manager import AirflowPlugin

from ticdc_replay.airflow.pages import URL_PREFIX, app
from ticdc_replay.airflow.timetable import BoundedTimetable, WindowTimetable


class TicdcReplayPlugin(AirflowPlugin):
    """The pages of pipelines and stores, as tabs of each DAG, and the timetable, which Airflow accepts from plugins only."""

    name = "ticdc_replay"
    timetables = [BoundedTimetable, WindowTimetable]
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
