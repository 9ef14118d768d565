"""How `make audit` judges what the advisory databases answer, or that they don't."""

import json
import runpy
from pathlib import Path

import pytest

AUDIT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "audit"), run_name="audit")
CLEAN = {"name": "lz4", "version": "4.4.5", "vulns": []}
HOLE = {"name": "jinja2", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1"]}]}
SKIPPED = {"name": "numpy", "skip_reason": "Dependency not found on PyPI and could not be audited: numpy (2.4)"}


def answer(*packages: dict[str, object]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def test_packages_without_advisories_are_clean():
    assert AUDIT["judge_packages"](answer(CLEAN), "No known vulnerabilities found") == ([], [])


def test_a_vulnerable_package_is_found_beside_others_that_could_not_be_asked():
    found, unasked = AUDIT["judge_packages"](answer(CLEAN, HOLE, SKIPPED), "")
    assert found == ["jinja2 2.0: PYSEC-1 (fixed in 3.1)"]
    assert unasked == ["vulnerabilities of 1 of 3 packages, which PyPI's JSON API does not show here: numpy"]


@pytest.mark.parametrize("output", ["", "{}", "Traceback"])
def test_without_an_answer_nothing_counts_as_clean(output):
    found, unasked = AUDIT["judge_packages"](output, "urllib3: x\nERROR: the index can't be reached\n")
    assert (found, unasked) == ([], ["vulnerabilities of packages: ERROR: the index can't be reached"])
    found, unasked = AUDIT["judge_crates"](
        output, "error: no such command: `audit`\n\nhelp: a command with a similar name"
    )
    assert found == []
    assert unasked == ["vulnerabilities of crates (cargo install cargo-audit): error: no such command: `audit`"]


def test_a_vulnerable_crate_is_found():
    listed = [{"package": {"name": "pyo3", "version": "0.1.0"}, "advisory": {"id": "RUSTSEC-2020-0074"}}]
    output = json.dumps({"vulnerabilities": {"found": True, "count": 1, "list": listed}})
    assert AUDIT["judge_crates"](output, "") == (["crate pyo3 0.1.0: RUSTSEC-2020-0074"], [])


@pytest.mark.parametrize(
    ("found", "unasked", "allow_unasked", "code"),
    [
        ([], [], False, 0),
        (["x"], [], False, 1),
        (["x"], ["y"], True, 1),
        ([], ["y"], False, 3),
        ([], ["y"], True, 0),
    ],
)
def test_the_exit_code_tells_what_was_found_from_what_could_not_be_asked(found, unasked, allow_unasked, code):
    assert AUDIT["verdict"](found, unasked, allow_unasked) == code
