"""Names of claim-check objects. A location in a message is untrusted text."""

import re

_OBJECT_NAME = re.compile(r"[0-9a-f-]{36}\.json")
_OBJECT_NAMES = re.compile(rb"[0-9a-f-]{36}\.json")


def object_name(location: str) -> str:
    """The name of the object that *location* means, below the configured store; empty where it means none.

    No location of TiCDC has a query or a fragment, and one that has is not understood.
    Only the last part of the path counts, as for TiCDC's own consumers, and only if it looks like TiCDC's names. So a moved
    bucket, ``gcs`` for ``gs`` or the single slash of v7.4 (``s3:/bucket/…``) don't matter, and no message can make a reader
    open what is not in the store.
    """
    if "?" in location or "#" in location:
        return ""
    name = location.rpartition("/")[2]
    return name if _OBJECT_NAME.fullmatch(name) else ""


def object_names_in(text: bytes) -> list[str]:
    """The names of objects that stand in *text*, whatever else it is, in order; one that stands there twice comes twice."""
    return [name.decode() for name in _OBJECT_NAMES.findall(text)]
