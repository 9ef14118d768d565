"""What is declared is what is imported: the library's metadata, and the packages for executors, against the imports."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.target_sections import SECTIONS
from ticdc_replay.changefeed.protocols import find_protocol, protocol_names
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.storage.registry import SCHEMES

CHECKOUT = Path(__file__).resolve().parents[2]
LIBRARY = CHECKOUT / "include" / "ticdc_replay"
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {
    ".".join(("ticdc_replay", *path.relative_to(LIBRARY).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(LIBRARY.rglob("*.py"))
}
EVERYTHING = [
    *PROJECT["dependencies"],
    *(line for lines in PROJECT["optional-dependencies"].values() for line in lines),
]

ROOMS = {"spark": "spark", "airflow": "airflow"}
"""Rooms whose packages an extra brings."""
DISTRIBUTIONS = {
    "airflow": "apache-airflow",
    "airflow.providers.apache.spark": "apache-airflow-providers-apache-spark",
    "airflow.providers.openlineage": "apache-airflow-providers-openlineage",
    "airflow.providers.standard": "apache-airflow-providers-standard",
    "attr": "attrs",
    "openlineage": "openlineage-python",
    "pydantic_core": "pydantic",
    "yaml": "pyyaml",
}
"""Distributions by import, the longest name first that fits; every other has the name of its import."""
NOT_IMPORTED = {
    "tzdata": "zoneinfo reads time zones from it where the machine has none",
    "pyspark-client": "pyspark without Java, for drivers whose tasks run at a Spark Connect server",
    "apache-airflow-providers-amazon": "connections of type aws and their form",
    "apache-airflow-providers-apache-kafka": "connections of type kafka and their form",
    "apache-airflow-providers-postgres": "connections of type postgres and their form",
}
"""Why a distribution is declared although nothing imports it."""
ONLY_FOR_TYPES = {"mypy-boto3-glue", "mypy-boto3-s3"}
BUILT_HERE = {"ticdc-replay", "ticdc-replay-native"}
"""The native decoder is optional: without it Python decodes all (ticdc_replay.extension)."""
EXECUTORS_BEGIN = (
    "ticdc_replay.decode.read.split",
    "ticdc_replay.decode.read.redrive",
    "ticdc_replay.decode.complete.deduplicate",
    "ticdc_replay.reconcile.look.scan",
    "ticdc_replay.spark.parquet_files",
    "ticdc_replay.spark.reconcile",
    *(traits.codec.partition(":")[0] for traits in map(find_protocol, protocol_names()) if traits is not None),
    *(read_section({"name": "target", **each}).loader.partition(":")[0] for each in SECTIONS),
    *(implementation.partition(":")[0] for implementation in SCHEMES.values()),
)
"""Modules that bring what tasks run; tests/spark/test_cluster.py runs them on executors without any other package."""


def imports(path: Path) -> set[str]:
    """Full names that the file imports, with each member of a ``from``; nothing that only type checkers see."""
    found = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))
    return found


def distribution(name: str) -> str:
    """The distribution that brings the module *name*, in lower case with dashes."""
    fitting = [prefix for prefix in DISTRIBUTIONS if f"{name}.".startswith(f"{prefix}.")]
    found = DISTRIBUTIONS[max(fitting, key=len)] if fitting else name.split(".")[0]
    return found.lower().replace("_", "-")


def distributions(modules: Iterable[str]) -> set[str]:
    """All distributions that *modules* import."""
    names = {name for module in modules for name in imports(MODULES[module])}
    return {distribution(name) for name in names if name.split(".")[0] not in sys.stdlib_module_names} - BUILT_HERE


def declared(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[\s\[<>=!~;]", line, maxsplit=1)[0].lower() for line in requirements}


def in_room(module: str, room: str) -> bool:
    return f"{module}.".startswith(f"ticdc_replay.{room}.")


CORE = [module for module in MODULES if not any(in_room(module, room) for room in ROOMS)]


def test_the_core_declares_what_it_imports():
    assert declared(PROJECT["dependencies"]) - set(NOT_IMPORTED) == distributions(CORE) - ONLY_FOR_TYPES


@pytest.mark.parametrize(("room", "extra"), ROOMS.items())
def test_an_extra_declares_what_its_room_imports_beside_the_core(room, extra):
    wanted = distributions(module for module in MODULES if in_room(module, room)) - declared(PROJECT["dependencies"])
    assert declared(PROJECT["optional-dependencies"][extra]) - set(NOT_IMPORTED) == wanted


def test_no_reason_outlives_its_distribution():
    assert set(NOT_IMPORTED) <= declared(EVERYTHING)
    assert set(NOT_IMPORTED) & distributions(MODULES) == set()


def test_the_library_asks_for_no_exact_version():
    assert [line for line in EVERYTHING if "==" in line] == []


def test_the_locked_versions_satisfy_what_is_declared():
    text = (CHECKOUT / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    locked = {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M)}
    for requirement in map(Requirement, EVERYTHING):
        assert locked[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_executors_get_what_their_tasks_import_and_no_more():
    reached: set[str] = set()
    waiting = list(EXECUTORS_BEGIN)
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        if not in_room(module, "state.migrations"):
            for name in imports(MODULES[module]):
                waiting += [each for each in (name, name.rpartition(".")[0]) if each in MODULES]
        waiting += [parent for parent in (module.rpartition(".")[0],) if parent in MODULES]
    lines = (CHECKOUT / "requirements" / "executors.in").read_text(encoding="utf-8").splitlines()
    listed = declared(line for line in lines if line and not line.startswith("#"))
    of_spark = {"pyspark", "py4j"}  # Spark ships them to its executors
    assert listed - set(NOT_IMPORTED) == distributions(reached) - of_spark - ONLY_FOR_TYPES


def test_the_native_decoder_imports_no_package():
    native = tomllib.loads((CHECKOUT / "native" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = "".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "native" / "src").rglob("*.rs"))
    imported = re.findall(r'(?:PyModule::import|\.import)(?:_bound)?\([^)"]*"([\w.]+)"', sources)
    assert {name.split(".")[0] for name in imported} - {"decimal", "datetime", "ticdc_replay"} == declared(
        native.get("dependencies", [])
    )
