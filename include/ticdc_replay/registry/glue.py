"""AWS Glue Schema Registry, through boto3."""

import re
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, TicdcReplayError
from ticdc_replay.registry.used import MAX_SCHEMA_BYTES
from ticdc_replay.schemas.lookup import UnusableAnswerError
from ticdc_replay.storage.s3.errors import error_code, translate

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EXTRA = ("endpoint_url", "region_name", "aws_session_token")
_CONFIG = Config(connect_timeout=10, read_timeout=30, retries={"mode": "adaptive", "total_max_attempts": 6})


class GlueRegistry:
    """The registries of one region. boto3 repeats what is worth repeating (adaptive mode) before an error shows.

    The connection is Airflow's of type ``aws``, as for an S3 store: login and password are the key id and its secret; ``extra``
    may hold ``region_name``, ``endpoint_url`` and ``aws_session_token``. Raises ConfigError.
    """

    def __init__(self, connection: Connection) -> None:
        self._where = f"AWS Glue schema registry (connection {connection.conn_id!r})"
        unknown = sorted(set(connection.extra) - set(_EXTRA))
        if unknown:
            raise ConfigError(f"{self._where}: extra {', '.join(unknown)} not supported; allowed: {', '.join(_EXTRA)}")
        try:
            self._client: GlueClient = boto3.session.Session().client(
                "glue",
                endpoint_url=connection.extra.get("endpoint_url") or None,
                region_name=connection.extra.get("region_name") or None,
                aws_access_key_id=connection.login or None,
                aws_secret_access_key=connection.password or None,
                aws_session_token=connection.extra.get("aws_session_token") or None,
                config=_CONFIG,
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"{self._where}: {error}") from error

    def text(self, schema_id: str) -> str | None:
        """The schema of the version *schema_id*; None where Glue has none, or the id is no UUID.

        Raises TransientError while AWS is away, AuthenticationError where it refuses the credentials or their permissions;
        UnusableAnswerError for a schema of more than ``MAX_SCHEMA_BYTES`` characters.
        """
        if not _UUID.fullmatch(schema_id):
            return None
        try:
            text = self._client.get_schema_version(SchemaVersionId=schema_id)["SchemaDefinition"]
            if len(text) > MAX_SCHEMA_BYTES:
                raise UnusableAnswerError(
                    f"{self._where}: schema version {schema_id}: {len(text)} characters; {MAX_SCHEMA_BYTES} allowed"
                )
            return text
        except ClientError as error:
            if error_code(error) == "EntityNotFoundException":
                return None
            raise self._translated(error, schema_id) from error
        except BotoCoreError as error:
            raise self._translated(error, schema_id) from error

    def _translated(self, error: BotoCoreError | ClientError, schema_id: str) -> TicdcReplayError:
        what = f"{self._where}: schema version {schema_id}"
        if isinstance(error, ClientError) and error_code(error) in ("AccessDeniedException", "AccessDenied"):
            return AuthenticationError(f"{what}: {error}; the credentials lack the permission glue:GetSchemaVersion")
        return translate(error, what)
