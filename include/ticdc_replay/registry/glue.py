"""AWS Glue Schema Registry, through boto3."""

import re
from typing import TYPE_CHECKING

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ticdc_replay.aws.errors import UNREADABLE_FILES, error_code, translate
from ticdc_replay.aws.identity import AwsIdentity
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, TicdcReplayError
from ticdc_replay.registry.used import MAX_SCHEMA_BYTES
from ticdc_replay.schemas.lookup import UnusableAnswerError

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONFIG = Config(connect_timeout=10, read_timeout=30, retries={"mode": "adaptive", "total_max_attempts": 6})


class GlueRegistry:
    """The registries of one region. boto3 repeats what is worth repeating (adaptive mode) before an error shows.

    The connection is Airflow's of type ``aws``, as for an S3 store (``AwsIdentity.of``). Raises ConfigError.
    """

    def __init__(self, connection: Connection) -> None:
        self._where = f"AWS Glue schema registry (connection {connection.conn_id!r})"
        self._client: GlueClient = AwsIdentity.of(connection).client("glue", _CONFIG)

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
        except (BotoCoreError, *UNREADABLE_FILES) as error:
            raise self._translated(error, schema_id) from error

    def _translated(self, error: BotoCoreError | ClientError | OSError, schema_id: str) -> TicdcReplayError:
        what = f"{self._where}: schema version {schema_id}"
        if (
            isinstance(error, ClientError)
            and error_code(error) in ("AccessDeniedException", "AccessDenied")
            and error.operation_name == "GetSchemaVersion"  # to assume a role may be denied, too
        ):
            return AuthenticationError(f"{what}: {error}; the credentials lack the permission glue:GetSchemaVersion")
        return translate(error, what)
