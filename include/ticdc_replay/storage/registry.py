"""Which implementation serves which URI scheme."""

from collections.abc import Callable
from urllib.parse import urlsplit

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.storage.base import ObjectStore


def open_store(uri: str, connection: Connection | None = None) -> ObjectStore:
    """The store below *uri*: ``file:///folder`` or ``s3://bucket/prefix``. Nothing is read or created by opening.

    *connection* is the Airflow connection of an S3 store; without one, boto3 finds credentials as it always does
    (environment, instance role). A folder of this machine takes none. Raises ConfigError for an unknown scheme or a malformed
    URI.
    """
    scheme = urlsplit(uri).scheme
    try:
        open_scheme = _SCHEMES[scheme]
    except KeyError:
        allowed = ", ".join(f"{known}://" for known in sorted(_SCHEMES))
        raise ConfigError(f"{uri!r}: no object store for the scheme {scheme!r}; allowed: {allowed}") from None
    return open_scheme(uri, connection)


# Each implementation is imported when it is used: boto3 alone takes a third of a second.
def _open_file(uri: str, connection: Connection | None) -> ObjectStore:
    from ticdc_replay.storage.file import FileStore

    return FileStore.open(uri, connection)


def _open_s3(uri: str, connection: Connection | None) -> ObjectStore:
    from ticdc_replay.storage.s3.store import S3Store

    return S3Store(uri, connection)


_SCHEMES: dict[str, Callable[[str, Connection | None], ObjectStore]] = {"file": _open_file, "s3": _open_s3}
