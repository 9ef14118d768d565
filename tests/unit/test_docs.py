"""What the documents say about names is what the code has."""

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel

from demo.embedded_stack.jars import LAKE
from tests.support.spark_versions import LAKE_3_5, LAKE_4_0
from ticdc_replay.changelog.files.writer import CELL_MISMATCH, ROW_DAMAGED, ROW_UNLIKE
from ticdc_replay.cli.main import VERBS
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import load_store
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.config.target_kinds import kinds
from ticdc_replay.decode.read.placement import WRONG_TOPIC
from ticdc_replay.decode.read.quarantine_writer import DDL_UNREAD, SET_ASIDE
from ticdc_replay.domain import errors
from ticdc_replay.domain.limits import BAD_KEY, BAD_NAME, BAD_TYPE, NAME_TOO_LONG, TOO_MANY_COLUMNS
from ticdc_replay.reconcile.judge.rules import ObjectClass, ReferenceClass
from ticdc_replay.stages.trace.fates import FateName
from ticdc_replay.targets.lake.section import MaintenanceSection

CHECKOUT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])
USER_GUIDE = (CHECKOUT / "docs/user-guide.md").read_text(encoding="utf-8")
RECONCILIATION = (CHECKOUT / "docs/reconciliation.md").read_text(encoding="utf-8")
OPERATIONS = (CHECKOUT / "docs/operations.md").read_text(encoding="utf-8")
QUARANTINE = (CHECKOUT / "docs/quarantine.md").read_text(encoding="utf-8")
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")


LIBRARY = CHECKOUT / "include" / "ticdc_replay"
NOT_MODULES = {"airflow.plugins", "simple.avsc", "spark.conf", "spark.pyspark.python"}
"""Of other programs: entry points of Airflow, a file of TiCDC, settings of Spark."""


def yaml_blocks(text: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def complete_example() -> str:
    """The pipeline file of the user guide with every section: its longest."""
    return max(yaml_blocks(USER_GUIDE), key=len)


def sections_of(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The nested sections of a file, by key."""
    found = {}
    for name, field in model.model_fields.items():
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
        for kind in candidates:
            if inspect.isclass(kind) and issubclass(kind, BaseModel):
                found[name] = kind
    return found


PIPELINE = {
    "Top level": Pipeline,
    **sections_of(Pipeline),
    **{f"targets: {name}": kind for name, kind in kinds().items()},
    "targets: maintenance": MaintenanceSection,
}
STORE = {
    "Top level": Store,
    **{name: kind for name, kind in sections_of(Store).items() if kind not in PIPELINE.values()},
}
DOCUMENTED = [
    *[pytest.param(kind, USER_GUIDE, id=f"pipeline {name}") for name, kind in PIPELINE.items()],
    *[pytest.param(kind, RECONCILIATION, id=f"store {name}") for name, kind in STORE.items()],
]


def keys_of(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("text", [*yaml_blocks(USER_GUIDE), *yaml_blocks(README)])
def test_a_pipeline_in_the_documents_loads(text, tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_pipeline(file).warnings == ()


def test_the_complete_example_shows_every_section():
    assert set(yaml.safe_load(complete_example())) == keys_of(Pipeline)


def test_the_store_in_the_documents_loads_with_the_pipeline_in_the_documents(tmp_path):
    text = yaml_blocks(RECONCILIATION)[0]
    (tmp_path / "shop_claims.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "shop.yaml").write_text(complete_example(), encoding="utf-8")
    assert load_store(tmp_path / "shop_claims.yaml", tmp_path / "pipelines").owners_complete
    assert set(yaml.safe_load(text)) == keys_of(Store)


def test_the_store_in_the_documents_can_be_stopped_by_its_policy_alone(tmp_path):
    (text,) = yaml_blocks(RECONCILIATION)
    (tmp_path / "shop.yaml").write_text(complete_example())
    stopped = tmp_path / "claims.yml.txt"
    stopped.write_text(text.replace("policy: approval", "policy: never"))
    assert load_store(stopped, tmp_path).store.deletion.policy == "never"


def test_the_jars_of_lake_tables_in_the_documents_are_those_of_the_tests():
    section = OPERATIONS.partition("## Jars for lake tables")[2].partition("\n## ")[0]
    tested = {":".join(root) for jars in (LAKE, LAKE_3_5, LAKE_4_0) for root in jars.roots}
    named = set(re.findall(r"org\.apache\.iceberg:iceberg-spark-runtime[^`,\s]+|io\.delta:[^`,\s]+", section))
    assert {name for name in tested if not name.startswith("org.xerial:")} == named


@pytest.mark.parametrize(("model", "document"), DOCUMENTED)
def test_every_key_of_a_file_is_documented(model, document):
    assert {key for key in keys_of(model) if f"`{key}`" not in document} == set()


@pytest.mark.parametrize(("model", "document"), DOCUMENTED)
def test_documented_defaults_are_those_of_the_code(model, document):
    for name, field in model.model_fields.items():
        default = field.default
        if isinstance(default, bool):
            default = str(default).lower()
        if not isinstance(default, str | int) or default == "" or default in (128 * 2**20, 64 * 2**20, 256 * 2**20):
            continue
        rows = re.findall(rf"^\| `{field.alias or name}` \| `([^`]*)` \|", document, flags=re.MULTILINE)
        assert str(default) in rows, f"{name}: {default}, documented as {rows}"


@pytest.mark.parametrize("kind", [*ObjectClass, *ReferenceClass])
def test_every_class_of_a_reconciliation_is_explained(kind):
    assert f"\n| `{kind}` | " in RECONCILIATION


def test_every_error_is_explained():
    named = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.TicdcReplayError) and kind is not errors.TicdcReplayError
    }
    explained = set(re.findall(r"`(\w+Error)`", OPERATIONS))
    assert named == explained


def test_every_quarantine_reason_of_the_code_is_explained():
    code = "".join(
        path.read_text(encoding="utf-8")
        for room in ("codecs", "large_messages", "decode", "changelog", "domain")
        for path in (CHECKOUT / "include/ticdc_replay" / room).rglob("*.py")
    )
    made = r"(?:\w+Error|Undecodable|RowUnreadable|Fetched\.failed|about_row|_refused)"
    reasons = set(re.findall(made + r"\(\s*(?:\w+, )?\"([a-z_]+)\"", code))
    reasons |= set(re.findall(r"reason(?:, detail)? = \"([a-z_]+)\"", code))
    assert {"bad_cell", "source_refused", "schema_ambiguous"} <= reasons, "of protocols, of large messages"
    reasons |= {CELL_MISMATCH, ROW_DAMAGED, ROW_UNLIKE, WRONG_TOPIC, DDL_UNREAD, SET_ASIDE}
    reasons |= {BAD_KEY, BAD_NAME, BAD_TYPE, NAME_TOO_LONG, TOO_MANY_COLUMNS}
    assert {reason for reason in reasons if f"`{reason}`" not in QUARANTINE} == set()
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", QUARANTINE, flags=re.MULTILINE)
    explained = {reason for row in rows for reason in re.findall(r"\w+", row)}
    assert {reason for reason in explained if f'"{reason}"' not in code} == set()


@pytest.mark.parametrize("fate", get_args(FateName))
def test_every_fate_of_a_row_is_explained(fate: str) -> None:
    assert f"| `{fate}` |" in USER_GUIDE


def test_every_verb_of_the_command_is_in_the_user_guide():
    assert {verb for verb in VERBS if f"ticdc-replay {verb}" not in USER_GUIDE} == set()


def test_make_targets_that_documents_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(encoding="utf-8"), flags=re.MULTILINE))
        assert named <= targets, document.name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#\s]*(?:#[^)\s]*)?)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        there = document.parent / path if path else document
        assert there.exists(), f"{document.name} links to {link}"
        if anchor:
            assert anchor in anchors(there.read_text(encoding="utf-8")), f"{document.name} links to {link}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_contents_name_every_section(document):
    begin, *sections = re.split(r"^## (.+)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    contents = re.findall(r"^\* \[([^]]+)\]\(#", begin, flags=re.MULTILINE)
    assert contents in ([], sections[::2])


def test_the_readme_leads_to_what_is_there():
    assert "](docs/reconciliation.md)" in README
    assert "econciliation" not in README.partition("## What is not there yet")[2].partition("##")[0]


def test_each_guarantee_names_tests_that_exist():
    text = (CHECKOUT / "docs/guarantees.md").read_text(encoding="utf-8")
    rows = [
        line
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith(("| guarantee", "| premise"))
    ]
    named = [re.findall(r"`(tests/[^`:]+)::(test_\w+)`", row) for row in rows]
    assert rows
    assert [row for row, tests in zip(rows, named, strict=True) if not tests] == []
    missing = [
        f"{file}::{test}"
        for tests in named
        for file, test in tests
        if not re.search(rf"^def {test}\(", (CHECKOUT / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    ]
    assert missing == []


def test_files_that_documents_name_exist() -> None:
    held = {path.relative_to(CHECKOUT).as_posix() for path in CHECKOUT.glob("[a-z]*/**/*.py")}
    ends = {path[at + 1 :] for path in held for at in (-1, *(i for i, c in enumerate(path) if c == "/"))}
    named = [
        (document.name, path)
        for document in DOCUMENTS
        for path in re.findall(r"`([\w./-]+/[\w.-]+\.py)(?:::\w+)?`", document.read_text(encoding="utf-8"))
    ]
    assert len(named) > 100
    assert [(document, path) for document, path in named if path.removeprefix("./") not in ends] == []


def test_modules_that_the_architecture_names_exist() -> None:
    library = CHECKOUT / "include" / "ticdc_replay"
    named = re.findall(r"\(([a-z_]+(?:\.\w+)+)\)", (CHECKOUT / "docs/architecture.md").read_text(encoding="utf-8"))
    modules = [
        name for name in named if (library / name.partition(".")[0]).exists() or (library / f"{name}.py").exists()
    ]
    assert len(modules) > 10

    def is_there(name: str) -> bool:
        path = library / name.replace(".", "/")
        module, _, attribute = name.rpartition(".")
        holder = (library / module.replace(".", "/")).with_suffix(".py")
        return (
            path.is_dir()
            or path.with_suffix(".py").is_file()
            or (
                holder.is_file()
                and re.search(rf"^(class |def )?{attribute}\b", holder.read_text(), re.MULTILINE) is not None
            )
        )

    assert [name for name in modules if not is_there(name)] == []


def test_the_picture_of_the_rooms_shows_each() -> None:
    library = CHECKOUT / "include" / "ticdc_replay"
    rooms = {path.stem for path in library.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    picture = (CHECKOUT / "docs/images/rooms.svg").read_text(encoding="utf-8")
    shown = set(re.findall(r'class="name"[^>]*text-anchor="middle">(\w+)<', picture))
    assert shown == rooms - {"__init__"}


def test_modules_that_docstrings_name_exist() -> None:
    """A name may begin at any package: ``files.index`` and ``changelog.files.index`` are the same module."""
    files: dict[str, list[Path]] = {}
    for path in LIBRARY.rglob("*.py"):
        parts = path.relative_to(LIBRARY.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        for start in range(len(parts)):
            files.setdefault(".".join(parts[start:]), []).append(path)
    packages = {path.parent.name for path in LIBRARY.rglob("__init__.py")}
    keys = {f"{name}.{key}" for name, section in sections_of(Pipeline).items() for key in keys_of(section)}

    def means_a_module(name: str) -> bool:
        first, _, rest = name.partition(".")
        capital = re.search(r"\b[A-Z]", rest)  # a class or a constant: ``records.OBJECTS``
        return name not in NOT_MODULES | keys and (first in packages or (first in files and capital is not None))

    def leads_somewhere(name: str) -> bool:
        parts = name.split(".")
        return name in files or any(
            re.search(rf"^(?:class |def )?{parts[length]}\b", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
            for length in range(1, len(parts))
            for path in files.get(".".join(parts[:length]), ())
        )

    named = {
        (path.relative_to(CHECKOUT).as_posix(), name)
        for path in [*LIBRARY.rglob("*.py"), *(CHECKOUT / "tests").rglob("*.py")]
        for name in re.findall(r"``([a-z_]+(?:\.\w+)+)``", path.read_text(encoding="utf-8"))
        if means_a_module(name)
    }
    assert len(named) > 50
    assert sorted(one for one in named if not leads_somewhere(one[1])) == []
