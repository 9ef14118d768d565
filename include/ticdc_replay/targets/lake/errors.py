"""What an error of Spark SQL means for a load: a retry may mend it, or not."""

from collections.abc import Iterator
from contextlib import contextmanager

from ticdc_replay.domain.errors import (
    AuthenticationError,
    CommitStateUnknownError,
    PermanentError,
    TicdcReplayError,
    TransientError,
)
from ticdc_replay.targets.lake.table_format import TableFormat
from ticdc_replay.targets.sql import SqlError

NOT_FOUND = frozenset(
    {
        "PATH_NOT_FOUND",
        "TABLE_OR_VIEW_NOT_FOUND",
        "SCHEMA_NOT_FOUND",
        "DELTA_TABLE_NOT_FOUND",
        "DELTA_MISSING_DELTA_TABLE",
    }
)
"""Spark's names of errors about a table that does not exist."""

_REFUSED = ("NotAuthorizedException", "AccessDenied", "status code: 401", "Status Code: 403", "InvalidAccessKeyId")
_PERMANENT = (
    "AnalysisException",
    "ParseException",
    "ForbiddenException",
    "BadRequestException",
    "ClassNotFoundException",
    "NoSuchMethodError",
    "IllegalArgumentException",
    "UnsupportedOperationException",
)


@contextmanager
def translated(table_format: TableFormat, doing: str) -> Iterator[None]:
    """Turns SqlError into the other errors of the library; *doing* says what failed."""
    try:
        yield
    except SqlError as error:
        raise translate(error, table_format, doing) from error


def translate(error: SqlError, table_format: TableFormat, doing: str) -> TicdcReplayError:
    """The error of the library that says what *error* means."""
    text = " ".join(str(error).split())
    message = f"cannot {doing} ({table_format.config.description}): {text}"
    if table_format.is_unknown(text):
        return CommitStateUnknownError(f"{message}. Run the load again: it looks for the commit")
    if table_format.is_conflict(text):
        return TransientError(f"{message}. Another commit to the table came first; try again")
    if any(hint in text for hint in _REFUSED):
        return AuthenticationError(f"{message}; check the settings of the catalog and its connection")
    if (error.condition and not error.condition.startswith("_LEGACY")) or any(hint in text for hint in _PERMANENT):
        return PermanentError(message)
    return TransientError(message)
