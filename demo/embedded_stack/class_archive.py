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
UP_TO_JAVA = 18
"""For later ones no archive fits the class path of Spark: it names a jar twice, and they note it once."""
_ARCHIVE, _STAMP = "spark.jsa", "stamp"
_JOB = """\
from pyspark.sql import SparkSession

session = SparkSession.builder.master("local[2]").getOrCreate()
assert "splits=" in session.sql("EXPLAIN SELECT * FROM range(1000000)").collect()[0][0]
assert session.range(0, 4, 1, 4).mapInArrow(lambda batches: batches, "id long").count() == 4
session.stop()
"""


def options() -> tuple[str, ...]:
    """Options with which the JVM of a Spark driver uses the archive; none where there is no archive."""
    archive = FOLDER / _ARCHIVE
    if not archive.exists():
        return ()
    # Nothing is wrong where it does not fit.
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def make(report: Callable[[str], None]) -> None:
    """Make the archive from a small Spark job, unless that was done before; *report* gets progress, and why this Java can't."""
    if (FOLDER / _STAMP).exists():
        return
    FOLDER.mkdir(exist_ok=True)
    home = java.find_home()
    if (java.major_version(home / "bin" / "java") or 0) <= UP_TO_JAVA:
        report("archiving the classes of Spark, which then starts faster (once, about ten seconds)")
        _archive(home, report)
    (FOLDER / _STAMP).touch()


def _archive(home: Path, report: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as workshop:
        job, archive = Path(workshop) / "job.py", Path(workshop) / _ARCHIVE
        job.write_text(_JOB)
        environment = {
            **os.environ,
            "JAVA_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_SUBMIT_OPTS": " ".join((*java.SHORT_LIVED, f"-XX:ArchiveClassesAtExit={archive}")),
        }
        command: list[str | Path] = [
            Path(sys.executable).with_name("spark-submit"),
            "--conf",
            "spark.ui.enabled=false",
            job,
        ]
        done = subprocess.run(
            command, env=environment, cwd=workshop, capture_output=True, text=True, timeout=MAKE_SECONDS
        )
        if archive.exists():
            archive.rename(FOLDER / _ARCHIVE)
        else:
            report(f"this Java archives no classes: {(done.stderr or done.stdout)[-500:]}")
