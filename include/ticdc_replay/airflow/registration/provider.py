"""What Airflow knows of the library as a provider: the entry point ``apache_airflow_provider`` names ``provider_info``."""

from typing import Any

from ticdc_replay import __version__


def provider_info() -> dict[str, Any]:
    """As Airflow's ``provider_info.schema.json`` asks: it has the form of connections to TiDB.

    All other types that pipelines name have forms of other providers.
    """
    return {
        "package-name": "ticdc-replay",
        "name": "TiCDC Replay",
        "description": "Replays windows of TiCDC changefeeds from Kafka into databases and lake tables.",
        "versions": [__version__],
        "connection-types": [
            {
                "connection-type": "tidb",
                "hook-class-name": "ticdc_replay.airflow.tidb.TidbHook",
                "hook-name": "TiDB",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema"],
                    "relabeling": {},
                    "placeholders": {
                        "host": "tidb.example.com",
                        "port": "4000",
                        "login": "a user with SELECT on the tables",
                    },
                },
                "conn-fields": {
                    "ssl_ca": _file("CA certificates"),
                    "ssl_cert": _file("Client certificate"),
                    "ssl_key": _file("Key of the client certificate"),
                },
            }
        ],
    }


def _file(label: str) -> dict[str, Any]:
    return {
        "label": label,
        "description": "Path of a PEM file, the same on every machine that runs tasks",
        "schema": {"type": ["string", "null"]},
    }
