"""What ``make package`` puts into the archive for executors."""

import os
import re
import runpy
import tarfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(CHECKOUT / "scripts" / "package-executors"), run_name="package")


def locked(name: str) -> dict[str, str]:
    text = (CHECKOUT / "requirements" / name).read_text(encoding="utf-8")
    found = re.findall(r"^([\w.-]+)==(\S+)(?: ; python_full_version < '3\.12')? \\$", text, flags=re.MULTILINE)
    return dict(found)


def files(folder: Path, names: list[str], mtime: int) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(0o700 if name.endswith(".so") else 0o600)
        os.utime(path, (mtime, mtime))
    return folder


def test_equal_content_gives_an_equal_archive(tmp_path):
    names = ["a/__init__.py", "a/native.so", "b.py"]
    for number, order in enumerate((names, names[::-1])):
        SCRIPT["pack"](files(tmp_path / f"{number}", order, 1_000_000 * number), tmp_path / f"{number}.tar.gz")
    assert (tmp_path / "0.tar.gz").read_bytes() == (tmp_path / "1.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "0.tar.gz") as archive:
        assert [(entry.name, oct(entry.mode), entry.uname) for entry in archive] == [
            ("a/__init__.py", "0o644", ""),
            ("a/native.so", "0o755", ""),
            ("b.py", "0o644", ""),
        ]


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("ticdc_replay/decode/read/split.py", True),
        ("ticdc_replay/codecs/simple/simple.avsc", True),
        ("boto3-1.44.5.dist-info/METADATA", True),
        ("pyarrow/libarrow.so.2600", True),
        ("pyarrow/libarrow_flight.so.2600", False),
        ("pyarrow/include/arrow/api.h", False),
        ("numpy/lib/tests/test_io.py", False),
        ("botocore/data/s3/2006-03-01/service-2.json.gz", True),
        ("botocore/data/ec2/2016-11-15/service-2.json.gz", False),
        ("botocore/data/endpoints.json", True),
        ("ticdc_replay-0.1.0.dist-info/direct_url.json", False),
        ("bin/alembic", False),
    ],
)
def test_what_nothing_uses_at_run_time_is_left_out(name, used):
    assert SCRIPT["is_used"](name) == used


@pytest.mark.parametrize("name", ["executors.txt", "build.txt", "runtime.txt"])
def test_all_locks_agree(name):
    development = locked("dev.txt")
    found = locked(name)
    assert found
    assert {package: version for package, version in found.items() if development.get(package) != version} == {}


def test_the_constraints_pin_all_that_the_lock_does_and_name_no_address():
    text = (CHECKOUT / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    lines = SCRIPT["constraints_of"](text).splitlines()
    pinned = [Requirement(line) for line in lines]
    assert len(pinned) == len(re.findall(r"^[^ #\n].*==", text, flags=re.MULTILINE)) > 100
    assert [str(each) for each in pinned if each.extras or each.url or len(each.specifier) != 1] == []
    assert "numpy==2.4.6 ; python_full_version < '3.12'" in lines
    assert {"pyspark==4.1.3", "psycopg==3.3.9"} <= set(lines)


def test_executors_are_given_no_engine():
    assert not {"pyspark", "pyspark-client", "apache-airflow"} & set(locked("executors.txt"))
