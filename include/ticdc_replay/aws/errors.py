"""What boto3's errors mean for a retry."""

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
    TokenRetrievalError,
)

from ticdc_replay.domain.errors import AuthenticationError, PermanentError, TicdcReplayError, TransientError

NOT_FOUND = frozenset({"404", "NoSuchKey", "NotFound"})
PRECONDITION_FAILED = frozenset({"412", "PreconditionFailed"})
CHANGED_BY_OTHERS = PRECONDITION_FAILED | NOT_FOUND | {"ConditionalRequestConflict"}
"""Answers to a conditional put where another request came first, or runs at the same time (S3 API: 409)."""

_REFUSED_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidSecurity"}
    | {"InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired", "AuthFailure"}
    | {"AuthorizationHeaderMalformed", "UnrecognizedClientException", "XAdminUserNotFound"}
)
_WORTH_A_RETRY = frozenset(
    {"ConditionalRequestConflict", "InternalError", "OperationAborted", "RequestLimitExceeded", "RequestTimeout"}
    | {"ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"}
    | {"IDPCommunicationError"}
)
_ASSUMING = frozenset({"AssumeRole", "AssumeRoleWithWebIdentity"})
_WITHOUT_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, TokenRetrievalError)
BROKEN_TRANSFERS = (ReadTimeoutError, ResponseStreamingError, IncompleteReadError)
"""A body that broke off while it was read."""
UNREADABLE_FILES = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
"""What botocore lets through where a file that credentials come from, such as the token of a pod, can't be read."""
_BROKEN_CONNECTIONS = (ConnectionError, HTTPClientError, *BROKEN_TRANSFERS)


def error_code(error: ClientError) -> str:
    """S3's code of *error*; a HEAD has no body, so there it is the HTTP status."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    """The HTTP status of *error*; 0 where there is none."""
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def translate(error: BotoCoreError | ClientError | OSError, what: str) -> TicdcReplayError:
    """*error* as one of the library's. *what* names the operation, the object and the connection."""
    message = f"{what}: {error}"
    if isinstance(error, UNREADABLE_FILES):
        return AuthenticationError(f"{message}; credentials come from this file: it must be readable where tasks run")
    if isinstance(error, ClientError):
        code = error_code(error)
        status = status_of(error)
        if error.operation_name in _ASSUMING and 400 <= status < 500 and code not in _WORTH_A_RETRY:
            return AuthenticationError(
                f"{message}; the role can't be assumed: check role_arn, external_id and the role's trust policy"
            )
        if code in _REFUSED_CREDENTIALS or status == 401:
            return AuthenticationError(f"{message}; check key id, secret and session token")
        if code == "NoSuchBucket" or (code in NOT_FOUND and error.operation_name == "HeadBucket"):
            return PermanentError(f"{message}; the bucket does not exist")
        if status == 403:
            return PermanentError(
                f"{message}; the credentials are good but lack the permission, or the secret is wrong"
            )
        if code in _WORTH_A_RETRY or status == 429 or (status >= 500 and status != 501):  # 501: the server can't do it
            return TransientError(message)
        return PermanentError(message)
    if isinstance(error, _WITHOUT_CREDENTIALS):
        return AuthenticationError(f"{message}; set login and password of the connection")
    if isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return PermanentError(f"{message}; the server's certificate is not trusted")
    if isinstance(error, _BROKEN_CONNECTIONS):
        return TransientError(message)
    return PermanentError(message)
