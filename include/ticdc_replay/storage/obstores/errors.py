"""What obstore's errors mean for a retry."""

import re

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from ticdc_replay.domain.errors import AuthenticationError, PermanentError, TicdcReplayError, TransientError

NOT_FOUND = (FileNotFoundError, NotFoundError)
"""obstore raises Python's own error."""
_QUERY = re.compile(r"(?<=[\w/])\?[^\s\"'<>)]+")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: ([45]\d\d)\b")
_REQUEST = re.compile(r"Error performing [A-Z]+ (\S+) in ")
_WORTH_A_RETRY = frozenset({408, 409, 425, 429})
_REFUSED = (
    *("AuthenticationFailed", "InvalidAuthenticationInfo", "AuthenticationRequired", "invalid_grant"),
    *("invalid_client", "unauthorized_client", "AADSTS"),
)
_NO_TOKEN = frozenset({400, 401, 403, 404})
_METADATA = ("http://169.254.169.254/", "http://metadata.google.internal/", "http://metadata/")
"""Servers that only machines of a cloud have."""
_CERTIFICATE = ("invalid peer certificate", "InvalidCertificate", "UnknownIssuer")
_LOST_CONDITION = frozenset({"BlobAlreadyExists", "ConditionNotMet"})


def without_query(error: BaseException) -> str:
    """The first line of *error* and the server's code, without the queries of URLs: that of Azure may hold a signature."""
    text = str(error)
    first, code = text.partition("\n")[0].partition(": <?xml")[0], _CODE.search(text)
    return _QUERY.sub("?…", f"{first} ({code[1]})" if code else first)


def translate(error: BaseException, what: str) -> TicdcReplayError:
    """*error*, which obstore raised, as one of the library's. *what* names the operation, the object and the connection."""
    text = without_query(error)
    # Names of objects are in the URL, and must not pass for what the server said.
    request = _REQUEST.search(text)
    said, url = (text[request.end() :], request[1]) if request else (text, "")
    message, status = f"{what}: {text}", _status(said)
    if isinstance(
        error, AlreadyExistsError
    ):  # obstore's text speaks of an object that exists, whatever the conflict is
        return PermanentError(f"{what}: {said}")
    if isinstance(error, GenericError) and (status in _WORTH_A_RETRY or (status >= 500 and status != 501)):
        return TransientError(message)
    if isinstance(error, UnauthenticatedError) or status == 401 or any(word in said for word in _REFUSED):
        return AuthenticationError(f"{message}; check the credentials of the connection")
    is_token = request is not None and "token request" in text[: request.start()]
    if isinstance(error, PermissionDeniedError) or (status == 403 and not is_token):
        return PermanentError(f"{message}; the credentials are good but lack the permission, or the secret is wrong")
    if not isinstance(error, GenericError):
        return PermanentError(message)
    if not status and any(word in _without_url(error) for word in _CERTIFICATE):
        return PermanentError(f"{message}; the server's certificate is not trusted")
    is_nobody = status in _NO_TOKEN or (not status and url.startswith(_METADATA))
    if (is_token and is_nobody) or (request is None and "credential" in said):
        return AuthenticationError(
            f"{message}; the connection has no credentials and the machine gave none: complete the connection, or give the "
            "machine an identity"
        )
    return PermanentError(message) if status else TransientError(message)


def is_lost_condition(error: BaseError) -> bool:
    """Whether *error* says that the condition of a put was not met. obstore says so of any conflict in Azure, such as a lease."""
    text = str(error)
    code = _CODE.search(text)
    return _status(text) != 409 or code is None or code[1] in _LOST_CONDITION


def is_missing(error: BaseException) -> bool:
    """Whether *error* says that something does not exist. Of a bucket that is listed, obstore has no error of its own."""
    return isinstance(error, NOT_FOUND) or (isinstance(error, GenericError) and _status(without_query(error)) == 404)


def _status(text: str) -> int:
    found = _STATUS.search(text)
    return int(found[1]) if found else 0


def _without_url(error: BaseException) -> str:
    """All of *error*, also what its sources say, without the URL that was asked."""
    text = str(error)
    request = _REQUEST.search(text)
    return text.replace(request[1], "") if request else text
