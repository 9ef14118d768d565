"""The session to the source is encrypted, and both sides are known, where the connection names certificates."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support import mariadb
from tests.support.schema_registry import Certificate, make_authority, make_certificate
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.large_messages import source_statements
from ticdc_replay.large_messages.source import RowRequest, SourceReader
from ticdc_replay.large_messages.source_images import SourceRow
from ticdc_replay.large_messages.source_statements import Statement

pytestmark = pytest.mark.integration

WITH_CERTIFICATE = "by_certificate"


def files(folder: Path, name: str, pair: Certificate) -> tuple[str, str]:
    """Where the certificate and key of *pair* are written."""
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    for path, text in zip(paths, pair, strict=True):
        path.write_text(text)
        path.chmod(0o600)
    return str(paths[0]), str(paths[1])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, mariadb_programs: mariadb.Programs) -> Iterator[Connection]:
    """A server that talks TLS alone, with a certificate of an authority that nobody else knows; the connection trusts it.

    The user ``by_certificate`` has to show a certificate of that authority too.
    """
    folder = tmp_path_factory.mktemp("mariadb")
    authority = make_authority()
    ca, _ = files(folder, "ca", authority)
    certificate, key = files(folder, "server", make_certificate("server", authority))
    files(folder, "client", make_certificate("replay", authority))
    options = {"ssl": "ON", "ssl-ca": ca, "ssl-cert": certificate, "ssl-key": key, "require-secure-transport": "ON"}
    with mariadb.running(folder, mariadb_programs, options) as connection:
        known = f"'{WITH_CERTIFICATE}'@'127.0.0.1'"
        mariadb.execute(
            connection,
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id int PRIMARY KEY)",
            "INSERT INTO d.t VALUES (7)",
            f"CREATE USER {known} IDENTIFIED BY 'secret' REQUIRE X509",
            f"GRANT SELECT ON *.* TO {known}",
        )
        yield connection


@pytest.fixture(autouse=True)
def snapshot_of_mariadb(monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB has no ``tidb_snapshot``: a user variable takes its place."""
    monkeypatch.setattr(source_statements, "at_snapshot", lambda tso: Statement("SET @tidb_snapshot = %s", (str(tso),)))


def read(connection: Connection) -> object:
    reader = SourceReader(connection, "UTC")
    try:
        (row,) = reader.rows([RowRequest(TableName("d", "t"), 1, ("id",), (7,))])
    finally:
        reader.close()
    return row


def test_a_server_of_the_named_authority_is_trusted(secured: Connection) -> None:
    row = read(secured)
    assert isinstance(row, SourceRow)
    assert row.values == (b"7",)


def test_a_server_of_another_authority_is_not_asked_again(secured: Connection, tmp_path: Path) -> None:
    ca, _ = files(tmp_path, "other", make_authority())
    with pytest.raises(PermanentError, match="ssl_ca"):
        read(msgspec.structs.replace(secured, extra={"ssl_ca": ca}))


def test_a_server_of_another_name_is_not_asked_again(secured: Connection) -> None:
    with pytest.raises(PermanentError, match="ssl_ca"):
        read(msgspec.structs.replace(secured, host="localhost"))


def test_the_certificate_of_the_connection_is_shown(secured: Connection) -> None:
    folder = Path(secured.extra["ssl_ca"]).parent
    known = msgspec.structs.replace(secured, login=WITH_CERTIFICATE, password="secret")
    with pytest.raises(AuthenticationError):
        read(known)
    shown = {"ssl_cert": str(folder / "client.pem"), "ssl_key": str(folder / "client.key")}
    assert isinstance(read(msgspec.structs.replace(known, extra=secured.extra | shown)), SourceRow)


def test_a_file_that_is_not_there_is_said(secured: Connection, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.pem"):
        read(msgspec.structs.replace(secured, extra={"ssl_ca": str(tmp_path / "absent.pem")}))
