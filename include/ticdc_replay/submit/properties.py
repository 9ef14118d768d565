"""The Spark properties of a submitted job, for Airflow and the command line alike."""

import re
import sys
from collections.abc import Iterator

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.config.target_section import TargetSection


def spark_properties(declared: Pipeline | Store) -> dict[str, str]:
    """The properties of every job of a pipeline or a store: those of its ``spark.conf``, which replace ours.

    Tasks carry connections. PySpark writes tasks, and functions of more than 1 MB, to files in Spark's local folder, and the JVM
    may do so when memory is short. With I/O encryption none of these files can be read.

    The driver, which runs where it is submitted, stays with the Python that submits. Else ``spark.pyspark.python``, which is for
    executors and may stand in spark-defaults.conf, would count for the driver before any variable of the environment.
    """
    ours = {
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
        "spark.io.encryption.enabled": "true",
        "spark.pyspark.driver.python": sys.executable,
    }
    return {**ours, **declared.spark.conf}


UNCOMPILED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For jobs whose rows are in Python alone: compiling a plan of a few numbers takes seconds, and running it none."""
ROWS_IN_PYTHON = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    **UNCOMPILED,
}
"""For the same jobs: a JVM that only hands out tasks never earns back what its second compiler takes.

What spark-defaults.conf has for these properties counts no more, unless ``spark.conf`` repeats it. ``extraJavaOptions``, in
either, come after these options and may say otherwise.
"""
_REPEATABLE = frozenset({"decode", "scan", "seed"})
"""Jobs whose tasks may run twice at a time: each writes files of its own, and only those of one copy get into the index."""


def has_rows_in_python(job: str, target: TargetSection | None) -> bool:
    """Whether the JVM of a *job*, as ``job_properties`` has it, only hands out tasks."""
    return job != "reconcile" and not (target is not None and target.spark_properties)


def job_properties(declared: Pipeline | Store, job: str, target: TargetSection | None = None) -> dict[str, str]:
    """As ``spark_properties``, for the *job* of this name: ``decode``, ``load``, ``scan``, ``reconcile``, ``maintain``,
    ``mirror``, ``seed`` or ``verify``; loads, maintenance, changes of mirrors and comparisons are of *target*.

    Slow tasks are started a second time where that is safe and the cluster has room; tasks of a load would do to a target the
    same work twice, so there speculation is off whatever is declared.
    """
    needed = {} if target is None else target.spark_properties
    jvm = ROWS_IN_PYTHON if has_rows_in_python(job, target) else {}
    if job not in _REPEATABLE:
        return {**jvm, **needed, **spark_properties(declared), "spark.speculation": "false"}
    return {**jvm, "spark.speculation": "true", "spark.speculation.minTaskRuntime": "10s", **spark_properties(declared)}


_MEMORY = re.compile(r"\d+[kmgtp]b?", re.IGNORECASE)


def refused_properties(declared: Pipeline | Store) -> Iterator[str]:
    """What jobs could not be submitted with, or would be submitted without, of ``spark.conf``."""
    for name, value in declared.spark.conf.items():
        place = f"spark.conf: {name}: {value}"
        if not name.startswith("spark."):
            yield f"{place}: spark-submit passes over what does not begin with spark."
        elif name == "spark.submit.deployMode" and value != "client":
            yield f"{place}: must be client here; for cluster mode set deploy-mode in the extra of the Spark connection"
        elif name in ("spark.driver.memory", "spark.executor.memory") and not _MEMORY.fullmatch(value):
            yield f"{place}: is not a size, such as 4g"
