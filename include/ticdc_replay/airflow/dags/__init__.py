"""All DAGs of a folder of pipeline files and a folder of store files, for one DAG file of Airflow."""

import logging
import re
from collections.abc import Callable, Container, Iterator
from copy import deepcopy
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from airflow import settings
from airflow.exceptions import AirflowClusterPolicyError, AirflowClusterPolicySkipDag, AirflowClusterPolicyViolation
from airflow.sdk import DAG, BaseOperator, get_parsing_context

from ticdc_replay.airflow.dags.deletion import build_deletion_dag
from ticdc_replay.airflow.dags.maintain import build_maintain_dag
from ticdc_replay.airflow.dags.pipeline import build_dag
from ticdc_replay.airflow.dags.quarantine import build_quarantine_dag
from ticdc_replay.airflow.dags.seed import build_seed_dag
from ticdc_replay.airflow.dags.store import build_store_dag
from ticdc_replay.airflow.dags.verify import build_verify_dag
from ticdc_replay.airflow.markdown import code
from ticdc_replay.airflow.naming import (
    dag_id,
    deletion_dag_id,
    maintain_dag_id,
    quarantine_dag_id,
    seed_dag_id,
    store_dag_id,
    unusable_dag_id,
    verify_dag_id,
)
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import PIPELINE_SUFFIXES, LoadPipeline
from ticdc_replay.domain.errors import ConfigError

log = logging.getLogger(__name__)

_NAME = re.compile(r"^name: *[\"']?([a-z][a-z0-9_]*)", re.MULTILINE)


def build_dags(pipelines: str | Path, stores: str | Path | None = None) -> dict[str, DAG]:
    """The DAGs of the pipeline files in the folder *pipelines* and of the store files in the folder *stores*, by id.

    For ``globals().update(build_dags(…))`` in a DAG file. A pipeline has a DAG, one for its quarantine, one that maintains its
    lake tables, if it has any, one that fills its mirrors from a dump, if it has any, and one that compares them with the
    upstream, if it names that; a store has one, and one that deletes, if its policy allows that. A file that can't be used takes
    no other down: a DAG with the file's name shows the error. Where Airflow parses the DAG file to run a task, that task's DAG
    alone is made. Without the folder *stores* there are no stores.

    Raises ConfigError where the folder *pipelines* is missing, and what is wrong with the file whose task is to be run.
    """
    pipelines = Path(pipelines).absolute()
    if not pipelines.is_dir():
        raise ConfigError(
            f"{pipelines} is not a folder: put the pipeline files there, or name their folder in the DAG file or in the variable "
            "TICDC_REPLAY_PIPELINES"
        )
    wanted = get_parsing_context().dag_id
    load = lru_cache(maxsize=None)(load_pipeline)  # each pipeline once, however many DAGs and stores ask for it
    files = [*_pipeline_files(pipelines, load), *_store_files(pipelines, stores, load)]
    if wanted is not None:
        files.sort(key=lambda file: not file.seems_to_have(wanted))
    dags: dict[str, DAG] = {}
    broken: list[str] = []
    for file in files:
        if wanted in dags:
            return {wanted: dags[wanted]}
        try:
            made = _made(file, dags)
        except ConfigError as error:
            message = str(error)
        except Exception as error:  # whatever it is, it must not take the DAGs of other files down
            log.exception("%s can't be used", file.path)
            message = f"{file.path}: {type(error).__name__}: {error}"
        else:
            dags |= {dag.dag_id: dag for dag in made}
            continue
        log.error("%s", message)
        if wanted is not None and file.seems_to_have(wanted):
            broken.append(message)
        dag = _unusable(file, message)
        dags[dag.dag_id] = dag
    if wanted not in dags and broken:
        raise ConfigError("\n".join(broken))
    return dags


class _File(NamedTuple):
    """A YAML file, its kind, and how its DAGs are made."""

    path: Path
    kind: str
    ids: Callable[[str], tuple[str, ...]]
    """Of the DAGs, by the name in the file."""
    builders: tuple[Callable[[], DAG | None], ...]

    def seems_to_have(self, dag_id: str) -> bool:
        """Whether *dag_id* is of the name that a look at the file finds; much faster than to make its DAGs."""
        try:
            found = _NAME.search(self.path.read_text(encoding="utf-8", errors="replace"))
        except OSError:  # reported when the DAGs are made
            return False
        return found is not None and dag_id in self.ids(found[1])


def _pipeline_files(folder: Path, load: LoadPipeline) -> Iterator[_File]:
    for path in _yaml_files(folder):
        builders = (
            partial(build_dag, path, load),
            partial(build_quarantine_dag, path, load),
            partial(build_maintain_dag, path, load),
            partial(build_seed_dag, path, load),
            partial(build_verify_dag, path, load),
        )
        yield _File(path, "pipeline", _pipeline_dag_ids, builders)


def _pipeline_dag_ids(name: str) -> tuple[str, ...]:
    names = quarantine_dag_id(name), maintain_dag_id(name), seed_dag_id(name), verify_dag_id(name)
    return dag_id(name), *names


def _store_files(pipelines: Path, stores: str | Path | None, load: LoadPipeline) -> Iterator[_File]:
    folder = None if stores is None else Path(stores).absolute()
    for path in _yaml_files(folder) if folder is not None and folder.is_dir() else ():
        builders = (partial(build_store_dag, path, pipelines, load), partial(build_deletion_dag, path, pipelines, load))
        yield _File(path, "store", lambda name: (store_dag_id(name), deletion_dag_id(name)), builders)


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in PIPELINE_SUFFIXES and file.is_file())


def _made(file: _File, known: Container[str]) -> list[DAG]:
    """The DAGs of *file*. Raises ConfigError where one is *known* already, and what its builders raise."""
    made = [dag for build in file.builders if (dag := build()) is not None]
    for dag in made:
        if dag.dag_id in known:
            raise ConfigError(f"{file.path}: another file has the DAG {dag.dag_id} already: give this one another name")
        _ask_cluster_policies(file.path, dag)
    return made


def _ask_cluster_policies(path: Path, dag: DAG) -> None:
    """Raise ConfigError where a policy of this Airflow refuses *dag*: Airflow asks later, and refuses all DAGs of the file then.

    A copy is asked: policies may change what they are given, and Airflow has that done by itself.
    """
    copy = deepcopy(dag)
    try:
        settings.dag_policy(copy)
        for task in copy.tasks:
            settings.task_policy(task)
    except AirflowClusterPolicySkipDag:
        return  # Airflow leaves the DAG out by itself
    except (AirflowClusterPolicyError, AirflowClusterPolicyViolation) as error:
        raise ConfigError(f"{path}: a cluster policy of this Airflow refuses DAG {dag.dag_id}: {error}") from error


def _unusable(file: _File, message: str) -> DAG:
    """The DAG that shows in *message* why *file* has none, and fails with it where it is run."""
    with DAG(
        dag_id=unusable_dag_id(file.kind, re.sub(r"[^A-Za-z0-9_.-]", "_", file.path.name)),
        dag_display_name=f"{file.path.name} can't be used",
        description=message[:500],
        doc_md=f"The {file.kind} file {code(str(file.path))} can't be used:\n\n{code(message)}\n\n"
        "Until that is corrected its DAGs are not there, and their runs wait.",
        schedule=None,
        auto_register=False,
        tags={"ticdc-replay", "unusable"},
        default_args={"owner": "ticdc-replay"},
    ) as dag:
        _Unusable(task_id="unusable", message=message, retries=0)
    return dag


class _Unusable(BaseOperator):
    """Fails with *message*."""

    ui_color = "#f8d7da"

    def __init__(self, *, message: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.message = message

    def execute(self, context: Any) -> None:
        raise ConfigError(self.message)
