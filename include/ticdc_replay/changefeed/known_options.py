"""The options TiCDC knows for a Kafka sink, to find misspelt ones among those that do not matter to a reader.

Source: Kafka sink and changefeed configuration pages of the TiDB documentation, and ``pkg/config`` of both architectures.
"""

from collections.abc import Iterator, Mapping
from typing import Any

PARAMETERS = frozenset({
    "protocol", "partition-num", "replication-factor", "kafka-version", "kafka-client-id", "max-message-bytes",
    "max-batch-size", "max-retry", "compression", "auto-create-topic", "required-acks",
    "dial-timeout", "write-timeout", "read-timeout", "transaction-atomicity",
    "enable-tls", "ca", "cert", "key", "insecure-skip-verify",
    "sasl-user", "sasl-mechanism", "sasl-gssapi-auth-type", "sasl-gssapi-keytab-path",
    "sasl-gssapi-kerberos-config-path", "sasl-gssapi-service-name", "sasl-gssapi-user", "sasl-gssapi-realm",
    "sasl-gssapi-disable-pafxfast", "sasl-oauth-client-id", "sasl-oauth-token-url", "sasl-oauth-scopes",
    "sasl-oauth-grant-type", "sasl-oauth-audience",
    "enable-tidb-extension", "only-output-updated-columns", "content-compatible", "output-row-key", "encoding-format",
    "schema-registry", "avro-decimal-handling-mode", "avro-bigint-unsigned-handling-mode", "avro-enable-watermark",
    "avro-include-before-value", "debezium-disable-schema", "debezium-include-start-ts",
    "debezium-decimal-handling-mode", "debezium-bigint-unsigned-handling-mode", "debezium-binary-handling-mode",
    "simple-include-start-ts",
    "sasl-password", "sasl-gssapi-password", "sasl-oauth-client-secret",
})  # fmt: skip
"""Parameters of a sink-uri; those that hold secrets get here only masked, where TiCDC printed them."""

NOT_FOR_READERS = frozenset({
    "sasl-password", "sasl-gssapi-password", "sasl-oauth-client-secret", "kafka-client-id", "key",
    "sasl-oauth-client-id", "sasl-gssapi-keytab-path", "sasl-oauth-token-url",
})  # fmt: skip
"""Of these, those that TiCDC masks when it prints a sink-uri, and that decoding does not depend on."""

_SECTIONS = frozenset({
    "filter", "mounter", "scheduler", "consistent", "integrity", "synced-status",
    "sink.csv", "sink.pulsar-config", "sink.mysql-config", "sink.cloud-storage-config", "sink.iceberg-config",
})  # fmt: skip
"""Sections whose members do not matter to a reader, or are looked at one by one elsewhere."""

_TOP = (
    "performance-mode memory-quota case-sensitive force-replicate check-gc-safe-point enable-sync-point bdr-mode "
    "enable-table-monitor ignore-ineligible-table sync-point-interval sync-point-retention sql-mode "
    "changefeed-error-stuck-duration enable-active-active active-active-progress-interval "
    "active-active-sync-stats-interval event-collector-batch-count event-collector-batch-bytes enable-old-value"
)
_SINK = (
    "protocol transaction-atomicity schema-registry encoder-concurrency terminator date-separator "
    "enable-partition-separator file-index-digit enable-kafka-sink-v2 only-output-updated-columns "
    "delete-only-output-handle-key-columns content-compatible safe-mode advance-timeout-in-sec "
    "send-bootstrap-interval-in-sec send-bootstrap-in-msg-count send-bootstrap-to-all-partition "
    "send-all-bootstrap-at-start debezium-disable-schema case-sensitive open.output-old-value debezium.output-old-value "
    "debezium.include-start-ts debezium.decimal-handling-mode debezium.bigint-unsigned-handling-mode "
    "debezium.binary-handling-mode simple.include-start-ts integrity force-replicate"
)
_KAFKA = (
    "partition-num replication-factor kafka-version max-message-bytes compression kafka-client-id auto-create-topic "
    "dial-timeout write-timeout read-timeout required-acks sasl-user sasl-mechanism sasl-gssapi-auth-type "
    "sasl-gssapi-keytab-path sasl-gssapi-kerberos-config-path sasl-gssapi-service-name sasl-gssapi-user "
    "sasl-gssapi-realm sasl-gssapi-disable-pafxfast sasl-oauth-client-id sasl-oauth-token-url sasl-oauth-scopes "
    "sasl-oauth-grant-type sasl-oauth-audience enable-tls ca cert key insecure-skip-verify output-raw-change-event "
    "sasl-password sasl-gssapi-password sasl-oauth-client-secret"
)
_CODEC = (
    "enable-tidb-extension max-batch-size avro-enable-watermark avro-decimal-handling-mode "
    "avro-bigint-unsigned-handling-mode avro-include-before-value encoding-format output-row-key"
)
_GLUE = "registry-name region access-key secret-access-key token"
_LARGE = "large-message-handle-option large-message-handle-compression claim-check-storage-uri claim-check-raw-value"

KEYS = frozenset(
    prefix + name
    for prefix, names in (
        ("", _TOP),
        ("sink.", _SINK),
        ("sink.kafka-config.", _KAFKA),
        ("sink.kafka-config.codec-config.", _CODEC),
        ("sink.kafka-config.large-message-handle.", _LARGE),
        ("sink.kafka-config.glue-schema-registry-config.", _GLUE),
    )
    for name in names.split()
)

_OF_RULES = {
    "sink.dispatchers": frozenset(
        ("matcher", "dispatcher", "partition", "index", "columns", "topic", "target-schema", "target-table")
    ),
    "sink.column-selectors": frozenset(("matcher", "columns")),
}
"""Keys of each table in an array of tables."""


def unknown_keys(toml: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Dotted names of the settings that TiCDC does not know, in document order."""
    for name, value in toml.items():
        here = f"{path}.{name}" if path else name
        if here in _SECTIONS or here in KEYS:
            continue
        if here in _OF_RULES and isinstance(value, list):
            for at, rule in enumerate(value):
                names = rule if isinstance(rule, Mapping) else ()
                yield from (f"{here}[{at}].{key}" for key in names if key not in _OF_RULES[here])
        elif isinstance(value, Mapping):
            yield from unknown_keys(value, here)
        else:
            yield here
