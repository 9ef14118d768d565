"""Which registry a connection is for, by its type."""

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.schemas.lookup import FixedWriterSchemas, WriterSchemas


def open_registry(connection: Connection | None) -> WriterSchemas:
    """The registry that *connection* leads to: type ``http`` for Confluent's interface, ``aws`` for AWS Glue.

    Without connection, one that holds no schema: most protocols need none. Nothing is asked of a registry by
    opening. Raises ConfigError for another type, or fields that make no sense.
    """
    if connection is None:
        return FixedWriterSchemas()
    # Each registry is imported when it is used: boto3 alone takes a third of a second.
    if connection.conn_type == "http":
        from ticdc_replay.registry.confluent import ConfluentRegistry

        return ConfluentRegistry.from_connection(connection)
    if connection.conn_type == "aws":
        from ticdc_replay.registry.glue import GlueRegistry

        return GlueRegistry(connection)
    raise ConfigError(
        f"connection {connection.conn_id!r} of type {connection.conn_type!r} leads to no schema registry; "
        "allowed: http (Confluent's interface), aws (AWS Glue)"
    )
