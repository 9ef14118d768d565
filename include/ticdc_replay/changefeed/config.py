"""What a changefeed's own configuration means for reading its messages."""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from ticdc_replay.changefeed.protocols import ProtocolTraits, find_protocol, protocol_names
from ticdc_replay.changefeed.rules import Dispatch, before_avro
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ConfigError

Compression = Literal["none", "snappy", "lz4"]
LargeMessageOption = Literal["none", "handle-key-only", "claim-check"]
EncodingFormat = Literal["json", "avro"]
SchemaRegistry = Literal["confluent", "glue"]


class Changefeed(msgspec.Struct, frozen=True, kw_only=True):
    """A changefeed as a reader sees it: all that decoding and pinning depend on, and no secret.

    Made by ``from_sink_uri`` from the owner's sink-uri and TOML; captures and tests may make it directly. Sizes in bytes. A new
    field changes every changefeed's ``hash``: windows pinned before then need ``repin``. Not if it is UNSET by default.
    """

    protocol: str
    topic: str
    """The default topic, from the sink-uri's path."""
    timezone: str
    """The IANA zone of the TiCDC server: TIMESTAMP cells are text in it."""
    partition_num: int | None = None
    compression: Compression = "none"
    large_message: LargeMessageOption = "none"
    claim_check_uri: str | None = None
    claim_check_raw_value: bool = False
    max_message_bytes: int = 10 * 1024 * 1024
    max_batch_size: int = 16
    required_acks: int = -1
    output_old_value: bool = True
    only_output_updated_columns: bool = False
    output_raw_change_event: bool = False
    delete_only_output_handle_key_columns: bool = False
    force_replicate: bool = False
    dispatch: Dispatch = Dispatch()
    """Which topic a table goes to, and which partition a row."""
    table_across_nodes: bool = False
    """Whether a table may be split over TiCDC nodes: then rows of one table are in no order of commitTs."""
    enable_tidb_extension: bool = False
    content_compatible: bool = False
    """Canal-JSON: full type texts in ``mysqlType``; implies ``only_output_updated_columns``."""
    output_row_key: bool = False
    encoding_format: EncodingFormat = "json"
    """Simple."""
    schema_registry: SchemaRegistry | None = None
    """Avro and Debezium-Avro: whose framing stands before every key and value."""
    avro_decimal_handling_mode: Literal["precise", "string"] = "precise"
    avro_bigint_unsigned_handling_mode: Literal["long", "string"] = "long"
    avro_enable_watermark: bool = False
    """TiCDC's test mode: DDL and watermarks beside Avro's rows."""
    avro_include_before_value: bool = False
    debezium_disable_schema: bool = False
    debezium_include_start_ts: bool = False
    debezium_output_old_value: bool = True
    debezium_decimal_handling_mode: Literal["string"] | UnsetType = UNSET
    debezium_bigint_unsigned_handling_mode: Literal["string"] | UnsetType = UNSET
    debezium_binary_handling_mode: Literal["base64-url-safe", "hex"] | UnsetType = UNSET
    """UNSET for base64, with a schema of text or of bytes."""
    row_checksum: bool = False
    """``integrity-check-level = "correctness"``."""
    send_bootstrap_to_all_partition: bool = True
    send_bootstrap_interval_in_sec: int = 120
    """Simple: a table's schema is sent this often; 0 or less, here or in the next, turns bootstraps off."""
    send_bootstrap_in_msg_count: int = 10_000

    @property
    def traits(self) -> ProtocolTraits:
        """What is true of its protocol. Raises ConfigError for a protocol that is not known."""
        found = find_protocol(self.protocol)
        if found is None:
            raise ConfigError(
                f"protocol={self.protocol} of the sink-uri can't be read; allowed: {', '.join(protocol_names())}"
            )
        return found

    def topic_of(self, schema: str, table: str) -> str | None:
        """The topic of rows with these names; None where table routing leaves open which table they are of."""
        return self.dispatch.topic_of(schema, table, self.topic)

    def topics_among(self, existing: Iterable[str], wanted: Iterable[str]) -> list[str]:
        """Those of the *existing* topics, sorted, that may hold a table of the *wanted* patterns. Errs towards yes."""
        if self.traits.avro_names:
            wanted = [before for pattern in wanted for before in before_avro(pattern)]
        return self.dispatch.topics_among(existing, wanted)

    def may_send(self, schema: str, table: str, topic: str) -> bool:
        """Whether the rules may send a table that Avro gives these names to *topic*. Errs towards yes."""
        return self.dispatch.may_send(schema, table, topic, self.topic)

    @property
    def loses_old_keys(self) -> bool:
        """Whether an UPDATE that changes a row's key does not tell the old one: raw change events without old values."""
        return self.output_raw_change_event and not self.traits.carries(self).old_keys

    def scatters(self, schema: str, table: str) -> bool:
        """Whether versions of one row of the table may be in several partitions: then only commitTs orders them."""
        if self.traits.avro_names:
            return self.dispatch.may_scatter(schema, table, raw_changes=self.output_raw_change_event)
        return self.dispatch.scatters(schema, table, raw_changes=self.output_raw_change_event)

    @property
    def hash(self) -> str:
        """Names this configuration in manifests."""
        return canonical.hash_of(self)
