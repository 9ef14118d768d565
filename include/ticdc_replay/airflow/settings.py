"""Where the project's folders are, as Airflow's processes see them."""

import os
from pathlib import Path

from airflow.sdk import conf

SPARK_JOBS_VARIABLE = "TICDC_REPLAY_SPARK_JOBS"


def spark_jobs_folder() -> Path:
    """The folder of the Spark entry scripts: ``TICDC_REPLAY_SPARK_JOBS``, else ``spark_jobs`` beside the dags folder."""
    return _folder(SPARK_JOBS_VARIABLE, "spark_jobs")


def _folder(variable: str, beside_dags: str) -> Path:
    configured = os.environ.get(variable)
    return Path(configured) if configured else Path(conf.get("core", "dags_folder")).parent / beside_dags
