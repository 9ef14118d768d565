"""Which class serves which target configuration: one line per target."""

from collections.abc import Callable
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.targets.base import AnyTarget
from ticdc_replay.targets.config import TargetConfig


# Each target is imported when it is used: a load needs the driver of one database, not of all.
def _postgres(config: Any, connections: Connections) -> AnyTarget:
    from ticdc_replay.targets.postgres.mirror import PostgresMirror

    return PostgresMirror(config, connections)


def _parquet(config: Any, connections: Connections) -> AnyTarget:
    from ticdc_replay.targets.parquet.target import ParquetFiles

    return ParquetFiles(config, connections)


_TARGETS: dict[str, Callable[[Any, Connections], AnyTarget]] = {"postgres": _postgres, "parquet": _parquet}


def open_target(section: dict[str, object], connections: Connections) -> AnyTarget:
    """The target that a pipeline's *section* describes. Nothing is connected by opening.

    Raises ConfigError where the section is not one of a known target.
    """
    config = read_section(section)
    return _TARGETS[config.type](config, connections)


def read_section(section: dict[str, object]) -> TargetConfig:
    """The section of a job spec. Raises ConfigError where it is not one of a known target."""
    adapter: TypeAdapter[TargetConfig] = TypeAdapter(TargetConfig)
    try:
        return adapter.validate_json(msgspec.json.encode(section))
    except ValidationError as error:
        raise ConfigError(f"target {section.get('name')!r} of the job spec: {error}") from None
