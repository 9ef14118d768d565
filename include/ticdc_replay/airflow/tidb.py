"""TiDB as a type of Airflow's connections."""

from airflow.sdk import BaseHook


class TidbHook(BaseHook):
    """Names the connection type ``tidb``, for ``connections.source``; ``provider`` has its form, and jobs read its fields."""

    conn_name_attr = "tidb_conn_id"
    default_conn_name = "tidb_default"
    conn_type = "tidb"
    hook_name = "TiDB"
