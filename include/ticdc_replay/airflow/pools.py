"""The pools that keep runs from doing at the same time what only one may do: load one target, run the jobs of one store."""

import logging
from collections.abc import Iterable
from pathlib import Path

from ticdc_replay.airflow.naming import pool_name, store_pool_name
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain.errors import ConfigError

log = logging.getLogger(__name__)


def ensure_pools(pipeline_files: Iterable[Path], store_files: Iterable[Path], pipelines_folder: Path) -> None:
    """Create a pool of one slot for each target and store that has none; one that exists is left as an administrator made it.

    Needs Airflow's database: for its server processes, never for a task. Files that can't be loaded are passed over; they
    show as import errors. *pipelines_folder* is where the stores' pipelines are.
    """
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session

    wanted = _target_pools(pipeline_files) | _store_pools(store_files, pipelines_folder)
    with create_session() as session:
        existing = {pool.pool for pool in Pool.get_pools(session=session)}
        for name, description in wanted.items():
            if name not in existing:
                Pool.create_or_update_pool(
                    name, slots=1, description=description, include_deferred=False, session=session
                )
                log.info("Created pool %s", name)


def _target_pools(files: Iterable[Path]) -> dict[str, str]:
    """Names and descriptions."""
    wanted = {}
    for file in files:
        try:
            pipeline = load_pipeline(file).pipeline
        except ConfigError:
            continue
        for target in pipeline.targets:
            wanted[pool_name(pipeline.name, target.name)] = (
                f"Loads of pipeline {pipeline.name} into target {target.name}: one at a time"
            )
    return wanted


def _store_pools(files: Iterable[Path], pipelines_folder: Path) -> dict[str, str]:
    """Names and descriptions."""
    wanted = {}
    for file in files:
        try:
            name = load_store(file, pipelines_folder).store.name
        except ConfigError:
            continue
        wanted[store_pool_name(name)] = f"Spark jobs of store {name}: one at a time"
    return wanted
