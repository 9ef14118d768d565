"""The kinds of target by the ``type`` of a section: those of the library, and those that packages register.

A package registers a kind by an entry point of the group ``ticdc_replay.targets``, with the ``type`` as its name and a
subclass of ``TargetSection`` as its object. A kind is imported when a section of its type is read.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, SchemaValidator, core_schema

from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain.errors import ConfigError

GROUP = "ticdc_replay.targets"

_BUILT_IN = {
    "postgres": "ticdc_replay.targets.postgres.section:PostgresTarget",
    "mysql": "ticdc_replay.targets.mysql.section:MysqlTarget",
    "parquet": "ticdc_replay.targets.parquet.section:ParquetTarget",
    "iceberg": "ticdc_replay.targets.iceberg.section:IcebergTarget",
    "delta": "ticdc_replay.targets.delta.section:DeltaTarget",
}


def kinds() -> dict[str, type[TargetSection]]:
    """Every kind by its type, those of the library first. One that can't be imported is an error where a section names it."""
    found = {}
    for name, place in _known().items():
        with suppress(ValueError):
            found[name] = _resolved(name, place)
    return found


def read_section(section: Mapping[str, object]) -> TargetSection:
    """The section of a job spec. Raises ConfigError where it is not one of a known kind."""
    try:
        found: TargetSection = _read(section)
        return found
    except ValueError as error:
        raise ConfigError(f"target {section.get('name')!r} of the job spec: {error}") from None


class _ByType:
    """Has pydantic read a section with the kind that its ``type`` names, as a discriminated union would."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_read)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(_by_type(kinds()))


AnySection = Annotated[TargetSection, _ByType]
"""The section of any kind."""


def _read(section: Any) -> Any:
    asked = section.get("type") if isinstance(section, Mapping) else None
    known = _BUILT_IN if asked in tuple(_BUILT_IN) else _known()  # what a file gives as type may be anything
    found = {name: _resolved(name, place) for name, place in known.items() if name == asked}
    return SchemaValidator(_by_type(found, known)).validate_python(section)


def _by_type(found: Mapping[str, type[TargetSection]], known: Iterable[str] = ()) -> CoreSchema:
    """Chooses among *found* by ``type``; errors list the *known* types, too."""
    choices: dict[Any, CoreSchema] = dict.fromkeys(known, core_schema.any_schema())
    choices |= {name: kind.__pydantic_core_schema__ for name, kind in found.items()}
    return core_schema.tagged_union_schema(choices, "type")


def _known() -> dict[str, str]:
    """``package.module:Class`` of every kind; a kind of the library can't be replaced."""
    return _BUILT_IN | {entry.name: entry.value for entry in entry_points(group=GROUP) if entry.name not in _BUILT_IN}


def _resolved(name: str, place: str) -> type[TargetSection]:
    try:
        kind = resolve_name(place)
    except Exception as error:  # of a package: it must not take down what does not use it
        raise ValueError(
            f"type {name!r} is registered as {place}, which can't be imported ({error}); repair or remove the package"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, TargetSection)):
        raise ValueError(
            f"type {name!r} is registered as {place}, which is not a TargetSection; repair or remove the package"
        )
    return kind
