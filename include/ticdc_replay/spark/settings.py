"""Settings of a session: that hold for a while, that a Spark Connect server must have, and what it lets a session have."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from ticdc_replay.domain.errors import ConfigError

log = logging.getLogger(__name__)

_EXTENSIONS = "spark.sql.extensions"
_OF_SESSION = {"spark.pyspark.python": "spark.sql.execution.pyspark.python"}
"""What a session calls a setting of an application."""


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set *settings* of *spark*, and afterwards what was there before."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def require_settings(spark: SparkSession, wanted: Mapping[str, str]) -> None:
    """Check that the Spark Connect server of *spark* has the settings *wanted*; of extensions, those and maybe others.

    Raises ConfigError with the names of those that it lacks: values may be secret.
    """
    lacking = []
    for name, value in wanted.items():
        found = spark.conf.get(name, None) or ""
        if not (name == _EXTENSIONS and value in found.split(",")) and value != found:
            lacking.append(name)
    if lacking:
        raise ConfigError(
            f"the Spark Connect server lacks, or has with another value, {', '.join(lacking)}: set them in the server's "
            "spark-defaults.conf. See docs/operations.md, 'Spark Connect'"
        )


def set_up(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Give the session *spark* at a Spark Connect server what spark-submit gives an application by *conf*: archives, the Python
    of its tasks, and what a session may have of its own. A warning names the rest, unless the server has it so.

    Raises ConfigError for an archive that is no file of this machine.
    """
    fixed = []
    for name, value in conf.items():
        if name == "spark.archives":
            for archive in value.split(","):
                _send(spark, archive)
        elif spark.conf.isModifiable(setting := _OF_SESSION.get(name, name)):
            spark.conf.set(setting, value)
        elif spark.conf.get(name, None) != value:
            fixed.append(name)
    if fixed:
        log.warning(
            "spark.conf: no session at a Spark Connect server may set %s: set it at the server", ", ".join(fixed)
        )


def set_where_allowed(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Set those of *settings* that the server of the session *spark* lets it have, which only save time."""
    for name, value in settings.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)


def _send(spark: SparkSession, archive: str) -> None:
    path = archive.removeprefix("file://").partition("#")[0]
    if not Path(path).is_file():
        raise ConfigError(
            f"spark.archives: {archive} is no file of this machine, and no other can be sent over Spark Connect: name it in the "
            "server's own spark.archives"
        )
    spark.addArtifacts(archive.removeprefix("file://"), archive=True)
