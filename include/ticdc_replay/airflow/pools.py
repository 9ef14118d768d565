"""The pools that keep runs of a pipeline from loading one target at the same time."""

import logging
from collections.abc import Iterable
from pathlib import Path

from ticdc_replay.airflow.naming import pool_name
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.errors import ConfigError

log = logging.getLogger(__name__)


def ensure_pools(pipeline_files: Iterable[Path]) -> None:
    """Create a pool of one slot for each target that has none; one that exists is left as an administrator made it.

    Needs Airflow's database: for its server processes, never for a task. Files that can't be loaded are passed over; they
    show as import errors.
    """
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session

    wanted = {}
    for file in pipeline_files:
        try:
            pipeline = load_pipeline(file).pipeline
        except ConfigError:
            continue
        for target in pipeline.targets:
            wanted[pool_name(pipeline.name, target.name)] = (
                f"Loads of pipeline {pipeline.name} into target {target.name}: one at a time"
            )
    with create_session() as session:
        existing = {pool.pool for pool in Pool.get_pools(session=session)}
        for name, description in wanted.items():
            if name not in existing:
                Pool.create_or_update_pool(
                    name, slots=1, description=description, include_deferred=False, session=session
                )
                log.info("Created pool %s", name)
