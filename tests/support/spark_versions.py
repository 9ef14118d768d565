"""Jars that tests need with each version of Spark: those of lake tables, and the Spark Connect server, which 3.5 ships apart."""

import sys
from pathlib import Path

import pyspark

from demo.embedded_stack import jars
from demo.embedded_stack.jars import JarSet

_DATA = Path(__file__).resolve().parents[1] / "data"
SQLITE = ("org.xerial", "sqlite-jdbc", "3.53.4.0")
CONNECT_3_5 = JarSet(
    "spark-connect-3.5.7",
    (("org.apache.spark", "spark-connect_2.12", "3.5.7"),),
    _DATA / "spark-connect-3.5.7.sha256",
    transitive=False,
)
LAKE_3_5 = JarSet(
    "lake-spark-3.5",
    (
        ("org.apache.iceberg", "iceberg-spark-runtime-3.5_2.12", "1.12.0"),
        ("io.delta", "delta-spark_2.12", "3.3.3"),
        ("io.delta", "delta-storage", "3.3.3"),
        SQLITE,
    ),
    _DATA / "lake-spark-3.5.sha256",
    transitive=False,
)
LAKE_4_0 = JarSet(
    "lake-spark-4.0",
    (
        ("org.apache.iceberg", "iceberg-spark-runtime-4.0_2.13", "1.11.0"),
        ("io.delta", "delta-spark_4.0_2.13", "4.4.0"),
        ("io.delta", "delta-storage", "4.4.0"),
        SQLITE,
    ),
    _DATA / "lake-spark-4.0.sha256",
    transitive=False,
)


def lake_jars() -> list[Path]:
    """What this Spark needs for lake tables."""
    return _files({"3.5": LAKE_3_5, "4.0": LAKE_4_0}.get(pyspark.__version__[:3], jars.LAKE))


def connect_jars() -> dict[str, str]:
    """The property with which this Spark can be a Spark Connect server."""
    return {"spark.jars": ",".join(map(str, _files(CONNECT_3_5)))} if pyspark.__version__.startswith("3.5.") else {}


def _files(wanted: JarSet) -> list[Path]:
    return sorted(jars.fetch(wanted, lambda line: sys.stderr.write(f"{line}\n")).glob("*.jar"))
