"""Google Cloud Storage: ``gs://bucket/prefix``."""

import json
import os
import re
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import GCSStore as Objects

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.storage.obstores.errors import without_query
from ticdc_replay.storage.obstores.options import client_options
from ticdc_replay.storage.obstores.store import RETRIES, ObstoreStore

EXTRA: Final = ("keyfile_dict", "key_path", "project", "endpoint_url")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_VARIABLES: Final = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY")
"""What obstore reads beside a key of the connection. It takes only one."""
_ENDPOINT: Final = "https://storage.googleapis.com"


class GcsStore(ObstoreStore):
    """The objects of ``gs://bucket/prefix``.

    The connection is Airflow's of type ``google_cloud_platform``; ``extra`` may hold ``keyfile_dict`` (the key of a service
    account, as an object or its text) or ``key_path`` (a file on every machine that runs tasks). With neither, and without
    connection, the machine's own identity counts: ``GOOGLE_APPLICATION_CREDENTIALS``, else the metadata server, as with
    Workload Identity. ``project`` is allowed and not needed; ``endpoint_url`` is another server.

    Raises ConfigError for a malformed *uri*, or a connection with other fields.
    """

    scheme: ClassVar[str] = "gs"

    def __init__(self, uri: str, connection: Connection | None) -> None:
        parts = urlsplit(uri)
        if not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment:
            raise ConfigError(f"{uri!r} must look like gs://bucket/prefix, without key, query or fragment")
        prefix = parts.path.strip("/")
        where = f"connection {connection.conn_id!r}" if connection else "no connection, default credentials"
        extra = connection.extra if connection else {}
        if connection is not None and connection.conn_type != "google_cloud_platform":
            raise ConfigError(
                f"{where} is of type {connection.conn_type!r}; {uri} needs one of type google_cloud_platform"
            )
        unknown = sorted(set(extra) - set(EXTRA))
        if unknown:
            raise ConfigError(f"{where}: extra {', '.join(unknown)} not supported; allowed: {', '.join(EXTRA)}")
        self._own_endpoint: str | None = extra.get("endpoint_url") or None
        self._access = _access(extra, where)
        super().__init__(f"gs://{parts.netloc}/{prefix}".rstrip("/"), parts.netloc, prefix, where)

    def _endpoint(self) -> str:
        return self._own_endpoint or _ENDPOINT

    def _connect(self) -> Objects:
        access = dict(self._access)
        if self._own_endpoint is not None:
            access["base_url"] = self._own_endpoint.rstrip("/")
        try:
            return Objects(
                self._bucket,
                client_options=client_options(self._own_endpoint),  # type: ignore[arg-type]
                retry_config={"max_retries": RETRIES},
                skip_signature=False,  # whatever GOOGLE_SKIP_SIGNATURE says
                **access,
            )
        except (BaseError, ValueError) as error:
            raise ConfigError(f"{self.root} ({self._where}): {without_query(error)}") from None


def _access(extra: dict[str, Any], where: str) -> dict[str, Any]:
    key, path = extra.get("keyfile_dict"), extra.get("key_path")
    stray = [name for name in _VARIABLES if os.environ.get(name)]
    if stray and (key or path):
        raise ConfigError(
            f"{where}: the environment has {', '.join(stray)}, another identity than the connection's; remove the variable, or "
            "keyfile_dict and key_path"
        )
    if key and path:
        raise ConfigError(f"{where}: extra keyfile_dict and key_path are two identities; remove one")
    if key:
        try:
            key = json.loads(key) if isinstance(key, str) else key
        except ValueError:
            key = None
        if not isinstance(key, dict) or "private_key" not in key:
            raise ConfigError(f"{where}: extra keyfile_dict is not the JSON key of a service account")
        return {"service_account_key": json.dumps(key)}
    return {"service_account": str(path)} if path else {}
