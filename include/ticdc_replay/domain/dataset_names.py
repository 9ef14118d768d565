"""Names of datasets by OpenLineage's naming conventions, the same for every run, so that graphs of lineage join up.

``kafka://host:port`` + topic, ``s3://bucket`` + key, ``file`` + path, ``postgres://host:port`` + database.schema.table.
"""

import re
from urllib.parse import unquote, urlsplit

import msgspec

from ticdc_replay.domain.connections import Connection

_IDENTIFIER = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


class DatasetName(msgspec.Struct, frozen=True):
    """A dataset: its source, and its name there."""

    namespace: str
    name: str

    def below(self, *parts: str) -> "DatasetName":
        """The folder *parts* of a folder."""
        name = "/".join((self.name.rstrip("/"), *parts))
        return DatasetName(self.namespace, name if self.namespace == "file" else name.lstrip("/"))


def kafka_namespace(bootstrap_servers: str) -> str:
    """The namespace of the cluster: its first bootstrap server."""
    return f"kafka://{bootstrap_servers.split(',')[0].strip()}"


def of_uri(uri: str) -> DatasetName:
    """A folder or object in a store or on this machine. Spark's ``s3a`` and ``s3n`` are ``s3``."""
    parts = urlsplit(uri)
    if parts.scheme in ("file", ""):
        return DatasetName("file", unquote(parts.path).rstrip("/") or "/")
    scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
    return DatasetName(f"{scheme}://{parts.netloc}", parts.path.strip("/") or "/")


def of_table(connection: Connection, table: str) -> DatasetName:
    """*table* (``schema.table``, plain or quoted as in SQL) in the database of *connection*."""
    port = f":{connection.port}" if connection.port else ""
    namespace = f"{connection.conn_type}://{connection.host}{port}"
    return DatasetName(namespace, ".".join((connection.schema or "", *identifiers(table))))


def identifiers(table: str) -> list[str]:
    """The parts of *table* (``schema.table``, plain or quoted as in SQL)."""
    return [quoted.replace('""', '"') or plain for quoted, plain in _IDENTIFIER.findall(table)]
