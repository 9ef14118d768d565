"""What a DAG was made from, kept in the DAG itself: Airflow's servers read it in their database and need no file."""

import json
from typing import Any, TypeVar

from pydantic import ValidationError

from ticdc_replay import __version__
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.domain.errors import ConfigError

Declared = TypeVar("Declared", Pipeline, Store)

_LIBRARY = "ticdc-replay"


def declaration(declared: Pipeline | Store) -> str:
    """*declared* for the ``doc_json`` of a task of its DAG, where ``declared_in`` finds it."""
    content = declared.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return json.dumps({_LIBRARY: __version__, type(declared).__name__: content})


def declared_in(dag_id: str, kind: type[Declared]) -> Declared | None:
    """The pipeline or store that the DAG *dag_id* was made from, as Airflow's DAG processor saw it last.

    None where Airflow has no such DAG, or none of this *kind*. Needs Airflow's database: for its server processes, never for a
    task. Raises ConfigError where another version of the library made the DAG, and this one can't read it.
    """
    from airflow.models.serialized_dag import SerializedDagModel

    dag = SerializedDagModel.get_dag(dag_id)
    for text in [] if dag is None else [task.doc_json for task in dag.tasks if task.doc_json]:
        content = _declaration(text)
        if kind.__name__ in content:
            try:
                return kind.model_validate_json(json.dumps(content[kind.__name__]))
            except ValidationError as error:
                raise ConfigError(
                    f"DAG {dag_id} was made by version {content.get(_LIBRARY)} of ticdc-replay, this is {__version__}: wait "
                    f"until Airflow's DAG processor has parsed its file again ({error.error_count()} keys differ)"
                ) from None
    return None


def _declaration(text: str) -> dict[str, Any]:
    """The declaration in *text*, the ``doc_json`` of a task; empty for a DAG of somebody else."""
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) and _LIBRARY in content else {}
