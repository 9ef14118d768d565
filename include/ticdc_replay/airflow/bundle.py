"""Shows folders of pipeline and store files to Airflow, one DAG file per file.

Airflow keeps import errors per DAG file, and an error in a file takes every DAG of that file out of service. So neither pipelines
nor stores may share a file: this bundle writes, into a folder of its own, a DAG file of a few lines for each YAML file.
"""

import os
from pathlib import Path
from string import Template
from typing import Any

from airflow.dag_processing.bundles.base import BaseDagBundle
from airflow.dag_processing.bundles.manager import DagBundlesManager

from ticdc_replay.airflow.pools import ensure_pools
from ticdc_replay.airflow.settings import pipelines_folder, stores_folder
from ticdc_replay.config.load_store import PIPELINE_SUFFIXES

_PIPELINE_DAGS = Template('''"""The DAGs of a pipeline. Written by PipelineBundle: edit the pipeline's file, not this one."""

from ticdc_replay.airflow.factory import build_dag
from ticdc_replay.airflow.quarantine_dag import build_quarantine_dag

dag = build_dag($file)
quarantine = build_quarantine_dag($file)
''')
_STORE_DAGS = Template('''"""The DAGs of a store. Written by PipelineBundle: edit the store's file, not this one."""

from ticdc_replay.airflow.deletion_dag import build_deletion_dag
from ticdc_replay.airflow.store_dag import build_store_dag

dag = build_store_dag($file, $pipelines)
deletion = build_deletion_dag($file, $pipelines)
''')


class PipelineBundle(BaseDagBundle):
    """The pipelines of one folder and the stores of another: *pipelines* and *stores*, else what ``settings`` says.

    To be named in Airflow's ``[dag_processor] dag_bundle_config_list``. On each refresh the DAG processor takes up new and
    removed files, and creates the pools of new targets and stores. Every machine that runs tasks needs the folders at the same
    path. Without a folder of stores there are no stores.
    """

    supports_versioning = False

    def __init__(self, *, pipelines: str | None = None, stores: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._pipelines = (Path(pipelines) if pipelines else pipelines_folder()).absolute()
        self._stores = (Path(stores) if stores else stores_folder()).absolute()

    @property
    def path(self) -> Path:
        return Path(self.base_dir)

    @property
    def pipelines(self) -> Path:
        """The folder of the pipeline files."""
        return self._pipelines

    def get_current_version(self) -> None:
        return None

    def initialize(self) -> None:
        self._write_dag_files()
        super().initialize()

    def refresh(self) -> None:
        wanted = self._write_dag_files()
        for file in self.path.rglob("*.py"):
            if file not in wanted:
                file.unlink(missing_ok=True)
        ensure_pools(self.pipeline_files(), self.store_files(), self._pipelines)

    def pipeline_files(self) -> list[Path]:
        """The pipeline files, sorted by name."""
        return _yaml_files(self._pipelines)

    def store_files(self) -> list[Path]:
        """The store files, sorted by name."""
        return _yaml_files(self._stores) if self._stores.is_dir() else []

    def _write_dag_files(self) -> set[Path]:
        """Write what is missing or differs, each file in one step: tasks on one machine may do this at the same time."""
        content = {
            self.path / _dag_file(file): _PIPELINE_DAGS.substitute(file=repr(str(file)))
            for file in self.pipeline_files()
        }
        content |= {
            self.path / "stores" / _dag_file(file): _STORE_DAGS.substitute(
                file=repr(str(file)), pipelines=repr(str(self._pipelines))
            )
            for file in self.store_files()
        }
        self.path.mkdir(parents=True, exist_ok=True)
        for file, text in content.items():
            if not file.is_file() or file.read_text(encoding="utf-8") != text:
                file.parent.mkdir(exist_ok=True)
                temporary = file.with_suffix(f".{os.getpid()}.tmp")
                temporary.write_text(text, encoding="utf-8")
                temporary.replace(file)
        return set(content)


def pipeline_files() -> list[Path]:
    """The pipeline files of every PipelineBundle that Airflow is configured with."""
    return [file for bundle in _bundles() for file in bundle.pipeline_files()]


def store_files() -> list[tuple[Path, Path]]:
    """The store files of every PipelineBundle that Airflow is configured with, each with the folder of its pipelines."""
    return [(file, bundle.pipelines) for bundle in _bundles() for file in bundle.store_files()]


def _bundles() -> list[PipelineBundle]:
    bundles = DagBundlesManager().get_all_dag_bundles()
    return [bundle for bundle in bundles if isinstance(bundle, PipelineBundle)]


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in PIPELINE_SUFFIXES and file.is_file())


def _dag_file(file: Path) -> str:
    return f"{file.name.replace('.', '_')}.py"
