"""A package on ``sys.path`` as an installer leaves it: the modules, and beside them what ``pyproject.toml`` declares."""

import importlib
import shutil
import tomllib
from pathlib import Path

PLAIN_JSON = Path(__file__).parents[1] / "data" / "plain-json"
"""A package with a protocol of its own, ``plain-json``."""
ACME_LINES = Path(__file__).parents[1] / "data" / "acme-lines"
"""A package with a kind of target of its own, ``lines``."""
ACME_RUNS = Path(__file__).parents[1] / "data" / "acme-runs"
"""A package with a page of its own in Airflow, ``Runs``."""


def install(package: Path, site: Path) -> Path:
    """Put *package*, a folder with ``pyproject.toml`` and modules, into *site*, which belongs on the path. Returns *site*."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    shutil.copytree(package, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("pyproject.toml", "__pycache__"))
    declare(site, project["name"], project["version"], project["entry-points"])
    return site


def declare(site: Path, name: str, version: str, groups: dict[str, dict[str, str]]) -> None:
    """Say in *site* that a package with these entry points is installed there."""
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [line for group, entries in groups.items() for line in (f"[{group}]", *map(" = ".join, entries.items()))]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    importlib.invalidate_caches()
