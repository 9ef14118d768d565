"""Which implementation serves which URI scheme."""

from pkgutil import resolve_name
from urllib.parse import urlsplit

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.storage.base import ObjectStore

SCHEMES = {
    "file": "ticdc_replay.storage.file:FileStore.open",
    "s3": "ticdc_replay.storage.s3.store:S3Store",
    "gs": "ticdc_replay.storage.obstores.gcs:GcsStore",
    **dict.fromkeys(("az", "abfs", "abfss"), "ticdc_replay.storage.obstores.azure:AzureStore"),
}
"""Each implementation is imported when it is used: boto3 alone takes a third of a second."""


def open_store(uri: str, connection: Connection | None = None) -> ObjectStore:
    """The store below *uri*: ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix`` or
    ``abfss://container@account.dfs.core.windows.net/prefix``. Nothing is read or created by opening.

    *connection* is the Airflow connection of an object store; without one, the machine's own identity counts, as each cloud's
    client finds it. A folder of this machine takes none. Raises ConfigError for an unknown scheme or a malformed
    URI.
    """
    scheme = urlsplit(uri).scheme
    if scheme not in SCHEMES:
        allowed = ", ".join(f"{known}://" for known in sorted(SCHEMES))
        raise ConfigError(f"{uri!r}: no object store for the scheme {scheme!r}; allowed: {allowed}")
    store: ObjectStore = resolve_name(SCHEMES[scheme])(uri, connection)
    return store
