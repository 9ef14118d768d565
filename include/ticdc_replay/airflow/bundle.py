"""Shows a folder of pipeline files to Airflow, one DAG file per pipeline.

Airflow keeps import errors per DAG file, and an error in a file takes every DAG of that file out of service. So pipelines
must not share a file: this bundle writes, into a folder of its own, a DAG file of three lines for each YAML file.
"""

import os
from pathlib import Path
from string import Template
from typing import Any

from airflow.dag_processing.bundles.base import BaseDagBundle
from airflow.dag_processing.bundles.manager import DagBundlesManager

from ticdc_replay.airflow.pools import ensure_pools
from ticdc_replay.airflow.settings import pipelines_folder
from ticdc_replay.config.load_store import PIPELINE_SUFFIXES

_DAG_FILE = Template('''"""Airflow's DAGs of a pipeline. Written by PipelineBundle: edit the pipeline's file, not this one."""

from ticdc_replay.airflow.factory import build_dag
from ticdc_replay.airflow.quarantine_dag import build_quarantine_dag

dag = build_dag($path)
quarantine = build_quarantine_dag($path)
''')


class PipelineBundle(BaseDagBundle):
    """The pipelines of one folder: ``pipelines``, else what ``settings.pipelines_folder`` says.

    To be named in Airflow's ``[dag_processor] dag_bundle_config_list``. On each refresh the DAG processor takes up new and
    removed files, and creates the pools of new targets. Every machine that runs tasks needs the folder at the same path.
    """

    supports_versioning = False

    def __init__(self, *, pipelines: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._pipelines = (Path(pipelines) if pipelines else pipelines_folder()).absolute()

    @property
    def path(self) -> Path:
        return Path(self.base_dir)

    def get_current_version(self) -> None:
        return None

    def initialize(self) -> None:
        self._write_dag_files()
        super().initialize()

    def refresh(self) -> None:
        names = self._write_dag_files()
        for file in self.path.glob("*.py"):
            if file.name not in names:
                file.unlink(missing_ok=True)
        ensure_pools(self.pipeline_files())

    def pipeline_files(self) -> list[Path]:
        """The pipeline files, sorted by name."""
        return sorted(file for file in self._pipelines.iterdir() if file.suffix in PIPELINE_SUFFIXES and file.is_file())

    def _write_dag_files(self) -> set[str]:
        """Write what is missing or differs, each file in one step: tasks on one machine may do this at the same time."""
        self.path.mkdir(parents=True, exist_ok=True)
        names = set()
        for pipeline in self.pipeline_files():
            file = self.path / f"{pipeline.name.replace('.', '_')}.py"
            content = _DAG_FILE.substitute(path=repr(str(pipeline)))
            names.add(file.name)
            if not file.is_file() or file.read_text(encoding="utf-8") != content:
                temporary = file.with_suffix(f".{os.getpid()}.tmp")
                temporary.write_text(content, encoding="utf-8")
                temporary.replace(file)
        return names


def pipeline_files() -> list[Path]:
    """The pipeline files of every PipelineBundle that Airflow is configured with."""
    bundles = DagBundlesManager().get_all_dag_bundles()
    return [file for bundle in bundles if isinstance(bundle, PipelineBundle) for file in bundle.pipeline_files()]
