"""Spark starts with the archive of its classes that ``make setup`` made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.embedded_stack import class_archive, java
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.integration

SPARK = "org.apache.spark.deploy.SparkSubmit source: "


@pytest.fixture(autouse=True)
def old_enough_java():
    version = java.major_version(java.find_home() / "bin" / "java")
    if version > class_archive.UP_TO_JAVA:
        pytest.skip(f"no archive fits the class path of Spark with Java {version}")


def loaded(tmp_path, options):
    """What a JVM of spark-submit writes, and its log of the classes that it loaded."""
    log = tmp_path / "classes.log"
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.find_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": " ".join((*java.SHORT_LIVED, *options, f"-Xlog:class+load:file={log}")),
    }
    command = [Path(sys.executable).with_name("spark-submit"), "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr, log.read_text()


def test_classes_of_spark_come_from_the_archive(tmp_path):
    shown, log = loaded(tmp_path, class_archive.options())
    assert f"{SPARK}shared objects file (top)" in log
    assert "warning" not in shown


def test_with_another_class_path_it_is_passed_over_in_silence(tmp_path, monkeypatch):
    configuration = tmp_path / "conf"  # stands first in the class path
    configuration.mkdir()
    (configuration / "spark-defaults.conf").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(configuration))
    shown, log = loaded(tmp_path, class_archive.options())
    assert f"{SPARK}jar:" in log or f"{SPARK}file:" in log
    assert "warning" not in shown
