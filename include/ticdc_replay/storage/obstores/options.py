"""Options of obstore's HTTP client."""

import os
import ssl
from pathlib import Path
from typing import Any

from ticdc_replay.domain.errors import ConfigError

_TIMEOUTS = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "1h"}
_CA_VARIABLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Where boto3 and Python look for trusted certificates."""


def client_options(endpoint: str | None) -> dict[str, Any]:
    """For a server at *endpoint*; None for that of the cloud. Raises ConfigError where certificates to trust can't be read."""
    options: dict[str, Any] = {**_TIMEOUTS, "allow_http": endpoint is not None and endpoint.startswith("http:")}
    authorities = _authorities()
    return options if authorities is None else options | {"root_certificate": authorities}


def tls_context() -> ssl.SSLContext:
    """Trusts the same certificates, for Python's own client. Raises ConfigError as ``client_options`` does."""
    context = ssl.create_default_context()
    if authorities := _authorities():
        context.load_verify_locations(cadata=authorities)
    return context


def _authorities() -> str | None:
    variable = next((name for name in _CA_VARIABLES if os.environ.get(name)), None)
    if variable is None:
        return None
    try:
        return Path(os.environ[variable]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{variable}: cannot read the file of certificates: {error}") from error
