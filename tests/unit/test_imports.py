"""Rooms of the library import inward only, and what must stay light stays light."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

CHECKOUT = Path(__file__).resolve().parents[2]
LIBRARY = CHECKOUT / "include" / "ticdc_replay"

# From the inside out: a room may import those before it. docs/architecture.md says what lives where.
ROOMS = [
    "domain",
    "aws",
    "mysql_protocol",
    "storage",
    "changefeed",
    "config",
    "captures",
    "extension",
    "schemas.ddl",
    "schemas",
    "registry",
    "large_messages",
    "codecs",
    "kafka",
    "state",
    "snapshot",
    "changelog.cells",
    "changelog.files",
    "changelog.copies",
    "dumps",
    "jobspec",
    "submit",
    "decode.plan",
    "decode.read",
    "decode.complete",
    "verify",
    "targets",
    "targets.mirror",
    "targets.history",
    "targets.postgres",
    "targets.mysql",
    "targets.lake",
    "targets.iceberg",
    "targets.delta",
    "targets.parquet",
    "reconcile.judge",
    "reconcile.look",
    "reconcile.delete",
    "drivers",
    "lineage",
    "stages",
    "stages.window",
    "stages.load",
    "stages.quarantine",
    "stages.upkeep",
    "stages.trace",
    "stages.seed",
    "store_stages",
    "spark",
    "airflow",
    "airflow.operators",
    "airflow.dags",
    "airflow.pages",
    "airflow.registration",
    "cli",
]
OUTER = {"spark", "airflow", "cli"}
ENGINES = {"pyspark": {"spark"}, "airflow": {"airflow"}}
"""Packages that only these rooms may import, even inside a function."""

RUN_BY_ALEMBIC = ".migrations"
"""Scripts that only run inside Alembic."""

MODULES = {
    ".".join(("ticdc_replay", *path.relative_to(LIBRARY).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(LIBRARY.rglob("*.py"))
}


def room_of(module: str) -> str | None:
    """The room of *module*; None for a package that only holds rooms, and that everybody may import."""
    parts = module.split(".")[1:]
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in ROOMS), None)


def side_of(module: str) -> str | None:
    """The outermost part of the room of *module*: ``airflow`` of ``airflow.pages``."""
    room = room_of(module)
    return room and room.partition(".")[0]


def imported_by(path: Path) -> Iterator[str]:
    """Full names of the modules that the file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else str(node.module)


@cache
def imports() -> list[tuple[str, str]]:
    """Each module with each name that it imports."""
    return [(module, name) for module, path in MODULES.items() for name in imported_by(path)]


def is_outward(module: str, name: str) -> bool:
    """Whether an import of *name* in *module* breaks the order of the rooms."""
    room, other = room_of(module), room_of(name)
    if not name.startswith("ticdc_replay.") or room is None or other in (None, room):
        return False
    sides = {side_of(name), side_of(module)}
    return ROOMS.index(other) > ROOMS.index(room) or (len(sides) > 1 and sides <= OUTER)


def python_prints(code: str, **environment: str) -> str:
    """What a new interpreter prints for *code*."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=CHECKOUT,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_of_the_library_is_in_a_known_room():
    homeless = {module for module in MODULES if room_of(module) is None}
    assert homeless == {"ticdc_replay", *(f"ticdc_replay.{name}" for name in ("changelog", "decode", "reconcile"))}


def test_the_architecture_document_lists_the_rooms_in_this_order():
    lines = (CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()
    table = [line.split("|")[1] for line in lines if line.startswith("| `")]
    documented = [
        name.strip(" `").removesuffix(".py")
        for cell in table
        for name in cell.split(",")
        if name.strip().startswith("`")
    ]
    assert [name for name in documented if name in ROOMS] == ROOMS


def test_a_module_imports_only_rooms_inside_its_own():
    assert [f"{module} imports {name}" for module, name in imports() if is_outward(module, name)] == []


def test_an_engine_is_imported_in_its_own_room_only():
    foreign = [
        f"{module} imports {name}"
        for module, name in imports()
        if side_of(module) not in ENGINES.get(name.split(".")[0], {side_of(module)})
    ]
    assert foreign == []


def test_python_reaches_executors_in_one_way_that_spark_connect_has():
    """One module runs tasks, one sends records from task to task, one makes views of what tasks read."""
    names = {"mapInArrow", "sparkContext", "rdd", "_jvm", "_sc", "parallelize", "persist", "cache"}
    uses = {
        (module.removeprefix("ticdc_replay.spark."), node.attr)
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in names and room_of(module) == "spark"
    }
    counts_tasks_of_a_classic_session = ("ended", "sparkContext")
    assert uses == {*((name, "mapInArrow") for name in ("tasks", "exchange", "sql")), counts_tasks_of_a_classic_session}


@pytest.mark.parametrize(
    ("module", "name", "outward"),
    [
        ("ticdc_replay.decode.read.split", "ticdc_replay.stages.window.pin", True),
        ("ticdc_replay.stages.window.pin", "ticdc_replay.decode.read.split", False),
        ("ticdc_replay.decode.read.split", "ticdc_replay.decode.plan.tasks", False),
        ("ticdc_replay.cli.replay", "ticdc_replay.spark.reconcile", True),
        ("ticdc_replay.cli.replay", "ticdc_replay.airflow.dags.pipeline", True),
        ("ticdc_replay.airflow.form", "ticdc_replay.airflow.dags.pipeline", True),
        ("ticdc_replay.airflow.dags.pipeline", "ticdc_replay.airflow.form", False),
        ("ticdc_replay.airflow.pages.site", "ticdc_replay.airflow.registration.plugin", True),
        ("ticdc_replay.config.load", "ticdc_replay.config.target_kinds", False),
        ("ticdc_replay.decode.read.split", "ticdc_replay", False),
        ("ticdc_replay.decode.read.split", "pyarrow.parquet", False),
    ],
)
def test_an_import_is_judged_by_its_rooms(module, name, outward):
    assert is_outward(module, name) is outward


def test_importing_all_of_the_core_and_the_command_loads_no_engine():
    modules = [name for name in MODULES if side_of(name) not in {"spark", "airflow"} and RUN_BY_ALEMBIC not in name]
    code = f"import sys, importlib\nfor name in {modules!r}: importlib.import_module(name)\n"
    loaded = python_prints(code + "print([engine for engine in ('pyspark', 'airflow') if engine in sys.modules])")
    assert loaded.strip() == "[]"


def test_the_command_starts_without_pandas():
    """PyArrow loads pandas, which takes a second, with the first array that a module makes and with its datasets."""
    code = "import sys\nfrom ticdc_replay.cli.main import VERBS, load\nprint([*map(load, VERBS)] == [], 'pandas' in sys.modules)"
    assert python_prints(code).strip() == "False False"


def test_the_list_of_verbs_needs_the_module_of_none():
    code = "import sys\nfrom typer.testing import CliRunner\nfrom ticdc_replay.cli.main import app\n"
    code += "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
    code += "print([name for name in sys.modules if name.startswith('ticdc_replay.stages')])"
    assert python_prints(code).strip() == "[]"


def test_what_is_known_of_protocols_is_known_without_their_codecs():
    """Each DAG file asks."""
    code = "import sys\nfrom ticdc_replay.changefeed.protocols import find_protocol, protocol_names\n"
    code += "found = [find_protocol(name).carries for name in protocol_names()]\n"
    code += "modules = [name for name, module in sys.modules.items() if not hasattr(module, '__path__')]\n"
    loaded = python_prints(
        code + "print(*(name for name in modules if name.startswith('ticdc_replay.codecs.')))"
    ).split()
    assert len(loaded) == 6
    assert [name for name in loaded if not name.endswith("traits")] == []


@pytest.mark.slow
def test_importing_all_that_a_dag_file_may_import_loads_no_pyspark(tmp_path):
    modules = [name for name in MODULES if side_of(name) == "airflow"]
    code = f"import sys, importlib\nfor name in {modules!r}: importlib.import_module(name)\n"
    loaded = python_prints(code + "print('pyspark loaded:', 'pyspark' in sys.modules)", AIRFLOW_HOME=str(tmp_path))
    assert loaded.splitlines()[-1] == "pyspark loaded: False"
