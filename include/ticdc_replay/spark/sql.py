"""Spark SQL for targets that Spark writes to (``targets.sql.Sql``). Uses nothing that Spark Connect lacks."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ticdc_replay.spark.sealing import sealed
from ticdc_replay.spark.session import is_remote
from ticdc_replay.spark.settings import require_settings, with_settings
from ticdc_replay.spark.versions import condition_of, silence_errors
from ticdc_replay.targets.lake.section import hidden_in
from ticdc_replay.targets.sql import SqlError

Task = TypeVar("Task")

_OURS = {
    # A text is a text: Spark would put settings and variables of the environment in place of ${...} in a literal.
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    # Dates before 1582 are those of one calendar, as TiDB has them. By default Spark 3.5 refuses to write them, Spark 4 does not.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
"""Settings of the session."""
_SHOWN = 2_000
"""Characters of an error of the JVM, without its stack traces."""


class SparkSql:
    """The statements of one driver, in the session *spark*."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark
        self._hidden: set[str] = set()

    @cached_property
    def _spark(self) -> SparkSession:
        silence_errors()
        for name, value in _OURS.items():
            self._session.conf.set(name, value)
        return self._session

    def run(self, statement: str, settings: Mapping[str, str] = {}) -> list[dict[str, Any]]:
        """See ``Sql.run``."""
        with self._errors(), with_settings(self._spark, settings):
            return [row.asDict() for row in self._spark.sql(statement).collect()]

    def set(self, settings: Mapping[str, str], secret: Collection[str] = ()) -> None:
        """See ``Sql.set``."""
        secrets = {name: settings[name] for name in secret}
        self._hidden |= set(hidden_in(secrets))
        if is_remote(self._spark):
            require_settings(self._spark, secrets)
            settings = {name: value for name, value in settings.items() if name not in secrets}
        for name, value in settings.items():
            self._spark.conf.set(name, value)

    def columns(self, table: str) -> list[tuple[str, str, bool]]:
        """See ``Sql.columns``."""
        with self._errors():
            fields = self._spark.table(table).schema.fields
        return [(field.name, field.dataType.simpleString(), field.nullable) for field in fields]

    @contextmanager
    def view(
        self, name: str, read: Callable[[Task], Iterator[pa.RecordBatch]], tasks: Sequence[Task], layout: str
    ) -> Iterator[None]:
        """See ``Sql.view``."""
        with self._errors():
            numbers = self._spark.range(0, len(tasks), 1, max(1, len(tasks)))
            numbers.mapInArrow(
                sealed(self._spark, partial(_read_tasks, read, tuple(tasks))), layout
            ).createOrReplaceTempView(name)
        try:
            yield
        finally:
            self._spark.catalog.dropTempView(name)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except PySparkException as error:
            raise SqlError.of(condition_of(error), self._shown(error)) from error
        except Py4JError as error:
            raise SqlError.of("", self._shown(error)) from error

    def _shown(self, error: Exception) -> str:
        text = _without_stack(error)
        for value in sorted(filter(None, self._hidden), key=len, reverse=True):  # one may be a part of another
            text = text.replace(value, "***")
        return text[:_SHOWN]


def _read_tasks(
    read: Callable[[Task], Iterator[pa.RecordBatch]], tasks: Sequence[Task], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read(tasks[number])


def _without_stack(error: Exception) -> str:
    lines = (line for line in str(error).splitlines() if not line.lstrip().startswith(("at ", "... ")))
    return "\n".join(lines)
