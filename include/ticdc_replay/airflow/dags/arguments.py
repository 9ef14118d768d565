"""Arguments of all DAGs of a pipeline or a store, from the ``airflow`` section of its file."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.domain.errors import ConfigError

_ERRORS = "ticdc_replay.domain.errors"


def dag_arguments(declared: Pipeline | Store, path: Path, tags: Iterable[str]) -> dict[str, Any]:
    """Arguments for each DAG of *declared*, whose file is *path*; *tags* name the kind of DAG.

    Raises ConfigError for a name in the ``airflow`` section that can't be imported.
    """
    section = declared.airflow
    return {
        "auto_register": False,  # Airflow takes what the DAG file has in its namespace, and no DAG that was refused
        "catchup": False,
        "tags": {"ticdc-replay", *tags, *section.tags},
        "access_control": section.access_control or None,
        "on_failure_callback": _named(section.callbacks.run_failed, path, "callbacks.run_failed"),
        "on_success_callback": _named(section.callbacks.run_succeeded, path, "callbacks.run_succeeded"),
        "default_args": _task_arguments(declared, path),
    }


def _task_arguments(declared: Pipeline | Store, path: Path) -> dict[str, Any]:
    section = declared.airflow
    config = section.executor_config
    arguments = {
        "owner": section.owner,
        "queue": section.queue,
        "pool": section.pool,
        "priority_weight": section.priority,
        "executor_config": _named(config, path, "executor_config") if isinstance(config, str) else config,
        "on_failure_callback": _named(section.callbacks.task_failed, path, "callbacks.task_failed"),
        "on_retry_callback": _named(section.callbacks.task_retried, path, "callbacks.task_retried"),
        "retries": declared.retries.attempts,
        "retry_delay": timedelta(seconds=declared.retries.delay_seconds),
        "retry_exponential_backoff": True,
        "max_retry_delay": timedelta(minutes=30),
        "retry_policy": retry_policy(),
    }
    return {name: value for name, value in arguments.items() if value is not None}


def retry_policy() -> ExceptionRetryPolicy:
    """Permanent errors fail the task at once; other errors are retried as the task's own settings say.

    A watermark that did not come within its time is not waited for once more.
    """
    return ExceptionRetryPolicy(
        rules=[
            RetryRule(
                exception=f"{_ERRORS}.WatermarkNotReachedError",
                action=RetryAction.FAIL,
                reason="The watermark did not come within window.timeout_minutes",
            ),
            RetryRule(
                exception=f"{_ERRORS}.PermanentError",
                action=RetryAction.FAIL,
                reason="The same attempt would fail again: something has to be changed first",
            ),
            RetryRule(
                exception=f"{_ERRORS}.TransientError",
                action=RetryAction.RETRY,
                reason="The same attempt may succeed later",
            ),
        ],
    )


def _named(name: str | None, path: Path, key: str) -> Any:
    """What *name*, a dotted one such as ``my_company.alerts.page``, is of; None for None."""
    if name is None:
        return None
    try:
        return resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{path}: airflow.{key}: {name} can't be imported: {error}; its module must be on the path of Airflow's DAG "
            "processor and workers, as the plugins folder is"
        ) from error
