"""Which names an object may have."""

from ticdc_replay.domain.errors import PermanentError


def check_name(name: str) -> str:
    """*name*, when it is a relative path without ``.``, ``..`` or empty parts.

    Raises PermanentError otherwise: a name that comes from a message must not reach outside the store.
    """
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise PermanentError(f"{name!r} is not a name of an object: relative, no empty part, no '.' or '..'")
    return name
