"""Loads a pipeline file, and finds everything that can be known to be wrong before a run."""

import re
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.kafka_access import KafkaAccess
from ticdc_replay.changefeed.secrets import refuse_secrets
from ticdc_replay.changefeed.sink_uri import ParsedChangefeed, from_info, from_sink_uri
from ticdc_replay.config.findings import explained
from ticdc_replay.config.pipeline import ChangefeedSection, Pipeline
from ticdc_replay.config.types import CONNECTION_TYPES
from ticdc_replay.config.yaml_file import read_yaml
from ticdc_replay.domain.errors import ConfigError


class LoadedPipeline(NamedTuple):
    """A pipeline file, read and checked. ``warnings`` are for people: options that have no effect."""

    pipeline: Pipeline
    changefeed: Changefeed
    path: Path
    warnings: tuple[str, ...]
    access: KafkaAccess
    """How TiCDC reaches the brokers, as fields of the Kafka connection."""
    registry: str | None = None
    """What the changefeed's configuration calls its schema registry."""
    start_ts: int | None = None
    """The changefeed's start-ts (TSO), where it is declared."""
    target_ts: int | None = None
    """The changefeed's target-ts (TSO), where it is declared: nothing that committed later was sent."""
    filters_ddl: bool = False
    """Whether its event filters leave out DDL that changes columns or keys of tables."""


def load_pipeline(path: str | Path) -> LoadedPipeline:
    """The pipeline in the YAML file *path*. Also reads the changefeed's TOML if it is given by path.

    Raises SecretInConfigError for a secret, and ConfigError otherwise, with one line per finding: file, key
    (``targets[0].schema``) and allowed values.
    """
    path = Path(path)
    document = read_yaml(path)
    refuse_secrets(document, str(path))
    try:
        pipeline = Pipeline.model_validate(document)
    except ValidationError as error:
        raise explained(error, document, path, Pipeline) from None
    parsed = _parsed_changefeed(pipeline.changefeed, path)
    _check_claim_check(pipeline, parsed.changefeed, path)
    _check_schema_registry(pipeline, parsed.changefeed, path)
    if parsed.changefeed.traits.avro_names:
        _check_avro_names(pipeline, parsed.changefeed.protocol, path)
    declared = pipeline.changefeed
    return LoadedPipeline(
        pipeline,
        parsed.changefeed,
        path,
        parsed.warnings,
        parsed.access,
        parsed.registry,
        parsed.start_ts if declared.start_ts is None else declared.start_ts,
        parsed.target_ts if declared.target_ts is None else declared.target_ts,
        parsed.filters_ddl,
    )


def _parsed_changefeed(section: ChangefeedSection, path: Path) -> ParsedChangefeed:
    if section.info is not None:
        text, where = section.info, f"{path}: changefeed.info"
        if "{" not in text:
            where = str(path.parent / text.strip())
            text = _read(path.parent / text.strip(), f"{path}: changefeed.info")
        return from_info(text, section.timezone, where, section.schema_registry)
    assert section.sink_uri is not None
    toml_text, toml_where = _toml(section, path)
    return from_sink_uri(
        section.sink_uri,
        toml_text,
        section.timezone,
        where=f"{path}: changefeed.sink_uri",
        toml_where=toml_where,
        schema_registry=section.schema_registry,
    )


def _toml(section: ChangefeedSection, path: Path) -> tuple[str, str]:
    if section.config_file is None:
        return section.config or "", f"{path}: changefeed.config"
    toml_path = path.parent / section.config_file
    return _read(toml_path, f"{path}: changefeed.config_file"), str(toml_path)


def _read(file: Path, where: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{where}: {file} cannot be read: {error.strerror}; the path is relative to the pipeline's file"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: {file} is not UTF-8 text") from None


def _check_claim_check(pipeline: Pipeline, changefeed: Changefeed, path: Path) -> None:
    uri, connection = changefeed.claim_check_uri, pipeline.connections.claim_check
    if uri is None:
        return
    place = f"{path}: connections.claim_check"
    if uri.startswith("file:"):
        if connection is not None:
            raise ConfigError(f"{place}: remove it; the claim-check store {uri} is a local folder")
    elif connection is None and changefeed.large_message == "claim-check":
        kind = CONNECTION_TYPES.get(uri.partition(":")[0], "aws")
        raise ConfigError(
            f"{place}: missing; the changefeed writes large messages to {uri}: name the Airflow connection (type {kind}) for it"
        )


def _check_avro_names(pipeline: Pipeline, protocol: str, path: Path) -> None:
    """Refuse names that no message can have: nothing would be found for them, and nothing reported as missing."""
    named = [(f"tables[{at}]", pattern) for at, pattern in enumerate(pipeline.tables)]
    named += [(f"definitions[{at}].name", definition.name) for at, definition in enumerate(pipeline.definitions)]
    for key, name in named:
        schema, _, table = name.partition(".")
        wanted = f"{_avro_name(schema)}.{_avro_name(table)}"
        if wanted != name:
            raise ConfigError(
                f"{path}: {key}: protocol {protocol} writes _ for characters that its names can't have, so no message is of "
                f"{name!r}: write {wanted}"
            )


def _avro_name(part: str) -> str:
    """*part* of a pattern as TiCDC writes it in Avro."""
    kept = re.sub(r"[^A-Za-z0-9_*?]", "_", part)
    return f"_{kept}" if kept[:1].isdecimal() else kept


def _check_schema_registry(pipeline: Pipeline, changefeed: Changefeed, path: Path) -> None:
    connection = pipeline.connections.schema_registry
    place = f"{path}: connections.schema_registry"
    if not changefeed.traits.needs_registry:
        if connection is not None:
            raise ConfigError(f"{place}: remove it; protocol {changefeed.protocol} uses no schema registry")
    elif connection is None:
        kinds = {"glue": "type aws, for AWS Glue", "confluent": "type http"}
        kind = kinds.get(changefeed.schema_registry or "", "type http, or aws for AWS Glue")
        raise ConfigError(
            f"{place}: missing; messages of protocol {changefeed.protocol} can't be read without their schemas: "
            f"name the Airflow connection ({kind}) of the changefeed's registry"
        )
