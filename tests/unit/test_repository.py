"""What may not be in the repository, and how dependencies are pinned."""

import re
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
LARGEST_FILE_BYTES = 6 * 1024 * 1024

# Packages come from wherever the user's own clients are configured to look. Escaped, so that this file passes.
REGISTRIES = re.compile(
    r"pypi\.org|pythonhosted\.org|\bmaven\.(?:apache\.)?org|proxy\.golang\.org|(?:docker|quay|ghcr)\.io/|npmjs\.org"
)
# The one home folder that is part of an image and not of a person's machine is Airflow's.
MACHINE_PATHS = re.compile(r"(?<![\w.}*])/(?:work|root|Users|home(?!/airflow\b))/\w")
SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----\n[A-Za-z0-9+/]|\bAKIA(?![A-Z0-9]*EXAMPLE)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b"
)


def tracked_files() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = [CHECKOUT / name for name in listed.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked_files():
        content = path.read_bytes()
        if b"\0" in content[:8192]:
            continue
        text = content.decode(errors="replace")
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(CHECKOUT)}:{line}: {match.group()}")
    return found


def test_no_file_names_a_package_registry():
    assert lines_that_match(REGISTRIES) == []


def test_no_file_depends_on_a_place_of_one_machine():
    assert lines_that_match(MACHINE_PATHS) == []


def test_no_file_holds_a_private_key_or_token():
    assert lines_that_match(SECRETS) == []


def test_no_file_makes_clones_slow():
    large = {str(path.relative_to(CHECKOUT)): path.stat().st_size for path in tracked_files()}
    assert {name: size for name, size in large.items() if size > LARGEST_FILE_BYTES} == {}


@pytest.mark.parametrize("lock", ["bootstrap.txt", "dev.txt", "runtime.txt"])
def test_every_locked_package_has_one_version_and_a_hash(lock):
    text = (CHECKOUT / "requirements" / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    packages = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert packages
    assert [
        line[:60] for line in packages if not re.match(r"[\w.\[\],-]+==[^ ]+ .*--hash=sha256:[0-9a-f]{64}", line)
    ] == []


def test_runtime_and_development_locks_agree():
    def versions(lock):
        text = (CHECKOUT / "requirements" / lock).read_text(encoding="utf-8")
        return dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([^ ]+)", text, re.MULTILINE))

    development = versions("dev.txt")
    assert {
        name: version for name, version in versions("runtime.txt").items() if development.get(name) != version
    } == {}
