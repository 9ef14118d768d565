"""Jars from Maven Central without Maven: Apache Ivy comes with pyspark."""

import hashlib
import importlib.util
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.utils import CryptographyDeprecationWarning

from demo.embedded_stack import cache, java
from demo.embedded_stack.errors import MissingToolError, StackError

FETCH_SECONDS = 900
_STORE_PASSWORD = "certificates"  # of a file without secrets; Java reads no store without one
UNKNOWN_CERTIFICATE = "PKIX path building failed"
CERTIFICATE_REMEDY = (
    "\nJava does not trust the certificate that it was shown. Behind a proxy with a certificate of its own, set "
    "SSL_CERT_FILE, as for pip and uv, to a file with the certificates to trust (PEM)"
)


class JarSet(NamedTuple):
    """Jars that belong together: (organisation, module, version) of each root, and what must come out, to the byte."""

    name: str
    roots: tuple[tuple[str, str, str], ...]
    checksums: Path
    """Lines of ``<sha256>  <file name>``, as sha256sum writes them."""
    transitive: bool = True
    """Whether what the roots depend on belongs to it, too."""


KAFKA_VERSION = "4.3.1"
KAFKA = JarSet(
    f"kafka-{KAFKA_VERSION}",
    (("org.apache.kafka", "kafka_2.13", KAFKA_VERSION), ("org.slf4j", "slf4j-simple", "1.7.36")),
    Path(__file__).with_name(f"kafka-{KAFKA_VERSION}.sha256"),
)
ICEBERG_VERSION, DELTA_VERSION = "1.12.0", "4.4.0"
_LAKE = f"lake-iceberg-{ICEBERG_VERSION}-delta-{DELTA_VERSION}"
LAKE = JarSet(
    _LAKE,
    (
        ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", ICEBERG_VERSION),
        ("io.delta", "delta-spark_4.1_2.13", DELTA_VERSION),
        ("io.delta", "delta-storage", DELTA_VERSION),
        ("org.xerial", "sqlite-jdbc", "3.53.4.0"),
    ),
    Path(__file__).with_name(f"{_LAKE}.sha256"),
    transitive=False,
)
"""What Spark 4.1 needs for lake tables. The last is the driver of the database that the demo and tests use as Iceberg catalog."""
OF_SETUP = (KAFKA, LAKE)
"""What ``make setup`` fetches. ``scripts/setup`` finds the names of these by their checksum files."""


def fetch(jars: JarSet, report: Callable[[str], None] = lambda _: None) -> Path:
    """The folder with exactly the files of *jars*, from the cache or fetched into it; *report* gets a line of progress.

    Every call checks every file against its checksum. Raises StackError when a download fails or gives other bytes.
    """
    folder = cache.folder("jars") / jars.name
    if folder.exists():
        _verify(folder, jars)
        return folder
    report(f"fetching the jars of {jars.name} into {folder} (once, about a minute)")
    with tempfile.TemporaryDirectory(dir=folder.parent) as workshop:
        fetched = Path(workshop) / "jars"
        for organisation, module, version in jars.roots:
            options = () if jars.transitive else ("-notransitive",)
            _resolve(organisation, module, version, fetched, Path(workshop), options)
        _verify(fetched, jars)
        cache.keep(fetched, folder)
    _verify(folder, jars)
    return folder


def _resolve(
    organisation: str, module: str, version: str, into: Path, workshop: Path, options: tuple[str, ...]
) -> None:
    ivy = _ivy()
    command = [
        *(str(java.find_home() / "bin" / "java"), *_trust(workshop)),
        *("-jar", str(ivy), "-warn", "-cache", str(workshop / "ivy")),
        *("-dependency", organisation, module, version, "-confs", "default", "-types", "jar", "bundle"),
        *options,
        *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        subprocess.run(
            command,
            check=True,
            timeout=FETCH_SECONDS,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HOME": str(workshop)},
        )
    except subprocess.CalledProcessError as error:
        tail = error.output.decode(errors="replace")[-3000:]
        remedy = CERTIFICATE_REMEDY if UNKNOWN_CERTIFICATE in tail else ""
        raise StackError(
            f"{organisation}:{module}:{version} can't be fetched from Maven Central:\n{tail.strip()}{remedy}"
        ) from None
    except subprocess.TimeoutExpired:
        raise StackError(
            f"{organisation}:{module}:{version}: no answer from Maven Central in {FETCH_SECONDS} s; try again"
        ) from None


def _trust(workshop: Path) -> tuple[str, ...]:
    """Options with which Java trusts the certificates of ``SSL_CERT_FILE``, as pip and uv do. It can't read PEM by itself."""
    file = os.environ.get("SSL_CERT_FILE")
    name = "-Djavax.net.ssl.trustStore"
    if not file or name in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        return ()
    store = workshop / "trusted.p12"
    if not store.exists():
        with warnings.catch_warnings(action="ignore", category=CryptographyDeprecationWarning):
            found = x509.load_pem_x509_certificates(Path(file).read_bytes())
        trusted = [PKCS12Certificate(each, None) for each in found]
        store.write_bytes(serialize_java_truststore(trusted, BestAvailableEncryption(_STORE_PASSWORD.encode())))
    return (f"{name}={store}", f"{name}Type=PKCS12", f"{name}Password={_STORE_PASSWORD}")


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")  # not imported: it is slow, and only its files are wanted
    if spec is None or spec.origin is None:
        raise MissingToolError("pyspark is not installed; run `make setup`")
    return next(Path(spec.origin).parent.glob("jars/ivy-*.jar"))


def _verify(folder: Path, jars: JarSet) -> None:
    wanted = {name: sha256 for sha256, name in (line.split() for line in jars.checksums.read_text().splitlines())}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.jar")}
    if found != wanted:
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise StackError(
            f"{folder}: not the files of {jars.checksums.name}: {', '.join(wrong)}. Delete {folder} and try again"
        )
