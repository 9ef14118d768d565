"""The classes that Spark loads, read and verified once: an archive that a JVM maps when it starts (class data sharing).

Spark starts with a quarter less CPU. A JVM uses the archive only if Java, jars and class path are those that it was made of;
otherwise it starts without.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from demo.embedded_stack import java
from demo.embedded_stack.ports import HOST

MAKE_SECONDS = 600
FOLDER = Path(sys.prefix) / "class-archive"
"""In the environment, as the jars are; ``scripts/setup`` removes it when it installs other jars."""
_BASE, _SPARK = "java.jsa", "spark.jsa"
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""No warning where the archive does not fit."""
_JOB = """\
from pyspark.sql import SparkSession

session = SparkSession.builder.master("local[2]").getOrCreate()
assert session.sparkContext.parallelize(range(4), 2).map(lambda number: number + 1).collect() == [1, 2, 3, 4]
session.stop()
"""


def options() -> tuple[str, ...]:
    """Options with which the JVM of a Spark driver uses the archive; none where there is no archive."""
    return (*_sharing(FOLDER / _BASE, FOLDER / _SPARK), *_QUIET) if (FOLDER / _SPARK).exists() else ()


def make(report: Callable[[str], None]) -> None:
    """Make ``FOLDER`` with the archive from a small Spark job, or empty where this Java can't; *report* gets progress."""
    report("archiving the classes of Spark, which then starts faster (once, about ten seconds)")
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as workshop:
        new = Path(workshop) / FOLDER.name
        new.mkdir()
        job = Path(workshop) / "job.py"
        job.write_text(_JOB)
        archiving = (*java.SHORT_LIVED, *_sharing(new / _BASE), f"-XX:ArchiveClassesAtExit={new / _SPARK}")
        home = java.find_home()
        environment = {
            **os.environ,
            "JAVA_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_SUBMIT_OPTS": " ".join(archiving),
        }
        commands = (
            # Some Javas have no archive of their own classes, on which the other is built.
            (home / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={new / _BASE}"),
            (Path(sys.executable).with_name("spark-submit"), "--conf", "spark.ui.enabled=false", job),
        )
        for command in commands:
            done = subprocess.run(
                command, env=environment, cwd=workshop, capture_output=True, text=True, timeout=MAKE_SECONDS
            )
            if done.returncode != 0:
                break
        if not (new / _SPARK).exists():
            report(f"this Java archives no classes: {(done.stderr or done.stdout)[-500:]}")
        new.rename(FOLDER)


def _sharing(*archives: Path) -> tuple[str, ...]:
    return (f"-XX:SharedArchiveFile={os.pathsep.join(map(str, archives))}",)
