"""DDL lines against the DDL that happened."""

import re

from tests.expected.wire import Json, Wire

_RENAME_TABLE, _EXCHANGE_PARTITION, _RENAME_TABLES, _CREATE_TABLES = 14, 42, 47, 60

_TEXTS = {
    "CREATE": {3},
    "RENAME": {_RENAME_TABLE, _RENAME_TABLES},
    "CINDEX": {7, 9, 32},
    "DINDEX": {8, 10, 33},
    "ERASE": {4},
    "TRUNCATE": {11},
    "ALTER": {5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 41, 61, 64, 71, 72},
}
"""Canal-JSON and Simple: the text of an action."""

_CHANGES = {
    "CREATE": {1, 3, 21, 60},
    "DROP": {2, 4, 8, 11, 24},
    "ALTER": {5, 6, 7, 12, 13, 14, 15, 17, 18, 19, 20, 22, 23, 26, 32, 33, 41, 42, 47, 61, 64, 71, 72},
}
"""Debezium: the type of the table change."""


def compare_ddl(lines: list[Json], expected: list[Json], deviations: Json, wire: Wire) -> list[str]:
    """What is wrong with *lines*, all DDL lines of a capture."""
    wanted = {event["seq"]: event for event in expected if event["type"] == "ddl"}
    problems = []
    seen: set[int] = set()
    for line in lines:
        found = [seq for seq, event in wanted.items() if _same_ddl(line, event, wire)]
        if not found:
            problems.append(f"DDL of no expected event: {line}")
        fresh = [seq for seq in found if seq not in seen]
        seen.update((fresh or found)[:1])
    missing = wanted.keys() - seen
    if len(missing) > deviations["expected_ddl_not_on_wire"]:
        problems.append(f"expected DDL that was not decoded: {[wanted[seq]['query'] for seq in sorted(missing)]}")
    if wire.ddl_in_first_partition and any(line["partition"] != 0 for line in lines):
        problems.append("DDL outside of partition 0")
    return problems


def _same_ddl(line: Json, event: Json, wire: Wire) -> bool:
    carried = not wire.canal or wire.changefeed.enable_tidb_extension
    if line["commit_ts"] != (event["commit_ts"] if carried else None):
        return False
    hint, code = event.get("wire_query_hint"), event["action_code"]
    if hint is not None:
        code = _RENAME_TABLE
        if _plain(line["query"]) != _plain(hint):
            return False
    if line["type"] not in _types(code, line, wire):
        return False
    verb = event["query"].split()[0].upper()
    return bool(line["query"].startswith(verb)) and _same_names(line, event, wire)


def _types(code: int, line: Json, wire: Wire) -> set[int | str]:
    if wire.canal or wire.simple:
        texts: set[int | str] = {text for text, codes in _TEXTS.items() if code in codes}
        if code in (37, 38) and wire.canal:
            texts = {"ALTER"}
        if code == _EXCHANGE_PARTITION and wire.simple and wire.new:
            texts = {"ALTER"}
        if code == _CREATE_TABLES:
            texts = {"QUERY", "CREATE"}
        return texts or {"QUERY"}
    if wire.changefeed.protocol == "debezium":
        # Statements on databases and TRUNCATE have no table change, so the wire does not say their type.
        changes: set[int | str] = {text for text, codes in _CHANGES.items() if code in codes}
        return changes | {""}
    return {code}


def _same_names(line: Json, event: Json, wire: Wire) -> bool:
    names = (line["schema"], line["table"].lower())
    if wire.simple and names == ("", ""):
        return bool(event["table"] == "")  # only the statement names a database
    if event["action_code"] in (_RENAME_TABLE, _RENAME_TABLES, _EXCHANGE_PARTITION):
        # A rename names the new table; for EXCHANGE PARTITION the architectures name different ones of the two.
        return bool(names[1] in line["query"].lower())
    return bool(names == (event["schema"], event["table"].lower()))


def _plain(query: str) -> str:
    return re.sub(r"\s+", " ", query.rstrip("; ")).lower()
