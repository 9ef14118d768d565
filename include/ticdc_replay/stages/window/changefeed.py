"""What was understood of a changefeed's configuration, for people and for comparison by machines."""

from typing import Literal

import msgspec

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.kafka_access import ConnectionField
from ticdc_replay.changefeed.rules import Dispatch, DispatchRule
from ticdc_replay.changefeed.sink_uri import ParsedChangefeed
from ticdc_replay.codecs.registry import carried_by

Windows = Literal["proven", "unproven", "by offset"]


class RuleSummary(msgspec.Struct, frozen=True):
    """One dispatcher rule, or the default for all other tables."""

    tables: tuple[str, ...]
    topic: str
    partition: str
    events_are_named: str | None
    """What table routing calls the tables in events; None where they have their own names."""
    scatters: bool
    """Whether versions of one row may be in several partitions."""


class ChangefeedSummary(msgspec.Struct, frozen=True):
    """A changefeed as it was understood. Sizes in bytes, times TSO. Holds no secret."""

    protocol: str
    default_topic: str
    partition_num: int | None
    rules: tuple[RuleSummary, ...]
    column_selectors: int
    windows: Windows
    """The best grade that windows can have."""
    windows_why: tuple[str, ...]
    """Why it is no better; empty for proven."""
    carries: tuple[str, ...]
    """What messages carry beside the rows."""
    large_messages: str
    claim_check_uri: str | None
    compression: str
    max_message_bytes: int
    schema_registry: str | None
    row_checksum: bool
    start_ts: int | None
    target_ts: int | None
    kafka_connection: tuple[ConnectionField, ...]
    """Fields of the Kafka connection that let a reader in as TiCDC is."""
    warnings: tuple[str, ...]


def summarize(parsed: ParsedChangefeed) -> ChangefeedSummary:
    """What *parsed* means for replaying. Raises ConfigError for a protocol that can't be read."""
    changefeed = parsed.changefeed
    windows, why = possible_windows(changefeed)
    return ChangefeedSummary(
        protocol=_protocol(changefeed),
        default_topic=changefeed.topic,
        partition_num=changefeed.partition_num,
        rules=tuple(_rules(changefeed)),
        column_selectors=len(changefeed.dispatch.selectors),
        windows=windows,
        windows_why=why,
        carries=_carries(changefeed),
        large_messages=changefeed.large_message + (", raw" if changefeed.claim_check_raw_value else ""),
        claim_check_uri=changefeed.claim_check_uri,
        compression=changefeed.compression,
        max_message_bytes=changefeed.max_message_bytes,
        schema_registry=parsed.registry,
        row_checksum=changefeed.row_checksum,
        start_ts=parsed.start_ts,
        target_ts=parsed.target_ts,
        kafka_connection=parsed.access.fields,
        warnings=parsed.warnings,
    )


def possible_windows(changefeed: Changefeed) -> tuple[Windows, tuple[str, ...]]:
    """The best grade that windows of *changefeed* can have, and why it is no better. Raises ConfigError for a protocol
    that can't be read."""
    carried = carried_by(changefeed)
    if carried.commit_ts != "rows":
        why = [
            f"{'no row has' if carried.commit_ts == 'nothing' else 'deletes have no'} commitTs: windows are bounded by offsets"
        ]
        if any(rule.scatters for rule in _rules(changefeed)):
            why.append("a dispatcher rule scatters versions of one row over partitions: its tables can't be replayed")
        return "by offset", tuple(why)
    doubts = []
    if changefeed.loses_old_keys:
        doubts.append(
            "output-raw-change-event without old values: an UPDATE that changes a row's key does not have the old one"
        )
    if not carried.watermarks:
        doubts.append("no resolved-ts is sent: nothing shows that all rows of a window are there")
    if changefeed.required_acks != -1:
        doubts.append(
            f"required-acks is {changefeed.required_acks}, not all (-1): brokers may lose what TiCDC counts as sent"
        )
    return ("unproven", tuple(doubts)) if doubts else ("proven", ())


def _rules(changefeed: Changefeed) -> list[RuleSummary]:
    return [_rule(changefeed, rule) for rule in (*changefeed.dispatch.rules, DispatchRule())]


def _rule(changefeed: Changefeed, rule: DispatchRule) -> RuleSummary:
    by = {"index-value": rule.index or "handle key", "columns": ", ".join(rule.columns)}.get(rule.partition)
    alone = Dispatch(
        (msgspec.structs.replace(rule, matcher=DispatchRule().matcher, target_schema="", target_table=""),)
    )
    return RuleSummary(
        tables=rule.matcher.patterns,
        topic=changefeed.topic if rule.topic is None else rule.topic.text,
        partition=f"{rule.partition} ({by})" if by else rule.partition,
        events_are_named=f"{rule.target_schema or '{schema}'}.{rule.target_table or '{table}'}"
        if rule.routes
        else None,
        scatters=alone.scatters("schema", "table", raw_changes=changefeed.output_raw_change_event),
    )


def _protocol(changefeed: Changefeed) -> str:
    options: list[str] = []
    if changefeed.traits.has_encodings:
        options.append(changefeed.encoding_format)
    if changefeed.content_compatible:
        options.append("content-compatible")
    elif changefeed.only_output_updated_columns:
        options.append("only-output-updated-columns")
    if changefeed.debezium_disable_schema:
        options.append("without schema")
    if changefeed.enable_tidb_extension:
        options.append("enable-tidb-extension")
    return f"{changefeed.protocol} ({', '.join(options)})" if options else changefeed.protocol


def _carries(changefeed: Changefeed) -> tuple[str, ...]:
    carried = carried_by(changefeed)
    commit_ts = {"rows": "commitTs of every row", "rows but deletes": "commitTs of every row but deletes"}
    ddl = {"every partition": "DDL in every partition", "first partition": "DDL in partition 0"}
    carries = [commit_ts.get(carried.commit_ts), "resolved-ts" if carried.watermarks else None, ddl.get(carried.ddl)]
    return tuple(each for each in carries if each is not None)
