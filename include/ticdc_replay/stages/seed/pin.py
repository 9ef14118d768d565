"""Fixes what a seed reads: a dump becomes an immutable manifest."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from ticdc_replay.changelog.cells.times import check_zone
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import ArtifactExistsError, ConfigError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.window import Window
from ticdc_replay.dumps.dialect import Dialect
from ticdc_replay.dumps.survey import Dump, survey
from ticdc_replay.dumps.tables import definition_of, schema_of
from ticdc_replay.snapshot.manifest import BaseInput, Manifest, PinnedFile
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.selection import selected_tables
from ticdc_replay.storage import open_store

Consistency = Literal["snapshot", "auto", "flush", "lock", "none"]
CONSISTENT: frozenset[Consistency] = frozenset({"snapshot", "auto"})
"""Of TiDB, Dumpling makes ``snapshot`` of ``auto`` (dumpling/export/dump.go, resolveAutoConsistency)."""


class SeedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A dump, and the options that it was taken with, which its files do not say."""

    uri: str
    """Of the folder that Dumpling wrote to."""
    consistency: Consistency
    dialect: Dialect = Dialect()
    zone: str | None = None
    """The time zone of Dumpling's session: TIMESTAMPs are written in it."""


def dump_uri(place: str) -> str:
    """The URI of the folder *place*, which may be a path."""
    return place.rstrip("/") if "://" in place else Path(place).absolute().as_uri()


def pin_dump(context: ReplayContext, request: SeedRequest, tables: tuple[str, ...] | None = None) -> PinnedManifest:
    """The manifest of the dump of *request*, of all tables of the pipeline or those of the patterns *tables*.

    The same dump gives the same manifest. Raises ConfigError for a dump that is not of a snapshot of TiDB, or can't be read by
    the options of *request*.
    """
    if request.consistency not in CONSISTENT:
        raise ConfigError(
            f"--consistency {request.consistency}: such a dump has rows of several moments, so no floor is right for it: rows "
            "would be lost, or come back. Dump again with --consistency snapshot, which is what auto means for TiDB"
        )
    request.dialect.check()
    selection = selected_tables(context.pipeline, tables)
    store = open_store(request.uri, dump_connection(context, request.uri))
    dump = survey(store, TablePatterns(selection), context.changefeed.dispatch)
    definitions = list(definitions_of(context, dump))
    _check_zone(request, definitions)
    window = Window(dump.metadata.snapshot_ts, dump.metadata.snapshot_ts + 1)
    content = canonical.encode(dump)
    digest = canonical.digest(content)
    name = f"dumps/{digest}.json"
    context.artifacts.put_once(name, content)
    files = PinnedFile(context.artifacts.uri(name), digest, sum(len(table.files) for table in dump.tables))
    manifest = Manifest(
        pipeline=context.pipeline.name,
        changefeed_hash=context.changefeed.hash,
        window=window,
        grade="proven",
        topics=(),
        tables=selection,
        base=BaseInput(dump.uri, files),
        pinned_at_ms=int(time.time() * 1000),
    )
    manifest_name = f"manifests/{manifest.input_hash}.json"
    reused = context.artifacts.info(manifest_name) is not None
    with contextlib.suppress(ArtifactExistsError):  # equal but for the moment of pinning
        context.artifacts.put_once(manifest_name, canonical.encode(manifest))
    return PinnedManifest(manifest, manifest_name, context.artifacts.uri(manifest_name), reused)


def definitions_of(context: ReplayContext, dump: Dump) -> Iterator[TableDefinition]:
    """The definitions of the tables of *dump* at its TSO, under the names that events carry. Raises ConfigError for one that is
    not understood."""
    for table in dump.tables:
        definition = definition_of(table, dump.metadata.snapshot_ts, context.changefeed.dispatch)
        schema_of(table, definition, context.changefeed.dispatch)
        yield definition


def _check_zone(request: SeedRequest, definitions: list[TableDefinition]) -> None:
    """Raise ConfigError if *request* names an unknown time zone, or none, and a table needs one."""
    if request.zone is not None:
        try:
            check_zone(request.zone)
        except ConfigError as error:
            raise ConfigError(str(error).replace("changefeed.timezone", "--timezone", 1)) from None
        return
    named = (
        f"{definition.name}.{column.name}"
        for definition in definitions
        for column in definition.columns
        if column.type.base == "timestamp"
    )
    found = next(named, None)
    if found is not None:
        raise ConfigError(
            f"--timezone: {found} is a TIMESTAMP, and Dumpling writes such in the time zone of its session, which no file says: "
            "@@global.time_zone of TiDB, or time_zone of Dumpling's --params. Name it, such as +00:00 or Asia/Shanghai"
        )


def dump_connection(context: ReplayContext, uri: str) -> Connection | None:
    """The connection of the store of the dump *uri*; None for a folder of this machine."""
    return None if uri.startswith("file:") else context.connections.get(context.pipeline.connections.dumps)
