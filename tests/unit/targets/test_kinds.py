"""Kinds of target: which there are, and that the rest of the library knows none by name."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml

from tests.support.packages import declare
from tests.support.target_sections import SECTIONS
from ticdc_replay.config.json_schema import json_schema
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.target_kinds import GROUP, kinds, read_section
from ticdc_replay.domain.ddl_kinds import ChangeKind
from ticdc_replay.domain.errors import ConfigError

LIBRARY = Path(__file__).resolve().parents[3] / "include" / "ticdc_replay"

NO_TARGET = {
    ("decode/read/source_record.py", "parquet"): "the format of a file of the decode",
    ("dumps/names.py", "parquet"): "the format of a file of a dump",
    ("dumps/survey.py", "parquet"): "the format of a file of a dump",
    ("dumps/table_rows.py", "parquet"): "the format of a file of a dump",
    ("stages/quarantine/redrive.py", "parquet"): "the suffix of a file of the artefacts",
    ("stages/context.py", "postgres"): "the type of the state store's connection",
    ("domain/connection_text.py", "postgres"): "the type of a connection that Airflow's URIs call postgresql",
    ("config/target_kinds.py", "postgres"): "the table of kinds",
    ("config/target_kinds.py", "mysql"): "the table of kinds",
    ("config/target_kinds.py", "parquet"): "the table of kinds",
    ("schemas/ddl/tokens.py", "mysql"): "the SQL that is read",
    ("verify/source.py", "mysql"): "the module with MySQL's expressions",
    ("mysql_protocol.py", "mysql"): "a schema of the server's own",
    ("config/target_kinds.py", "iceberg"): "the table of kinds",
    ("config/target_kinds.py", "delta"): "the table of kinds",
}
"""Where a word that is a target's type stands for something else, and for what."""


def names_in(path: Path) -> Iterator[str]:
    """What the module names: texts that it compares or looks up, modules that it imports, and what it takes from them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.ImportFrom(module=str(module), names=aliases):
                yield from (part for part in module.split("."))
                yield from (alias.name for alias in aliases)


def imported_by(path: Path) -> set[str]:
    """The packages that the module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=aliases):
                found |= {alias.name.split(".")[0] for alias in aliases}
            case ast.ImportFrom(module=str(module)):
                found.add(module.split(".")[0])
    return found


def test_no_module_outside_its_folder_knows_a_kind_by_name_or_class() -> None:
    known = {word: name for name, kind in kinds().items() for word in (name, kind.__name__)}
    found = set()
    for path in sorted(LIBRARY.rglob("*.py")):
        place = path.relative_to(LIBRARY).as_posix()
        for word in known.keys() & set(names_in(path)):
            if not place.startswith(f"targets/{known[word]}/"):
                found.add((place, word))
    assert found == set(NO_TARGET)


def test_the_driver_of_a_database_is_imported_in_the_folder_of_its_kind_alone() -> None:
    drivers = {"psycopg", "adbc_driver_manager", "adbc_driver_postgresql"}
    using = {
        path.relative_to(LIBRARY).parent.as_posix() for path in LIBRARY.rglob("*.py") if drivers & imported_by(path)
    }
    assert using == {"targets/postgres"}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: "-".join(map(str, section.values())))
def test_a_kind_has_a_rule_for_every_kind_of_ddl(section) -> None:
    assert set(read_section({"name": "target", **section}).rules) == set(get_args(ChangeKind))


def test_every_kind_is_among_these_sections() -> None:
    assert {section["type"] for section in SECTIONS} == set(kinds())


def test_the_types_that_are_allowed_are_those_that_packages_register_too(made_up_target: None, tmp_path: Path) -> None:
    assert list(kinds()) == ["postgres", "mysql", "parquet", "iceberg", "delta", "lines"]
    assert "LinesTarget" in json_schema("pipeline.schema.json")["$defs"]
    with pytest.raises(
        ConfigError,
        match=r"not allowed; allowed: 'postgres', 'mysql', 'parquet', 'iceberg', 'delta', 'lines'",
    ):
        load_with(tmp_path, {"name": "log", "type": "line"})
    with pytest.raises(
        ConfigError, match=r"targets\[0\]\.url: unknown key, did you mean uri\? allowed: name, type, shape, uri"
    ):
        load_with(tmp_path, {"name": "log", "type": "lines", "uri": "file:///lines", "url": "x"})


def test_two_targets_of_a_kind_may_not_have_one_place(made_up_target: None, tmp_path: Path) -> None:
    one, other = ({"name": name, "type": "lines", "uri": "file:///lines"} for name in ("one", "other"))
    with pytest.raises(ConfigError, match=r"targets\[1\]: its place is that of target one \(lines file:///lines\)"):
        load_with(tmp_path, one, other)


def test_a_package_that_can_t_be_imported_breaks_the_pipelines_that_name_its_kind_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, place in (("gone", "no_such_package:Kind"), ("odd", "json:JSONDecoder")):
        declare(tmp_path, name, "1", {GROUP: {name: place}})
    monkeypatch.syspath_prepend(tmp_path)
    lake = {"name": "lake", "type": "parquet", "uri": "file:///lake"}
    load_with(tmp_path, lake)
    with pytest.raises(ConfigError, match=r"targets\[0\]\.urri: unknown key, did you mean uri\?"):
        load_with(tmp_path, {**lake, "urri": ""})
    with pytest.raises(
        ConfigError, match=r"targets\[1\]: type 'gone' is registered as no_such_package:Kind, which can't"
    ):
        load_with(tmp_path, lake, {"name": "log", "type": "gone"})
    with pytest.raises(
        ConfigError, match=r"type 'odd' is registered as json:JSONDecoder, which is not a TargetSection"
    ):
        load_with(tmp_path, lake, {"name": "log", "type": "odd"})
    with pytest.raises(ConfigError, match=r"target 'log' of the job spec: type 'gone' is registered"):
        read_section({"name": "log", "type": "gone"})


def load_with(folder: Path, *targets: dict[str, object]) -> None:
    file = folder / "shop.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "name": "shop",
                "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
                "connections": {"kafka": "kafka"},
                "artifacts": "file:///replay",
                "schedule": {"start": "2026-03-01T00:00:00Z"},
                "targets": list(targets),
            }
        )
    )
    load_pipeline(file)
