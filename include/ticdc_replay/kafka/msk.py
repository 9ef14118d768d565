"""Tokens of AWS identities for Amazon MSK, which takes them by SASL OAUTHBEARER.

A token is a signed URL of ``kafka-cluster:Connect``, in base64. The format is that of AWS's own signers
(aws/aws-msk-iam-sasl-signer-python, MSKAuthTokenProvider.py).
"""

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ticdc_replay.aws.identity import EXTRA, AwsIdentity
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, TransientError

MECHANISM: Final = "AWS_MSK_IAM"
"""The value of ``sasl.mechanisms`` that selects it, by the name that Kafka's Java clients have for it."""
FIELDS: Final = frozenset(EXTRA) - {"endpoint_url"}
"""The fields of ``extra`` that describe the identity: those of a connection of type ``aws``."""
_LIFETIME_S: Final = 900
_SERVICE: Final = "kafka-cluster"
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?(?:,|$)")
_AGENT: Final = "ticdc-replay"


class MskTokens(msgspec.Struct, frozen=True):
    """Makes tokens for the cluster in *region*. Called by a client whenever it needs one, long before the last one expires."""

    identity: AwsIdentity
    region: str

    @classmethod
    def of(cls, connection: Connection, bootstrap_servers: str) -> "MskTokens":
        """For a Kafka connection with the mechanism ``AWS_MSK_IAM``. Raises ConfigError, also where no region is known."""
        where = f"connection {connection.conn_id!r}"
        fields = {name: value for name, value in connection.extra.items() if name in FIELDS}
        identity = AwsIdentity.from_fields(where, connection.login, connection.password, fields)
        found = _REGION.search(bootstrap_servers)
        region = identity.region or (found[1] if found else None)
        if region is None:
            raise ConfigError(
                f"{where}: no region for {MECHANISM}: set extra region_name, as {bootstrap_servers} names none"
            )
        return cls(identity, region)

    def __call__(self, config: str = "") -> tuple[str, float]:
        """A token, and when it expires (s since 1970): after 15 minutes, or with the credentials that signed it.

        *config* is librdkafka's ``sasl.oauthbearer.config``, which says nothing here. Raises AuthenticationError where there are
        no credentials or the role can't be assumed, TransientError while STS is away.
        """
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError, ClientError

        from ticdc_replay.aws.errors import UNREADABLE_FILES, translate

        what = f"a token for MSK ({self.identity.where})"
        try:
            credentials = self.identity.credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError, *UNREADABLE_FILES) as error:
            raise translate(error, what) from error
        if credentials is None or frozen is None:
            raise AuthenticationError(f"{what}: no credentials: set login and password, role_arn or profile_name")
        expires = datetime.now(UTC).timestamp() + _LIFETIME_S
        ends: datetime | None = getattr(credentials, "_expiry_time", None)
        if ends is not None:
            expires = min(expires, ends.timestamp())
        lifetime = int(expires - datetime.now(UTC).timestamp())
        if lifetime <= 0:
            raise TransientError(f"{what}: the credentials have expired and no new ones came")
        url = f"https://kafka.{self.region}.amazonaws.com/"
        request = AWSRequest("GET", url, params={"Action": f"{_SERVICE}:Connect"})
        SigV4QueryAuth(frozen, _SERVICE, self.region, expires=lifetime).add_auth(request)
        signed = f"{request.url}&User-Agent={_AGENT}"
        return base64.urlsafe_b64encode(signed.encode()).rstrip(b"=").decode(), expires

    def __repr__(self) -> str:
        return f"MskTokens({self.identity.where})"


def is_selected(options: Mapping[str, Any]) -> bool:
    """Whether *options* of a connection select tokens of an AWS identity."""
    return any(str(options.get(name, "")).upper() == MECHANISM for name in ("sasl.mechanisms", "sasl.mechanism"))
