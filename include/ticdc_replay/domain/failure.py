"""The boundary around what reads one message or one DDL: whose fault an exception is, and how it is reported.

A reader returns what it can't understand. If it raises, neither neighbours nor the job fail: the message is set aside,
or the table of the DDL is unknown from there on.
"""

import traceback

from ticdc_replay.domain.errors import TicdcReplayError

_CHARACTERS = 300


def failure(error: BaseException) -> str:
    """The exception, and the place in the code that raised it, as the reason of what could not be read.

    Raises *error* itself if the input is not to blame: an error of this library (a registry that is away), the end of
    the process, and a MemoryError. Sizes are checked against caps before, so the machine lacks memory; a retry
    elsewhere succeeds. A RecursionError (nesting), and a panic of a native extension, are the input's.
    """
    is_panic = type(error).__name__ == "PanicException"
    if isinstance(error, TicdcReplayError | MemoryError) or not (isinstance(error, Exception) or is_panic):
        raise error
    place = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):  # no line: the text is kept, and other versions repeat it
        place = f" in {frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"
    return f"{type(error).__name__}: {str(error)[:_CHARACTERS]}{place}: a defect of ticdc-replay, please report it"
