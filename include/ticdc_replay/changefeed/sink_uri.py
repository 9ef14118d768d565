"""A changefeed's sink-uri and TOML, as given to ``cdc cli changefeed create``, turned into what a reader needs to know."""

import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

from msgspec import UNSET, UnsetType

from ticdc_replay.changefeed import known_options
from ticdc_replay.changefeed.config import Changefeed, Compression, EncodingFormat, LargeMessageOption, SchemaRegistry
from ticdc_replay.changefeed.dispatchers import dispatch_of
from ticdc_replay.changefeed.info import parse_info
from ticdc_replay.changefeed.kafka_access import KafkaAccess, kafka_access
from ticdc_replay.changefeed.options import Options, is_masked
from ticdc_replay.changefeed.protocols import ProtocolTraits, find_protocol, protocol_names
from ticdc_replay.changefeed.secrets import refuse_secret_in_uri, refuse_secrets
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.storage.names import tidy_folder

_SCHEMES = ("kafka", "kafka+ssl")
_LARGE = "sink.kafka-config.large-message-handle"
_GLUE = "sink.kafka-config.glue-schema-registry-config"
_ANY_NUMBER = -(1 << 63)
_REQUIRED_ACKS = (-1, 0, 1)
# What TiCDC uses where nothing is configured.
_MAX_MESSAGE_BYTES = 10 * 1024 * 1024
_MAX_BATCH_SIZE = 16


class ParsedChangefeed(NamedTuple):
    """A changefeed, and what a person should know about its configuration though it is no error."""

    changefeed: Changefeed
    warnings: tuple[str, ...]
    access: KafkaAccess
    """How TiCDC reaches the brokers, as fields of the Kafka connection."""
    registry: str | None
    """What the configuration calls the schema registry: an address for Confluent's, a name and region for Glue's."""
    start_ts: int | None = None
    """The changefeed's start-ts (TSO), if the configuration has it."""
    target_ts: int | None = None
    filters_ddl: bool = False
    """Whether event filters leave out DDL that changes columns or keys of tables."""


def from_sink_uri(
    sink_uri: str,
    toml_text: str,
    timezone: str,
    where: str,
    toml_where: str | None = None,
    schema_registry: str | None = None,
) -> ParsedChangefeed:
    """The changefeed that *sink_uri* and *toml_text* (may be empty) configure; the sink-uri wins where both say something.

    *timezone* is the IANA zone of the TiCDC server, *schema_registry* the flag of that name, which wins over the TOML. *where*
    and *toml_where* are what messages call the two places. Options that TiCDC does not know become warnings. Raises
    SecretInConfigError for a secret in either, ConfigError for a value that is not allowed or a combination that TiCDC refuses.
    """
    toml_where = toml_where or f"{where} (TOML)"
    try:
        toml = tomllib.loads(toml_text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{toml_where}: not valid TOML: {error}") from None
    return _parsed(sink_uri, toml, timezone, where, toml_where, schema_registry)


def from_info(text: str, timezone: str, where: str, schema_registry: str | None = None) -> ParsedChangefeed:
    """The changefeed whose ``Info``, as ``cdc cli changefeed create`` and ``query`` print it, is *text*.

    Otherwise as ``from_sink_uri``.
    """
    info = parse_info(text, where)
    parsed = _parsed(info.sink_uri, info.toml, timezone, f"{where}: sink_uri", f"{where}: config", schema_registry)
    return parsed._replace(start_ts=info.start_ts, target_ts=info.target_ts)


def _parsed(
    sink_uri: str, toml: Mapping[str, Any], timezone: str, where: str, toml_where: str, schema_registry: str | None
) -> ParsedChangefeed:
    refuse_secret_in_uri(sink_uri, where)
    parts = urlsplit(sink_uri.strip())
    refuse_secrets(toml, toml_where)
    if schema_registry is not None:
        refuse_secret_in_uri(schema_registry, f"{where}: --schema-registry")
        toml = _with_schema_registry(toml, schema_registry)
    options = Options(parts.query, where, toml, toml_where)
    if parts.scheme not in _SCHEMES:
        raise ConfigError(f"{where}: scheme {parts.scheme!r} is not allowed; allowed: {', '.join(_SCHEMES)}")
    topic = unquote(parts.path).strip("/")
    if not topic:
        raise ConfigError(f"{where}: the path must name the default topic, as in kafka://broker:9092/topic?protocol=…")
    _check_zone(timezone, where)

    protocol = _protocol(options)
    # Up to TiCDC 7.1. Canal-JSON forces it, Avro forbids it, and the protocols that came later never had the option.
    old_value = options.flag(True, key="enable-old-value") or not protocol.has_enable_old_value
    changefeed = Changefeed(
        protocol=protocol.name,
        topic=topic,
        timezone=timezone,
        partition_num=options.number(None, parameter="partition-num", key="sink.kafka-config.partition-num"),
        compression=options.choice("none", get_args(Compression), key=f"{_LARGE}.large-message-handle-compression"),
        large_message=options.choice("none", get_args(LargeMessageOption), key=f"{_LARGE}.large-message-handle-option"),
        claim_check_uri=_claim_check_uri(options),
        claim_check_raw_value=options.flag(False, key=f"{_LARGE}.claim-check-raw-value"),
        max_message_bytes=options.number(
            _MAX_MESSAGE_BYTES, parameter="max-message-bytes", key="sink.kafka-config.max-message-bytes"
        ),
        max_batch_size=options.number(
            _MAX_BATCH_SIZE, parameter="max-batch-size", key="sink.kafka-config.codec-config.max-batch-size"
        ),
        required_acks=_required_acks(options),
        output_old_value=options.flag(True, key="sink.open.output-old-value") and old_value,
        output_raw_change_event=options.flag(False, key="sink.kafka-config.output-raw-change-event"),
        delete_only_output_handle_key_columns=options.flag(False, key="sink.delete-only-output-handle-key-columns")
        or not old_value,
        force_replicate=options.flag(False, key="force-replicate"),
        dispatch=dispatch_of(options),
        table_across_nodes=options.flag(False, key="scheduler.enable-table-across-nodes"),
        **_protocol_options(options),
    )
    _check_combinations(changefeed, protocol, options)
    warnings = _warnings(options, changefeed, where, toml_where)
    access, registry = kafka_access(options, parts), _registry_name(options)
    return ParsedChangefeed(changefeed, tuple(warnings), access, registry, filters_ddl=_filters_ddl(options))


_NO_FORM = frozenset(
    ("insert", "update", "delete", "all dml", "drop table", "truncate table", "create schema", "drop schema",
     "create database", "drop database", "create view", "drop view")
)  # fmt: skip
"""Events of TiCDC's filter that leave the columns and keys of tables alone; a table that is dropped has no more rows."""


def _filters_ddl(options: Options) -> bool:
    """Whether event filters name other events, or DDL by its text; or transactions, which may be DDL, are left out."""
    if options.given("filter.ignore-txn-start-ts"):
        return True
    for rule in options.tables("filter.event-filters"):
        if rule.get("ignore-sql") or not _NO_FORM.issuperset(
            str(event).lower() for event in rule.get("ignore-event") or ()
        ):
            return True
    return False


def _protocol_options(options: Options) -> dict[str, Any]:
    """What only some protocols look at."""
    codec = "sink.kafka-config.codec-config"
    content_compatible = options.flag(False, parameter="content-compatible", key="sink.content-compatible")
    updated_columns = options.flag(
        False, parameter="only-output-updated-columns", key="sink.only-output-updated-columns"
    )
    extension, watermark = "enable-tidb-extension", "avro-enable-watermark"
    decimals, unsigned = "avro-decimal-handling-mode", "avro-bigint-unsigned-handling-mode"
    disable_schema, before_value = "debezium-disable-schema", "avro-include-before-value"
    return {
        "only_output_updated_columns": updated_columns or content_compatible,
        "enable_tidb_extension": options.flag(False, parameter=extension, key=f"{codec}.{extension}"),
        "content_compatible": content_compatible,
        "output_row_key": options.flag(False, parameter="output-row-key", key=f"{codec}.output-row-key"),
        "encoding_format": options.choice(
            "json", get_args(EncodingFormat), parameter="encoding-format", key=f"{codec}.encoding-format"
        ),
        "schema_registry": _schema_registry(options),
        "avro_decimal_handling_mode": options.choice(
            "precise", ("precise", "string"), parameter=decimals, key=f"{codec}.{decimals}"
        ),
        "avro_bigint_unsigned_handling_mode": options.choice(
            "long", ("long", "string"), parameter=unsigned, key=f"{codec}.{unsigned}"
        ),
        "avro_enable_watermark": options.flag(False, parameter=watermark, key=f"{codec}.{watermark}"),
        "avro_include_before_value": options.flag(False, parameter=before_value, key=f"{codec}.{before_value}"),
        "debezium_disable_schema": options.flag(False, parameter=disable_schema, key=f"sink.{disable_schema}"),
        "debezium_include_start_ts": options.flag(
            False, parameter="debezium-include-start-ts", key="sink.debezium.include-start-ts"
        ),
        "debezium_output_old_value": options.flag(True, key="sink.debezium.output-old-value"),
        "debezium_decimal_handling_mode": _debezium_mode(options, "decimal", ("double", "string")),
        "debezium_bigint_unsigned_handling_mode": _debezium_mode(options, "bigint-unsigned", ("long", "string")),
        "debezium_binary_handling_mode": _debezium_mode(
            options, "binary", ("base64", "bytes", "base64-url-safe", "hex"), same=2
        ),
        "row_checksum": options.choice("none", ("none", "correctness"), key="integrity.integrity-check-level")
        == "correctness",
        "send_bootstrap_to_all_partition": options.flag(True, key="sink.send-bootstrap-to-all-partition"),
        "send_bootstrap_interval_in_sec": options.number(
            120, key="sink.send-bootstrap-interval-in-sec", minimum=_ANY_NUMBER
        ),
        "send_bootstrap_in_msg_count": options.number(
            10_000, key="sink.send-bootstrap-in-msg-count", minimum=_ANY_NUMBER
        ),
    }


def _debezium_mode(options: Options, of: str, allowed: tuple[str, ...], same: int = 1) -> str | UnsetType:
    """How Debezium's JSON has cells; UNSET for the first of *allowed*, and as many as are the *same* for a reader."""
    name = f"{of}-handling-mode"
    found = options.choice(allowed[0], allowed, parameter=f"debezium-{name}", key=f"sink.debezium.{name}")
    return UNSET if found in allowed[:same] else found


def _schema_registry(options: Options) -> SchemaRegistry | None:
    """Whose framing Avro has. The registry's address is the connection's business."""
    glue = bool(options.section(_GLUE))
    if options.text(parameter="schema-registry", key="sink.schema-registry") is None:
        return "glue" if glue else None
    if glue:
        raise ConfigError(f"{options.place(_GLUE)}: TiCDC refuses it together with schema-registry")
    return "confluent"


def _registry_name(options: Options) -> str | None:
    if options.section(_GLUE):
        name, region = (options.text(key=f"{_GLUE}.{member}") for member in ("registry-name", "region"))
        return f"{name or 'default-registry'} in {region or 'the default region'}"
    return options.text(parameter="schema-registry", key="sink.schema-registry")


def _with_schema_registry(toml: Mapping[str, Any], address: str) -> Mapping[str, Any]:
    """*toml* as the flag ``--schema-registry`` changes it."""
    sink = toml.get("sink", {})
    return {**toml, "sink": {**sink, "schema-registry": address}} if isinstance(sink, Mapping) else toml


def _protocol(options: Options) -> ProtocolTraits:
    value = options.text(parameter="protocol", key="sink.protocol")
    place = options.parameter_place("protocol")
    if value is None:
        raise ConfigError(
            f"{place}: missing, and no sink.protocol in the TOML either; allowed: {', '.join(protocol_names())}"
        )
    found = find_protocol(value.lower())
    if found is None:
        raise ConfigError(f"{place}: {value!r} is not allowed; allowed: {', '.join(protocol_names())}")
    return found


def _required_acks(options: Options) -> int:
    acks = options.number(-1, parameter="required-acks", key="sink.kafka-config.required-acks", minimum=-1)
    if acks not in _REQUIRED_ACKS:
        place = options.parameter_place("required-acks")
        raise ConfigError(f"{place}: {acks} is not allowed; allowed: {', '.join(map(str, _REQUIRED_ACKS))}")
    return acks


def _claim_check_uri(options: Options) -> str | None:
    """The store's URI without its query: endpoint and region are the connection's business."""
    uri = options.text(key=f"{_LARGE}.claim-check-storage-uri")
    if uri is None:
        return None
    if "://" not in uri:
        raise ConfigError(f"{options.place(f'{_LARGE}.claim-check-storage-uri')}: not a URI such as s3://bucket/prefix")
    parts = urlsplit(uri)
    return tidy_folder(f"{parts.scheme}://{parts.netloc}{parts.path}")


def _check_combinations(changefeed: Changefeed, protocol: ProtocolTraits, options: Options) -> None:
    """Refuse what TiCDC refuses: such a changefeed can't exist."""
    if changefeed.large_message == "claim-check" and not changefeed.claim_check_uri:
        raise ConfigError(
            f"{options.place(f'{_LARGE}.claim-check-storage-uri')}: missing, though the option is claim-check"
        )
    if changefeed.large_message not in ("none", *protocol.large_messages):
        raise ConfigError(
            f"{options.place(f'{_LARGE}.large-message-handle-option')}: TiCDC refuses {changefeed.large_message!r} "
            f"with protocol {protocol.name}; allowed: {', '.join(('none', *protocol.large_messages))}"
        )
    for refusal in protocol.refuses(changefeed):
        raise ConfigError(f"{options.place(refusal.key)}: {refusal.why}")
    if changefeed.force_replicate and changefeed.delete_only_output_handle_key_columns:
        raise ConfigError(
            f"{options.place('force-replicate')}: TiCDC refuses it with delete-only-output-handle-key-columns, and with "
            "enable-old-value = false"
        )
    if changefeed.row_checksum and changefeed.dispatch.selectors:
        raise ConfigError(f"{options.place('sink.column-selectors')}: TiCDC refuses them with the integrity check")


def _check_zone(timezone: str, where: str) -> None:
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"{where}: timezone {timezone!r} is not an IANA zone such as UTC or Asia/Shanghai") from None


def _warnings(options: Options, changefeed: Changefeed, where: str, toml_where: str) -> list[str]:
    unknown = sorted(set(options.parameters) - known_options.PARAMETERS)
    found = [f"{where}: parameter {name} is unknown to TiCDC and ignored" for name in unknown]
    found += [f"{where}: parameter {name} occurs more than once; the first counts" for name in options.repeated]
    found += [
        f"{where}: parameter {name} was masked by TiCDC, so its default counts here; write its value if it is another"
        for name, value in options.parameters.items()
        if is_masked(value) and name in known_options.PARAMETERS and name not in known_options.NOT_FOR_READERS
    ]
    found += [
        f"{toml_where}: {key} is unknown to TiCDC and ignored" for key in known_options.unknown_keys(options.toml)
    ]
    if changefeed.loses_old_keys:
        found.append(
            f"{toml_where}: output-raw-change-event without old values: an UPDATE that changes a row's key does not carry the "
            "old key, so the old row stays in mirrors; no window can be proven"
        )
    return found
