"""Spark SQL as targets use it: statements, and temporary views of what workers read. Works over Spark Connect, too."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from ticdc_replay.domain.errors import TicdcReplayError

Task = TypeVar("Task")


class SqlError(TicdcReplayError):
    """A statement failed. ``condition`` is Spark's name of the error, such as TABLE_OR_VIEW_NOT_FOUND, or empty."""

    condition: str = ""

    @classmethod
    def of(cls, condition: str, text: str) -> "SqlError":
        """The error with its *condition*."""
        error = cls(text)
        error.condition = condition
        return error


class Sql(Protocol):
    """The driver's session. Every method raises SqlError, or an error of the library that a worker raised."""

    def run(self, statement: str, settings: Mapping[str, str] = ...) -> list[dict[str, Any]]:
        """The rows of *statement*, by column, with *settings* of the session for as long as it runs."""

    def set(self, settings: Mapping[str, str], secret: Collection[str] = ()) -> None:
        """Set *settings* of the session, among them those with the names in *secret*. They are in no log, and no SqlError
        shows their values.

        Raises ConfigError where the session is at a Spark Connect server, and this lacks one that is secret: they are not
        sent.
        """

    def columns(self, table: str) -> list[tuple[str, str, bool]]:
        """Name, type and nullability of each column of *table*, an SQL name. The type is as in a CREATE TABLE."""

    def view(
        self, name: str, read: Callable[[Task], Iterator[pa.RecordBatch]], tasks: Sequence[Task], layout: str
    ) -> AbstractContextManager[None]:
        """Inside, the temporary view *name* has the rows that *read* gives of *tasks*, with the columns of *layout*, such
        as ``id bigint, v string``. *read* runs in workers, once or more for each task, and survives pickling."""
