"""Licences of what is locked, and notices and SBOMs of what is redistributed."""

import json
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.support.waiting import PATIENCE_S

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = CHECKOUT / "scripts" / "third-party"
FUNCTIONS = runpy.run_path(str(SCRIPT), run_name="third_party")
RULES = tomllib.loads((CHECKOUT / "requirements" / "licences.toml").read_text(encoding="utf-8"))
CARGO = pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo lists the crates of the native decoder")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *arguments]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with two packages, one of which needs the other where an extra is asked for."""
    for name, version, more in (
        ("Left_Pad", "1.0", "License-Expression: MIT\nRequires-Dist: right.pad[wide]>=2\n"),
        (
            "right-pad",
            "2.1",
            "Classifier: License :: OSI Approved :: BSD License\nRequires-Dist: wide-pad; extra == 'wide'\n",
        ),
        ("wide-pad", "3", "License: whatever you like\n"),
        ("alone", "4", ""),
    ):
        info = tmp_path / "packages" / f"{name.replace('-', '_')}-{version}.dist-info"
        (info / "licenses").mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{more}")
        (info / "licenses" / "LICENSE").write_text(f"Copyright the authors of {name}")
    return tmp_path / "packages"


@pytest.mark.slow
@CARGO
def test_every_locked_package_and_crate_has_a_licence_that_is_allowed():
    done = run("licences")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "licence", "allowed"),
    [
        ("some", "MIT", True),
        ("some", "MIT License", True),
        ("some", "(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("some", "GPL-3.0-only OR MIT", True),
        ("some", "GPL-3.0-only AND MIT", False),
        ("some", "Apache-2.0 WITH LLVM-exception", True),
        ("some", "MIT License / BSD License", True),
        ("some", "MIT License / GNU General Public License (GPL)", False),
        ("some", "SSPL-1.0", False),
        ("some", "whatever you like", False),
        ("some", "", False),
        ("psycopg", "LGPL-3.0-only", True),
        ("psycopg", "AGPL-3.0-only", False),
    ],
)
def test_a_licence_is_held_against_the_rules(name, licence, allowed):
    component = FUNCTIONS["Component"](name, "1", f"pkg:pypi/{name}@1", licence)
    assert FUNCTIONS["is_allowed"](component, RULES) is allowed


def test_notices_hold_the_licence_text_of_every_package(installed, tmp_path):
    done = run("notices", installed, "--out", tmp_path / "NOTICES")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "NOTICES").read_text()
    for name in ("Left_Pad", "right-pad", "wide-pad", "alone"):
        assert f"Copyright the authors of {name}" in text


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--name", "archive"), ["alone", "left-pad", "right-pad", "wide-pad"]),
        (("--of", "left.pad"), ["left-pad", "right-pad", "wide-pad"]),
        (("--of", "right-pad"), ["right-pad"]),
    ],
)
def test_an_sbom_is_valid_and_lists_each_component(options, names, installed, tmp_path):
    outs = [tmp_path / "1.json", tmp_path / "2.json"]
    for out in outs:
        done = run("sbom", installed, *options, "--out", out)
        assert done.returncode == 0, done.stderr
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(outs[0].read_text()) is None
    components = json.loads(outs[0].read_text())["components"]
    assert [each["name"] for each in components] == names
    assert {each["purl"] for each in components} <= {
        "pkg:pypi/alone@4",
        "pkg:pypi/left-pad@1.0",
        "pkg:pypi/right-pad@2.1",
        "pkg:pypi/wide-pad@3",
    }
    licences = {each["name"]: each.get("licenses") for each in components}
    assert licences["right-pad"] == [{"expression": "BSD-3-Clause"}]
    assert licences.get("wide-pad") in (None, [{"license": {"name": "whatever you like"}}])


@CARGO
def test_the_sbom_of_this_environment_is_valid_and_lists_the_crates_of_the_native_decoder(tmp_path):
    pytest.importorskip("ticdc_replay_native")
    out = tmp_path / "all.json"
    folder = Path(pytest.__file__).parents[1]
    done = run("sbom", folder, "--name", "environment", "--out", out)
    assert done.returncode == 0, done.stderr
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(out.read_text()) is None
    purls = {each["purl"].partition("@")[0] for each in json.loads(out.read_text())["components"]}
    assert {"pkg:pypi/pyarrow", "pkg:cargo/pyo3", "pkg:cargo/simdutf8"} <= purls
