"""The changelog of a dump, once all of its files are read."""

from collections.abc import Sequence
from operator import attrgetter

from ticdc_replay.changelog.files.index import (
    ChangelogIndex,
    DecodeReport,
    EventCounts,
    MessageCounts,
    TableVersion,
)
from ticdc_replay.changelog.files.version_files import VersionFile, table_versions
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.resolve import ResolvedSchema


def assemble(
    *,
    pipeline: str,
    run_hash: str,
    input_hash: str,
    library_version: str,
    window: Window,
    base: str,
    contents: dict[str, str],
    selection: tuple[str, ...],
    schemas: Sequence[ResolvedSchema],
    files: Sequence[VersionFile],
) -> ChangelogIndex:
    """The index of *files*, with all tables of *schemas*: those without files are empty. *base* is the dump's URI,
    *contents* are the index's."""
    tables = table_versions(((file, file.file) for file in files), order=attrgetter("name"))
    filled = {version.schema.name for version in tables}
    empty = [
        TableVersion(each.schema, each.version, each.declared, (), 0)
        for each in schemas
        if each.schema.name not in filled
    ]
    rows = sum(version.rows for version in tables)
    unkeyed = sum(version.rows for version in tables if not version.schema.handle_key)
    return ChangelogIndex(
        pipeline=pipeline,
        run_hash=run_hash,
        input_hash=input_hash,
        library_version=library_version,
        window=window,
        ranges=(),
        tables=tuple(sorted((*tables, *empty), key=lambda version: (version.schema.name, version.version))),
        ddl=(),
        unread_ddl=(),
        changes=(),
        quarantine_files=(),
        reference_files=(),
        sparse_index_files=(),
        unsearched=(),
        search=SEARCH,
        selection=selection,
        base=base,
        contents=contents,
        report=DecodeReport(
            messages=MessageCounts(),
            events=EventCounts(rows=rows, written=rows, unkeyed=unkeyed),
            quarantine_reasons={},
            watermark=None,
            undeclared_tables=tuple(sorted({str(each.schema.name) for each in schemas if not each.declared})),
        ),
    )
