"""AWS identity: one way from a connection to credentials, for S3, Glue and MSK.

What travels to executors is the connection, never credentials that were made from it. Each process assumes the role itself, and
botocore assumes it again before the credentials expire.
"""

import os
import threading
from collections.abc import Collection
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, ConfigError

if TYPE_CHECKING:  # boto3 takes a third of a second
    import boto3.session
    from botocore.config import Config

EXTRA: Final = (
    *("endpoint_url", "region_name", "aws_session_token", "profile_name", "role_arn", "external_id"),
    *("assume_role_method", "assume_role_kwargs", "assume_role_with_web_identity_token_file", "service_config"),
)
"""The fields of a connection's ``extra``, named as in Airflow's connection of type ``aws``."""
_ROLE: Final = "assume_role"
_WEB_IDENTITY: Final = "assume_role_with_web_identity"
_ROLE_EXTRA: Final = (
    *("external_id", "assume_role_method", "assume_role_kwargs", "assume_role_with_web_identity_token_file"),
)
_ROLE_ARGUMENTS: Final[dict[str, type]] = {"ExternalId": str, "RoleSessionName": str, "DurationSeconds": int}
_SHORTEST_SESSION_S: Final = 1_800
"""Credentials are renewed from fifteen minutes before their end on: in a shorter session each request would ask STS."""
_LONGEST_SESSION_S: Final = 43_200
_SERVICES: Final = ("s3", "sts", "glue")
_TOKEN_FILE: Final = "AWS_WEB_IDENTITY_TOKEN_FILE"
_DEFAULT_REGION: Final = "us-east-1"
_KEY_ARGUMENTS: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")

_one_at_a_time = threading.Lock()


class AwsIdentity(msgspec.Struct, frozen=True):
    """Who asks AWS, and where: what a connection says, without anything that expires. Its repr hides what is secret."""

    where: str
    """The connection, for messages to people."""
    key_id: str | None = None
    secret: str | None = None
    session_token: str | None = None
    profile: str | None = None
    region: str | None = None
    role_arn: str | None = None
    role_arguments: tuple[tuple[str, str | int], ...] = ()
    """What is asked of STS beside the role, in its own names."""
    web_identity: bool = False
    """The role is assumed by the token in a file, which is a pod's service account, and not by other credentials."""
    token_file: str | None = None
    """None: the file that the environment names (``AWS_WEB_IDENTITY_TOKEN_FILE``)."""
    endpoint_url: str | None = None
    """Of every service but STS."""
    endpoints: tuple[tuple[str, str], ...] = ()
    """Of single services, by name."""

    @classmethod
    def of(cls, connection: Connection | None) -> "AwsIdentity":
        """The identity that *connection* describes: login and password are a key id and its secret, ``extra`` may hold ``EXTRA``.

        Without connection, or without key, role and profile, botocore searches as always: environment, web identity, profile,
        container, instance role. Raises ConfigError for another field, a value of another type, or fields that contradict each
        other.
        """
        if connection is None:
            return cls("no connection, default credentials")
        where = f"connection {connection.conn_id!r}"
        return cls.from_fields(where, connection.login, connection.password, connection.extra)

    @classmethod
    def from_fields(cls, where: str, login: str | None, password: str | None, extra: dict[str, Any]) -> "AwsIdentity":
        """``of`` for fields that stand in a connection of another type; *where* names it."""
        unknown = sorted(set(extra) - set(EXTRA))
        if unknown:
            raise ConfigError(f"{where}: extra {', '.join(unknown)} not supported; allowed: {', '.join(EXTRA)}")
        nested = ("assume_role_kwargs", "service_config")
        texts = {name: _text(where, name, value) for name, value in extra.items() if name not in nested}
        method = texts.get("assume_role_method") or _ROLE
        if method not in (_ROLE, _WEB_IDENTITY):
            raise ConfigError(
                f"{where}: extra assume_role_method {method!r} not supported; allowed: {_ROLE}, {_WEB_IDENTITY}"
            )
        role = texts.get("role_arn")
        stray = sorted(name for name in _ROLE_EXTRA if extra.get(name))
        if stray and not role:
            raise ConfigError(f"{where}: extra {', '.join(stray)} needs role_arn; add the role, or remove it")
        if bool(login) != bool(password):
            raise ConfigError(f"{where}: login and password are the key id and its secret: set both or neither")
        if texts.get("aws_session_token") and not login:
            raise ConfigError(
                f"{where}: extra aws_session_token belongs to a key: set login and password, or remove it"
            )
        if login and texts.get("profile_name"):
            raise ConfigError(f"{where}: extra profile_name and a login are two identities; remove one")
        if method == _WEB_IDENTITY and (login or texts.get("profile_name") or texts.get("external_id")):
            raise ConfigError(
                f"{where}: with assume_role_method {_WEB_IDENTITY} the token is the identity; remove login, profile_name and "
                "external_id"
            )
        return cls(
            where=where,
            key_id=login or None,
            secret=password or None,
            session_token=texts.get("aws_session_token"),
            profile=texts.get("profile_name"),
            region=texts.get("region_name"),
            role_arn=role,
            role_arguments=_role_arguments(where, extra.get("assume_role_kwargs") or {}, texts.get("external_id")),
            web_identity=method == _WEB_IDENTITY,
            token_file=texts.get("assume_role_with_web_identity_token_file"),
            endpoint_url=texts.get("endpoint_url"),
            endpoints=_endpoints(where, extra.get("service_config") or {}),
        )

    @property
    def static_key(self) -> tuple[str, str, str | None] | None:
        """Key id, secret and session token, if these are all that a request needs."""
        if self.key_id is None or self.secret is None or self.role_arn is not None:
            return None
        return self.key_id, self.secret, self.session_token

    def endpoint(self, service: str) -> str | None:
        """The URL of *service*; None for AWS's own. As in Airflow, ``endpoint_url`` is not that of STS."""
        return dict(self.endpoints).get(service) or (self.endpoint_url if service != "sts" else None)

    def session(self) -> "boto3.session.Session":
        """A session whose credentials refresh. Of a role it is this process's only one; else it looks for credentials again.

        Asks nobody before the first request. Raises ConfigError where the profile or the token file does not exist.
        """
        if self.static_key:
            return _plain_session(_aws_environment())
        if self.role_arn is not None:
            return _role_session(self, _aws_environment())
        return self._base_session()

    def credentials(self) -> Any:
        """botocore's credentials, which refresh themselves where they expire; None where there are none."""
        return self._base_session().get_credentials() if self.static_key else self.session().get_credentials()

    def client(self, service: str, config: "Config") -> Any:
        """A boto3 client of *service*. Raises ConfigError for what boto3 refuses, such as no region."""
        from botocore.exceptions import BotoCoreError

        endpoint = self.endpoint(service)
        keys = dict(zip(_KEY_ARGUMENTS, self.static_key, strict=True)) if self.static_key else {}
        try:
            session = self.session()
            with _one_at_a_time:  # a session makes clients in one thread at a time
                return session.client(
                    service,  # type: ignore[call-overload]
                    endpoint_url=endpoint,
                    region_name=self.region or (_DEFAULT_REGION if endpoint and service == "s3" else None),
                    config=config,
                    **keys,
                )
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"{service} ({self.where}): {error}") from error

    def _base_session(self) -> "boto3.session.Session":
        import boto3.session
        from botocore.exceptions import ProfileNotFound

        try:
            return boto3.session.Session(
                self.key_id, self.secret, self.session_token, region_name=self.region, profile_name=self.profile
            )
        except ProfileNotFound as error:
            raise ConfigError(
                f"{self.where}: {error}; every machine that runs tasks needs the profile in its AWS configuration"
            ) from error

    def __repr__(self) -> str:
        return f"AwsIdentity({self.where})"


def _aws_environment() -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))


@lru_cache(maxsize=1)
def _plain_session(environment: tuple[tuple[str, str], ...]) -> "boto3.session.Session":
    """A session that needs no credentials, while *environment* is as it is: another takes 0.06 s to read what S3 is."""
    import boto3.session

    return boto3.session.Session()


@lru_cache(maxsize=16)
def _role_session(identity: AwsIdentity, environment: tuple[tuple[str, str], ...]) -> "boto3.session.Session":
    """One for all stores and clients of this process while *environment* is as it is, so that they assume the role once."""
    import boto3.session
    import botocore.session
    from botocore import credentials
    from botocore.utils import FileWebIdentityTokenLoader

    base = identity._base_session()
    region = identity.region or base.region_name
    file = identity.token_file or os.environ.get(_TOKEN_FILE) or ""
    if identity.web_identity and not file:
        raise ConfigError(
            f"{identity.where}: no token for assume_role_method {_WEB_IDENTITY}: set {_TOKEN_FILE} on every machine that runs "
            "tasks, or extra assume_role_with_web_identity_token_file"
        )

    def token() -> str:
        try:
            return str(FileWebIdentityTokenLoader(file)())
        except (OSError, ValueError) as error:
            raise AuthenticationError(
                f"{identity.where}: cannot read the token of the web identity: {error}"
            ) from error

    def assume() -> dict[str, Any]:
        # The credentials of a machine may have been replaced since: another session looks for them again.
        source = base if identity.key_id or identity.web_identity else identity._base_session()
        sts = partial(source.client, region_name=region or _DEFAULT_REGION, endpoint_url=identity.endpoint("sts"))
        role, arguments = str(identity.role_arn), dict(identity.role_arguments)
        fetcher: credentials.CachedCredentialFetcher
        if identity.web_identity:
            fetcher = credentials.AssumeRoleWithWebIdentityCredentialFetcher(sts, token, role, arguments)
        else:
            found = source.get_credentials()
            if found is None:
                raise AuthenticationError(
                    f"{identity.where}: no credentials to assume {role} with: set login and password of the connection, a "
                    "profile_name, or give the machine a role"
                )
            fetcher = credentials.AssumeRoleCredentialFetcher(sts, found, role, arguments)
        return fetcher.fetch_credentials()

    refreshing = credentials.DeferredRefreshableCredentials(assume, "assume-role")
    made = botocore.session.get_session()
    resolver = credentials.CredentialResolver([_Given(refreshing)])  # type: ignore[list-item]
    made.register_component("credential_provider", resolver)
    return boto3.session.Session(botocore_session=made, region_name=region)


class _Given:
    """The one provider of a session whose credentials are there already (``botocore.credentials.CredentialProvider``)."""

    METHOD = CANONICAL_NAME = "ticdc-replay"

    def __init__(self, found: Any) -> None:
        self._found = found

    def load(self) -> Any:
        """The credentials."""
        return self._found


def _text(where: str, name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{where}: extra {name} must be a text")
    return value or None


def _role_arguments(where: str, given: object, external_id: str | None) -> tuple[tuple[str, str | int], ...]:
    found = _mapping(where, "assume_role_kwargs", given, _ROLE_ARGUMENTS)
    for name, value in found.items():
        if type(value) is not _ROLE_ARGUMENTS[name]:
            raise ConfigError(
                f"{where}: extra assume_role_kwargs.{name} must be of type {_ROLE_ARGUMENTS[name].__name__}"
            )
    if not _SHORTEST_SESSION_S <= found.get("DurationSeconds", _SHORTEST_SESSION_S) <= _LONGEST_SESSION_S:
        raise ConfigError(
            f"{where}: extra assume_role_kwargs.DurationSeconds must be {_SHORTEST_SESSION_S} to {_LONGEST_SESSION_S}: in a "
            "shorter session each request would ask STS first"
        )
    if external_id is not None and found.setdefault("ExternalId", external_id) != external_id:
        raise ConfigError(f"{where}: extra external_id and assume_role_kwargs.ExternalId differ; remove one")
    return tuple(sorted(found.items()))


def _endpoints(where: str, given: object) -> tuple[tuple[str, str], ...]:
    found = {}
    for service, settings in _mapping(where, "service_config", given, _SERVICES).items():
        place = f"service_config.{service}"
        url = _mapping(where, place, settings, ("endpoint_url",)).get("endpoint_url")
        if text := _text(where, f"{place}.endpoint_url", url):
            found[service] = text
    return tuple(sorted(found.items()))


def _mapping(where: str, name: str, given: object, allowed: Collection[str]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError(f"{where}: extra {name} must be a JSON object")
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise ConfigError(f"{where}: extra {name}: {', '.join(unknown)} not supported; allowed: {', '.join(allowed)}")
    return dict(given)
