"""TLS of a registry's HTTP connection, from the keys that Confluent's clients use."""

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ticdc_replay.domain.errors import ConfigError

OPTIONS = (
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
)
"""Certificates as PEM text, or by path, which then must exist on every machine that decodes."""


def tls_context(extra: Mapping[str, str], where: str) -> ssl.SSLContext:
    """A context that trusts the authority in *extra*, else the system's, and shows the certificate there, if there is one.

    Raises ConfigError, which names *where* and the field, for what can't be read or does not fit.
    """
    field = "ssl.ca"
    try:
        context = ssl.create_default_context(cafile=extra.get("ssl.ca.location"), cadata=extra.get("ssl.ca.pem"))
        field = "ssl.certificate and ssl.key"
        if any(name.startswith(("ssl.certificate", "ssl.key")) for name in extra):
            _show_certificate(context, extra)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: extra {field}: {error}") from None
    return context


def _show_certificate(context: ssl.SSLContext, extra: Mapping[str, str]) -> None:
    """OpenSSL takes a certificate from files only: PEM text is in a private folder for that moment."""
    with tempfile.TemporaryDirectory(prefix="ticdc-replay-tls-") as folder:
        certificate = _file(extra, "ssl.certificate", folder)
        if certificate is None:
            raise ValueError("a key without ssl.certificate.location or ssl.certificate.pem")
        # Without a password, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, _file(extra, "ssl.key", folder), extra.get("ssl.key.password", ""))


def _file(extra: Mapping[str, str], name: str, folder: str) -> str | None:
    pem = extra.get(f"{name}.pem")
    if pem is None:
        return extra.get(f"{name}.location")
    path = Path(folder, f"{name}.pem")
    path.touch(mode=0o600)
    path.write_text(pem, encoding="utf-8")
    return str(path)
