"""Histories in databases while other loads, and second runs of tasks, are at the same rows."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import target_rigs
from tests.support.changelogs import Changelog, put, table
from tests.support.target_rigs import MysqlRig, PostgresRig
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.targets.history.load import HistoryAttempt
from ticdc_replay.targets.mysql.session import MysqlSession
from ticdc_replay.targets.mysql.stage import stage_history

pytestmark = pytest.mark.integration

ORDERS = table("shop.orders", {"id": ColumnType("int", declared=True), "v": ColumnType("text", declared=True)})


def test_a_second_run_of_a_task_changes_no_slice_that_is_written_in_parts(
    mysql_mirror: MysqlRig, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mysql_mirror.section |= {"mode": "history", "rows_per_commit": 1_000}
    tasks: list[Any] = []
    outcomes: list[object] = []
    run, commit = target_rigs.in_process, MysqlSession.commit_part

    def noting(work: Callable[..., Any], given: Sequence[Any], name: str) -> list[Any]:
        tasks.extend(given if work is stage_history else ())
        return run(work, given, name)

    def second_run() -> None:
        try:
            outcomes.append(stage_history(tasks[0]))
        except TransientError as error:
            outcomes.append(error)

    second = threading.Thread(target=second_run)

    def committed(session: MysqlSession) -> None:
        commit(session)
        if tasks and second.ident is None:
            second.start()
            second.join(2)  # it waits for the staging table, or has emptied it

    monkeypatch.setattr(target_rigs, "in_process", noting)
    monkeypatch.setattr(MysqlSession, "commit_part", committed)
    report = mysql_mirror.load_table(
        Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=number, v="x") for number in range(2_500)])
    )
    assert (report.outcome, report.upserted) == ("loaded", 2_500)
    assert mysql_mirror.rows("SELECT count(*) FROM shop.orders") == [(2_500,)]
    second.join(PATIENCE_S)
    assert len(outcomes) == 1


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_newer_run_empties_what_an_older_one_commits_beside_it(
    kind: str, request: pytest.FixtureRequest, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "postgres":
        rig: PostgresRig | MysqlRig = PostgresRig(request.getfixturevalue("make_database")())
    else:
        rig = MysqlRig(request.getfixturevalue("mysql_server"))
    rig.section |= {"mode": "history"}
    rig.load(Changelog(artifacts, 200, 300).rows(ORDERS, [put(210, id=9, v="other window")]))
    older = Changelog(artifacts, 0, 100, "older").rows(ORDERS, [put(10, id=1, v="old")])
    newer = Changelog(artifacts, 0, 100, "newer")
    looked, go = threading.Event(), threading.Event()
    look_again = HistoryAttempt._look_again

    def stalled(attempt: HistoryAttempt[Any], *arguments: Any) -> None:
        look_again(attempt, *arguments)
        if attempt.load.index.run_hash == older.run_hash:
            looked.set()
            go.wait(PATIENCE_S)

    monkeypatch.setattr(HistoryAttempt, "_look_again", stalled)
    loads = [
        threading.Thread(target=rig.load, args=(changelog,), kwargs={"generation": generation})
        for changelog, generation in ((older, 1), (newer, 2))
    ]
    loads[0].start()
    assert looked.wait(PATIENCE_S)
    loads[1].start()
    loads[1].join(2)
    go.set()
    for each in loads:
        each.join(PATIENCE_S)
    assert rig.rows("SELECT id, v FROM shop.orders") == [(9, "other window")]
