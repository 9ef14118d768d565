"""Which names an object may have, and which URIs mean one folder."""

import os
import posixpath
from urllib.parse import unquote, urlsplit

from ticdc_replay.domain.errors import PermanentError


def check_name(name: str) -> str:
    """*name*, when it is a relative path without ``.``, ``..`` or empty parts.

    Raises PermanentError otherwise: a name that comes from a message must not reach outside the store.
    """
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise PermanentError(f"{name!r} is not a name of an object: relative, no empty part, no '.' or '..'")
    return name


_ALIASES = {"gcs": "gs", "azure": "az", "azblob": "az"}
"""Schemes as TiCDC takes them, too (TiDB, pkg/objstore/parse.go), and the one that is used here."""
_AZURE = frozenset({"az", "abfs", "abfss"})


def tidy_folder(uri: str) -> str:
    """*uri* (``s3://bucket/prefix``, ``file:///folder``, no query) without slashes that mean nothing: stores leave them out at
    both ends of a prefix, and files have no empty names. The scheme is the usual one of its store."""
    scheme, _, rest = uri.partition("://")
    scheme = _ALIASES.get(scheme, scheme)
    place, _, path = rest.partition("/")
    if scheme == "file":
        path = "/".join(part for part in path.split("/") if part not in ("", "."))
    return f"{scheme}://{place}/{path.strip('/')}".rstrip("/")


def may_be_same_folder(one: str, other: str) -> bool:
    """Whether two URIs may mean one folder, however they are spelled. Errs towards yes: a server may take more spellings for one
    than another does, and folders have links."""
    return _place(one) == _place(other)


def may_be_within(inner: str, outer: str) -> bool:
    """Whether the folder *inner* may be *outer* or lie in it, with what ``may_be_same_folder`` takes for the same."""
    *store, path = _place(outer)
    *inner_store, inner_path = _place(inner)
    return store == inner_store and f"{inner_path.rstrip('/')}/".startswith(f"{path.rstrip('/')}/")


def _place(uri: str) -> tuple[str, str, str]:
    parts = urlsplit(uri)
    path = posixpath.normpath(f"/{unquote(parts.path).strip('/')}")
    while "//" in path:
        path = path.replace("//", "/")
    if parts.scheme == "file":
        return "file", "", os.path.realpath(path)
    scheme = _ALIASES.get(parts.scheme, parts.scheme)
    if scheme in _AZURE:  # the account may stand in the URI or in the connection
        return "az", parts.netloc.partition("@")[0].lower(), path
    return scheme, parts.netloc.lower(), path
