"""``ticdc-replay trace``: where the versions of one row are, and what became of each."""

from typing import Annotated

import typer
from rich.table import Table

from ticdc_replay.cli.mirror_names import UpstreamTable, table_name
from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, opened
from ticdc_replay.cli.terminal import print_json, say, table, wide_terminal
from ticdc_replay.domain import tso
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.trace.changelogs import Unread
from ticdc_replay.stages.trace.fates import Fate
from ticdc_replay.stages.trace.row_key import parse
from ticdc_replay.stages.trace.trace import ChangelogPlace, Trace, TracedTarget, TracedVersion, trace

EXIT_MISSING = 1
"""A target lacks a version that it should have."""


def trace_command(
    pipeline: PipelineFile,
    upstream_table: UpstreamTable,
    key: Annotated[
        list[str], typer.Option("--key", help="A column of the key and its value, such as id=7; once for each column")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON")] = False,
    connections: ConnectionsFile = None,
) -> None:
    """Show where the versions of one row are: in Kafka, changelogs, quarantine and targets, and what became of each.

    Reads changelogs, not Kafka. Changes nothing. Exit code 1 where a target lacks a version that it should have.
    """
    texts = parse(key)
    with opened(pipeline, connections) as context:
        found = trace(context, table_name(upstream_table), texts)
    if json:
        print_json(found)
    else:
        _show(found)
    if found.is_missing:
        raise typer.Exit(EXIT_MISSING)


def _show(found: Trace) -> None:
    say(f"{found.table}, {', '.join(f'{name} = {text}' for name, text in found.key.items())}")
    now = table("target", "where", "has now")
    for target in found.targets:
        now.add_row(target.target, target.row.where, _has_now(target))
    _print(now)
    if found.versions:
        _show_versions(found)
    else:
        say(f"no version of the row is in the {found.changelogs_read} changelogs that were read")
    _show_set_aside(found)
    _show_doubts(found)


def _show_versions(found: Trace) -> None:
    numbers: dict[tuple[Window, str], int] = {}
    versions, files = table("version", "message", "file", "targets"), table("file", "window", "name", "copies dropped")
    for version in found.versions:
        messages: dict[str, None] = {}
        used: list[str] = []
        for place in version.changelogs:
            messages |= dict.fromkeys(_messages(place))
            file = place.window, place.file
            if file not in numbers:
                numbers[file] = len(numbers) + 1
                cells = str(place.window), place.file, f"{place.dropped_copies} in the run, of all rows"
                files.add_row(str(numbers[file]), *cells)
            used.append(str(numbers[file]))
        moment, targets = f"{version.operation} {_moment(version)}", "\n".join(map(_fate, version.fates))
        versions.add_row(moment, "\n".join(messages), ", ".join(used), targets)
    _print(versions)
    _print(files)


def _show_set_aside(found: Trace) -> None:
    if found.set_aside:
        aside = table("in quarantine", "message", "window", "status", "reason")
        for each in found.set_aside:
            accepted = f" by {each.accepted_by}: {each.accepted_why}" if each.accepted_by is not None else ""
            moment = "no commitTs" if each.commit_ts is None else tso.describe(each.commit_ts)
            claim = f"\nclaim check {each.object_name}" if each.object_name else ""
            aside.add_row(
                f"{each.operation}\n{moment}",
                f"{each.place}{claim}",
                f"{each.window}\nrun {each.run_hash}",
                f"{each.status}{accepted}",
                f"{each.reason}: {each.detail}",
            )
        _print(aside)
    for unknown in found.unknown:
        reasons = ", ".join(f"{number} × {reason}" for reason, number in unknown.reasons.items())
        say(
            f"may hold versions of the row: {unknown.of_table} entries of the table and {unknown.of_unknown_table} of an unknown "
            f"table in the quarantine of window {unknown.window}, run {unknown.run_hash} ({reasons})"
        )


def _show_doubts(found: Trace) -> None:
    for version in found.versions:
        if version.is_split:
            say(
                f"{_moment(version)}: half of an UPDATE that changed the key. The row also has versions with another key, which "
                "are not shown"
            )
    for columns in found.other_keys:
        say(
            f"not looked at: rows that are identified by {', '.join(columns) or 'no key'}, of other versions of the table"
        )
    whys: dict[str, list[Unread]] = {}
    for unread in found.unread:
        whys.setdefault(unread.why, []).append(unread)
    for why, windows in whys.items():
        first = f"window {windows[0].window}, run {windows[0].run_hash}"
        say(f"not looked at: {first if len(windows) == 1 else f'{len(windows)} windows, the first is {first}'}: {why}")


def _has_now(target: TracedTarget) -> str:
    row = target.row
    floor = f"\nfloor {tso.describe(row.floor_ts)}" if row.floor_ts else ""
    if row.not_looked:
        return row.not_looked + floor
    if row.version is None:
        return f"neither the row nor its delete{floor}"
    number = tso.describe(row.version) if row.order == "commit_ts" else f"place {row.version}"
    return f"{'deleted, ' if row.is_deleted else ''}version {number}{floor}"


def _moment(version: TracedVersion) -> str:
    return f"place {version.version}" if version.commit_ts is None else tso.describe(version.commit_ts)


def _messages(place: ChangelogPlace) -> list[str]:
    lines = [str(place.place)]
    if place.claim_check is not None:
        lines.append(f"claim check {place.claim_check.object_name}")
    return [*lines, *(f"dropped copy {each.place}, claim check {each.object_name}" for each in place.other_references)]


def _fate(fate: Fate) -> str:
    return f"{fate.target}: {fate.fate}{f' ({fate.detail})' if fate.detail else ''}"


def _print(shown: Table) -> None:
    wide_terminal().print(shown)
