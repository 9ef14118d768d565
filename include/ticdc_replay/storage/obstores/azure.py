"""Azure Blob Storage: ``az://container/prefix`` or ``abfss://container@account.dfs.core.windows.net/prefix``."""

import re
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore as Objects

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.storage.obstores.errors import without_query
from ticdc_replay.storage.obstores.options import client_options
from ticdc_replay.storage.obstores.store import RETRIES, ObstoreStore

EXTRA: Final = (
    *("sas_token", "shared_access_key", "tenant_id", "managed_identity_client_id", "workload_identity_tenant_id"),
    "authority_host",
)
_CONTAINER = re.compile(r"[a-z0-9$][a-z0-9-]{1,61}[a-z0-9]")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")


class AzureStore(ObstoreStore):
    """The objects of ``az://container/prefix`` or ``abfss://container@account.dfs.core.windows.net/prefix``.

    The connection is Airflow's of type ``wasb``. Host is the account's URL, such as ``https://account.blob.core.windows.net``, or
    its name. The identity is one of these: the account as login with its key as password (or ``shared_access_key`` in ``extra``);
    ``sas_token``; an application, with its client id as login, its secret as password, and ``tenant_id``;
    ``managed_identity_client_id``, alone or with ``workload_identity_tenant_id``. With none of them the machine's own identity
    counts: workload identity (``AZURE_FEDERATED_TOKEN_FILE``), else the managed identity.

    Raises ConfigError for a malformed *uri*, or a connection with other fields.
    """

    scheme: ClassVar[str] = "az"
    bucket_kind: ClassVar[str] = "container"

    def __init__(self, uri: str, connection: Connection | None) -> None:
        parts = urlsplit(uri)
        container, _, host = parts.netloc.partition("@")
        account = host.partition(".")[0]
        if not _CONTAINER.fullmatch(container) or parts.query or parts.fragment or bool(host) != (parts.scheme != "az"):
            raise ConfigError(
                f"{uri!r} must look like az://container/prefix or abfss://container@account.dfs.core.windows.net/prefix, without "
                "key, query or fragment"
            )
        prefix = parts.path.strip("/")
        where = f"connection {connection.conn_id!r}" if connection else "no connection, default credentials"
        if connection is not None and connection.conn_type != "wasb":
            raise ConfigError(f"{where} is of type {connection.conn_type!r}; {uri} needs one of type wasb")
        self._access, url = _access(connection, account, where)
        self._url = url or f"https://{self._access['account_name']}.blob.core.windows.net"
        self._own_url = url
        super().__init__(f"{parts.scheme}://{parts.netloc}/{prefix}".rstrip("/"), container, prefix, where)

    def _endpoint(self) -> str:
        return self._url

    def _connect(self) -> Objects:
        access = dict(self._access)
        if self._own_url is not None:
            access["endpoint"] = self._own_url
        try:
            return Objects(
                self._bucket,
                client_options=client_options(self._own_url),  # type: ignore[arg-type]
                retry_config={"max_retries": RETRIES},
                skip_signature=False,  # whatever AZURE_SKIP_SIGNATURE says
                **access,
            )
        except (BaseError, ValueError) as error:
            raise ConfigError(f"{self.root} ({self._where}): {without_query(error)}") from None


def _access(connection: Connection | None, account: str, where: str) -> tuple[dict[str, Any], str | None]:
    """What obstore is given, and the URL of the account if it is not the usual one."""
    if connection is None:
        if not account:
            raise ConfigError("az:// needs a connection of type wasb that names the account; abfss:// names it itself")
        return {"account_name": account}, None
    extra = connection.extra
    unknown = sorted(set(extra) - set(EXTRA))
    if unknown:
        raise ConfigError(f"{where}: extra {', '.join(unknown)} not supported; allowed: {', '.join(EXTRA)}")
    login, password = connection.login or None, connection.password or extra.get("shared_access_key") or None
    sas, tenant = extra.get("sas_token"), extra.get("tenant_id")
    managed, workload = extra.get("managed_identity_client_id"), extra.get("workload_identity_tenant_id")
    key_account = login if password and not tenant else None
    named, url = _place(connection.host, where)
    found = {name for name in (account, named, key_account) if name}
    if len(found) != 1 or not all(map(_ACCOUNT.fullmatch, found)):
        names = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"{where}: URI, host and login must name one storage account; found: {names}")
    access: dict[str, Any] = {"account_name": found.pop()}
    ways = {
        "access_key": password and not tenant,
        "sas_token": sas,
        "client_secret": tenant,
        "workload_identity": workload,
        "managed_identity": managed and not workload,
    }
    chosen = [way for way, given in ways.items() if given]
    if len(chosen) > 1:
        raise ConfigError(f"{where}: {' and '.join(chosen)} are several identities; leave one")
    if tenant and not (login and password):
        raise ConfigError(f"{where}: with extra tenant_id, login is the client id and password the client secret")
    if workload and not managed:
        raise ConfigError(f"{where}: extra workload_identity_tenant_id needs managed_identity_client_id")
    if login and not password and login != access["account_name"]:
        raise ConfigError(
            f"{where}: login {login!r} is not the account and nothing uses it: an application also needs password and extra "
            "tenant_id, a managed identity goes into extra managed_identity_client_id; else remove it"
        )
    if chosen:
        access["credential_type"] = chosen[0]
    options = {
        "account_key": password if chosen == ["access_key"] else None,
        "sas_key": sas,
        "client_id": login if tenant else managed,
        "client_secret": password if tenant else None,
        "tenant_id": tenant or workload,
        "authority_host": extra.get("authority_host"),
    }
    return access | {name: value for name, value in options.items() if value}, url


def _place(host: str | None, where: str) -> tuple[str | None, str | None]:
    """The account that *host* names, and its URL where that is another than usual: a private endpoint, or an emulator."""
    if not host:
        return None, None
    if "://" not in host:
        return host.partition(".")[0], f"https://{host}" if "." in host else None
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise ConfigError(f"{where}: host must look like https://account.blob.core.windows.net")
    path = parts.path.strip("/")
    return path or parts.hostname.partition(".")[0], host.rstrip("/")
