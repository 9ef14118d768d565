"""Which cluster runs the drivers of jobs, by the Spark connection."""

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.submit.cluster import Cluster


def cluster_of(spark: Connection) -> Cluster | None:
    """The cluster whose applications drivers are, None where the driver runs on the machine that submits.

    Raises ConfigError for a cluster that can't run them, and for one whose address is incomplete.
    """
    if spark.conn_type == "spark_connect" or spark.extra.get("deploy-mode") != "cluster":
        return None
    master = master_of(spark)
    if master.startswith("yarn"):
        from ticdc_replay.submit.yarn import Yarn  # with httpx

        return Yarn(spark)
    if master.startswith("k8s"):
        from ticdc_replay.submit.kubernetes import Kubernetes

        return Kubernetes(spark, master)
    raise ConfigError(
        f"connection {spark.conn_id!r}: deploy-mode cluster is for YARN and Kubernetes, not for {master}: "
        "a standalone cluster runs no Python drivers. Set deploy-mode to client"
    )


def master_of(spark: Connection) -> str:
    """The master of *spark*, as Airflow's provider reads it."""
    host = spark.host or ""
    whole = spark.conn_type == "spark" and host and ("://" in host or not spark.port)
    master = host if whole else f"{spark.conn_type}://{host}"
    return f"{master}:{spark.port}" if spark.port else master
