"""The table of DDL in docs/targets.md is what the code does: each row has statements that are taken for its kind, and its
outcomes are those of the rules. What a mirror then does with them is in tests/integration/targets/test_ddl_outcomes.py.
"""

import json
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tests.support.changelogs import Changelog, put, table
from tests.support.ddl_outcomes import COLUMNS, CREATE, STATEMENTS, Statement, event_table
from tests.support.in_process import in_process
from ticdc_replay.config.target_rules import HISTORY, MIRROR
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.ddl_kinds import ChangeKind
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.changes import kind_of
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.targets.ddl import stopping_policies
from ticdc_replay.targets.load import load

RULES = {"mirror": MIRROR, "history": HISTORY}
TARGETS = (Path(__file__).resolve().parents[3] / "docs/targets.md").read_text(encoding="utf-8")
DDL = TARGETS[TARGETS.index("### DDL\n") : TARGETS.index("### Values that PostgreSQL")]
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|")) for line in re.findall(r"^\|.*\|$", DDL, re.MULTILINE)
]
OUTCOMES = [row for row in ROWS if len(row) == 4 and row[1].startswith("`")]
REMEDIES = {row[0].strip("`"): row[1] for row in ROWS if len(row) == 2 and row[0].startswith("`")}


def test_every_row_of_the_documents_has_statements_and_every_statement_a_row() -> None:
    assert {(row, kind.strip("`")) for row, kind, _, _ in OUTCOMES} == {(each.row, each.kind) for each in STATEMENTS}


@pytest.mark.parametrize(("row", "kind", "mirror", "files"), OUTCOMES)
def test_the_outcomes_in_the_documents_are_those_of_the_code(row: str, kind: str, mirror: str, files: str) -> None:
    rules = {target: rules[kind.strip("`")] for target, rules in RULES.items()}
    policy = rules["mirror"].policy
    assert mirror == rules["mirror"].outcome + (f", policy `{policy}`" if policy else ""), row
    assert files == rules["history"].outcome, row


def test_every_kind_has_an_outcome_for_every_target_and_what_stops_has_a_remedy() -> None:
    kinds = set(get_args(ChangeKind))
    assert {kind.strip("`") for _, kind, _, _ in OUTCOMES} == kinds
    for rules in RULES.values():
        assert set(rules) == kinds
    remedies = {kind: rule.remedy for kind, rule in RULES["mirror"].items() if rule.remedy}
    assert remedies == REMEDIES
    every = stopping_policies("stop", "apply", "apply")
    assert set(remedies) == {kind for kind, rule in RULES["mirror"].items() if rule.stops(every)}


def test_policies_stop_what_they_name() -> None:
    assert stopping_policies("apply", "apply", "apply") == frozenset()
    assert stopping_policies("apply", "stop", "apply") == {"truncate"}
    assert stopping_policies("apply", "apply", "stop") == {"drop"}
    assert stopping_policies("stop", "apply", "apply") == {"ddl", "truncate", "drop", "drop_column"}
    assert stopping_policies("apply", "apply", "apply", "stop") == {"drop_column"}
    assert stopping_policies("apply", "apply", "apply", "keep") == frozenset()


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.query)
def test_a_file_target_tells_each_ddl_of_a_table_beside_its_rows(tmp_path: Path, statement: Statement) -> None:
    before, after = table("shop.t", COLUMNS), table("shop.t", statement.columns, [statement.key], valid_from=150)
    changelog = Changelog(tmp_path, 100, 200).knows(definition_from_sql(TableName("shop", "t"), CREATE))
    query = statement.query.replace("{db}", "shop")
    changelog.ddl(150, query, table=event_table(statement, "shop"))
    changelog.rows(before, [put(110, id=1, v="a", u=1)]).rows(
        after, [put(160, **dict.fromkeys(statement.columns, None))]
    )
    lake = tmp_path / "lake"
    load(changelog.job({"type": "parquet", "name": "lake", "uri": lake.as_uri()}), Connections(), in_process)
    entry = json.loads((lake / "pipeline/current/schema=shop/table=t/window=100-200.json").read_bytes())
    written = changelog.write()
    names = (TableName("shop", "t"), TableName("shop", ""))
    told = [change for each in written.changes if each.table in names for change in each.changes]
    assert statement.kind in map(kind_of, told) or "VIEW" in statement.query
    assert sum(file["rows"] for file in entry["changelog"]) == 2
    if told and (statement.kind != "no_row_change" or "DATABASE" not in statement.query):
        assert [ddl["query"] for ddl in entry["ddl"]] == [query]
        assert sum(len(change["changes"]) for change in entry["changes"]) == len(told)
    ends = ("truncated", "dropped", "renamed_away", "table_created")
    assert entry["emptied_ts"] == (150 if statement.kind in ends else 0)
    moves = ("renamed_here", "recovered", "partition_emptied", "exchanged", "not_understood")
    assert entry["untold_ts"] == (150 if statement.kind in moves else 0)


def test_files_of_tables_that_decode_did_not_know_tell_that_their_database_was_dropped(tmp_path: Path) -> None:
    target = {"type": "parquet", "name": "lake", "uri": (tmp_path / "lake").as_uri()}
    rows = Changelog(tmp_path, 0, 100)
    for name in ("shop.t", "Shop.u", "other.t"):
        rows.rows(table(name, COLUMNS), [put(10, id=1, v="a", u=1)])
    load(rows.job(target), Connections(), in_process)
    dropped = Changelog(tmp_path, 100, 200).ddl(150, "DROP DATABASE shop", table="shop")
    report = load(dropped.job(target), Connections(), in_process)
    assert sorted(str(each.table) for each in report.tables) == ["Shop.u", "shop.t"]
    found = {
        path.parts[-3:-1]: json.loads(path.read_bytes())["emptied_ts"]
        for path in (tmp_path / "lake/pipeline/current").glob("*/*/window=100-200.json")
    }
    assert found == {("schema=shop", "table=t"): 150, ("schema=Shop", "table=u"): 150}
    again = load(dropped.job(target), Connections(), in_process)
    assert {each.outcome for each in again.tables} == {"done_before"}


def test_files_of_each_table_that_a_rename_may_be_of_tell_it(tmp_path: Path) -> None:
    query = "RENAME TABLE `t` TO `archive`.`t`"
    target = {"type": "parquet", "name": "lake", "uri": (tmp_path / "lake").as_uri()}
    rows = Changelog(tmp_path, 0, 100)
    for name in ("shop.t", "shop.u"):
        rows.rows(table(name, COLUMNS), [put(10, id=1, v="a", u=1)])
    load(rows.job(target), Connections(), in_process)
    load(Changelog(tmp_path, 100, 200).ddl(150, query, table="archive.t").job(target), Connections(), in_process)
    found = {
        path.parts[-3:-1]: json.loads(path.read_bytes())
        for path in (tmp_path / "lake/pipeline/current").glob("*/*/window=100-200.json")
    }
    assert set(found) == {("schema=shop", "table=t"), ("schema=archive", "table=t")}
    for entry in found.values():
        assert (entry["untold_ts"], entry["emptied_ts"]) == (150, 0)
        assert [ddl["query"] for ddl in entry["ddl"]] == [query]


def test_files_keep_telling_what_ddl_did_once_a_quarantine_of_the_window_was_decoded_again(tmp_path: Path) -> None:
    target = {"type": "parquet", "name": "lake", "uri": (tmp_path / "lake").as_uri()}
    rows = [put(110, id=1, v="a", u=1)]
    first = (
        Changelog(tmp_path, 100, 200)
        .rows(table("shop.t", COLUMNS), rows)
        .ddl(150, "TRUNCATE TABLE `T`", table="shop.t")
    )
    load(first.job(target), Connections(), in_process)
    redriven = Changelog(tmp_path, 100, 200, run="b").rows(table("shop.t", COLUMNS), [put(120, id=2, v="a", u=2)])
    job = redriven.job(target)
    index = msgspec.structs.replace(redriven.write(), redrives=first.run_hash)
    (tmp_path / job.index).write_bytes(canonical.encode(index))
    load(job, Connections(), in_process)
    entry = json.loads((tmp_path / "lake/pipeline/current/schema=shop/table=t/window=100-200.json").read_bytes())
    assert (len(entry["ddl"]), entry["emptied_ts"], sum(file["rows"] for file in entry["fold"])) == (1, 150, 2)
