"""Deletions on real S3 servers, and all that may go wrong there. Nothing that is needed is ever deleted, and what is, is told."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from demo.embedded_stack.s3 import S3Server
from tests.conftest import s3_client_of
from tests.support import s3_proxy
from tests.support.deletions import LOW, Scene, name, with_clock
from tests.support.s3_proxy import Refusal
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError, LeaseHeldError, PolicyStopError, TicdcReplayError, TransientError
from ticdc_replay.reconcile.delete.results import all_results, progress_of
from ticdc_replay.reconcile.delete.undo import undos_of
from ticdc_replay.store_stages.deletion import choose_plan, decide, execute, make_plan, undo

pytestmark = pytest.mark.integration

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture(params=["s3", "versitygw"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def proxy(server: S3Server) -> Iterator[s3_proxy.Proxy]:
    with s3_proxy.before(server) as found:
        yield found


@pytest.fixture(autouse=True)
def fewer_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_replay.storage.s3.bucket._ATTEMPTS", 3)


def connection(server: S3Server, endpoint: str) -> Connection:
    extra = {"endpoint_url": endpoint, "region_name": server.region}
    return Connection(conn_id="s3", conn_type="aws", login=server.access_key, password=server.secret_key, extra=extra)


def scene_of(server: S3Server, folder: Path, versions: bool) -> Scene:
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    client = s3_client_of(server)
    client.create_bucket(Bucket=bucket)
    if versions:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return Scene(folder, f"s3://{bucket}/claims", connection(server, server.endpoint))


@pytest.fixture
def scene(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield from with_clock(scene_of(server, tmp_path, versions=False), monkeypatch)


@pytest.fixture
def versioned(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield from with_clock(scene_of(server, tmp_path, versions=True), monkeypatch)


def test_what_no_message_needs_is_deleted_and_all_else_stays(scene: Scene) -> None:
    orphan, expired, needed, again, written = scene.put(1, 2, 3, 4, 5)
    scene.store.put("notes.txt", b"not TiCDC's")
    references = {expired: LOW - 1, needed: LOW + 1}
    plan = scene.plan(references).plan_hash
    scene.store.put(written, b"written again since")
    late = scene.put(6)
    audit = scene.execute(plan, {**references, again: LOW + 2})
    assert scene.names() == {needed, again, written, *late, "notes.txt"}
    assert audit.counts == {"deleted": 2, "withheld": 1, "altered": 1}
    outcomes = {result.name: result.outcome for result in scene.results(plan).values()}
    assert outcomes == {orphan: "deleted", expired: "deleted", again: "withheld", written: "altered"}


def test_a_deletion_in_a_bucket_with_versions_can_be_undone_under_any_policy(versioned: Scene) -> None:
    one, two, needed = versioned.put(1, 2, 3)
    plan = versioned.plan({needed: LOW}).plan_hash
    audit = versioned.execute(plan, {needed: LOW})
    assert (audit.counts, audit.undoable) == ({"deleted": 2}, 2)
    assert versioned.names() == {needed}
    versioned.write(policy="never")
    undone = undo(versioned.context, plan, "Ada", "one was needed", frozenset({one, name(77)}))
    assert (undone.restored, undone.not_undoable, versioned.names()) == (1, 1, {needed, one})
    undone = undo(versioned.context, plan, "Ada", "all were")
    assert (undone.restored, undone.without_marker, undone.failed) == (1, 1, 0)
    assert versioned.names() == {needed, one, two}
    assert versioned.store.get(one) == f"object {one}".encode()
    assert [record.person for record in undos_of(versioned.artifacts, plan)] == ["Ada", "Ada"]


def killed(scene: Scene, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute the plan up to where its first results would be written."""
    with monkeypatch.context() as patch:
        patch.setattr("ticdc_replay.reconcile.delete.execution.write_results", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            scene.execute(plan)


def test_what_a_killed_deletion_had_no_time_to_tell_is_undone_too(
    versioned: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set(versioned.put(1, 2, 3, 4))
    plan = versioned.plan().plan_hash
    killed(versioned, plan, monkeypatch)
    assert versioned.names() == {name(3), name(4)}
    decide(versioned.context, plan, False, "Ada", "wrong")
    undone = undo(versioned.context, plan, "Ada", "wrong", frozenset({name(2), name(3)}))
    assert (undone.restored, undone.not_undoable, versioned.names()) == (1, 1, names - {name(1)})
    assert undo(versioned.context, plan, "Ada", "wrong").restored == 1
    assert versioned.names() == names


def test_a_plan_whose_deletion_was_killed_is_not_executed_again_after_an_undo(
    versioned: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set(versioned.put(1, 2, 3))
    plan = versioned.plan().plan_hash
    with pytest.raises(ConfigError, match="has deleted nothing"):
        undo(versioned.context, plan, "Ada", "too early")
    killed(versioned, plan, monkeypatch)
    undo(versioned.context, plan, "Ada", "wrong")
    assert versioned.names() == names
    with pytest.raises(PolicyStopError, match="it was rejected"):
        versioned.execute(plan)
    assert choose_plan(versioned.context) is None
    assert versioned.names() == names


@pytest.mark.parametrize("server", ["s3"], indirect=True)  # the other one does not tell when a marker was set
@pytest.mark.parametrize("goes_on", [False, True])
def test_the_markers_of_others_stay_though_a_deletion_was_killed(
    versioned: Scene, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    versioned.write(rules={"clock_skew_seconds": 1})
    versioned.put(1, 2, 3)
    plan = versioned.plan().plan_hash
    time.sleep(1.1)  # a marker no younger, to the second, than what it hides counts as a deletion's: see Markers
    versioned.store.delete(name(1))
    versioned.store.delete(name(3))
    time.sleep(3)
    killed(versioned, plan, monkeypatch)
    if goes_on:
        assert versioned.execute(plan).counts == {"gone": 3}
        results = versioned.results(plan)
        assert results[name(1)].tried_before
        assert results[name(1)].marker is not None
    undone = undo(versioned.context, plan, "Ada", "wrong")
    assert (undone.restored, undone.not_undoable) == (1, 2 if goes_on else 0)
    assert versioned.names() == {name(2)}


def test_an_object_that_was_written_again_after_its_deletion_survives_the_undo(versioned: Scene) -> None:
    (one,) = versioned.put(1)
    plan = versioned.plan().plan_hash
    versioned.execute(plan)
    versioned.store.put(one, b"new")
    undo(versioned.context, plan, "Ada", "wrong")
    assert versioned.store.get(one) == b"new"


def test_the_version_that_was_planned_is_the_only_one_that_is_hidden(versioned: Scene) -> None:
    one, two = versioned.put(1, 2)
    plan = versioned.plan().plan_hash
    versioned.store.put(one, f"object {one}".encode())  # the same bytes, another version
    assert versioned.execute(plan).counts == {"deleted": 1, "altered": 1}
    assert versioned.names() == {one}
    assert two not in versioned.names()


def test_access_denied_on_some_keys_is_a_result_of_these_alone(scene: Scene, proxy: s3_proxy.Proxy) -> None:
    names = scene.put(*range(1, 9))
    plan = scene.plan().plan_hash
    denied = {names[2], names[6]}
    proxy.refuse = lambda method, path: (
        Refusal(403, "AccessDenied") if method == "DELETE" and path.split("?")[0].rpartition("/")[2] in denied else None
    )
    recheck = scene.recheck(plan)
    scene.connection = connection(proxy.server, proxy.endpoint)
    audit = execute(scene.context, plan, recheck)
    assert audit.counts == {"deleted": 6, "denied": 2}
    assert scene.names() == denied
    assert {trouble.name for trouble in audit.trouble} == denied


def test_a_storm_of_503_stops_a_deletion_which_goes_on_later(scene: Scene, proxy: s3_proxy.Proxy) -> None:
    names = set(scene.put(*range(1, 9)))
    plan = scene.plan().plan_hash
    recheck = scene.recheck(plan)
    scene.connection = connection(proxy.server, proxy.endpoint)
    asked: list[str] = []

    def storm(method: str, _path: str) -> Refusal | None:
        asked.append(method)
        return Refusal(503, "SlowDown") if asked.count("DELETE") > 3 else None

    proxy.refuse = storm
    with pytest.raises(TransientError):
        execute(scene.context, plan, recheck)
    before = scene.results(plan)
    proxy.refuse = lambda _method, _path: None
    assert scene.names() == names - set(before)
    assert 0 < len(before) < len(names)
    audit = execute(scene.context, plan, recheck)
    assert scene.names() == set()
    assert sum(audit.counts.values()) == len(names)
    assert before.items() <= scene.results(plan).items()


def test_answers_that_are_lost_are_told_apart_from_what_others_deleted(versioned: Scene, proxy: s3_proxy.Proxy) -> None:
    one, two, three = versioned.put(1, 2, 3)
    plan = versioned.plan().plan_hash
    recheck = versioned.recheck(plan)
    direct = versioned.connection
    versioned.connection = connection(proxy.server, proxy.endpoint)
    tried: list[str] = []
    deleted: list[str] = []

    def lose_answers(method: str, path: str) -> Refusal | None:
        if method != "DELETE":
            return None
        if not tried:  # whether the store heeds conditions, by an ETag that no object has
            tried.append(path)
            return None
        deleted.append(path)
        return Refusal(500, "InternalError", after=deleted.count(path) == 1)

    proxy.refuse = lose_answers
    with pytest.raises(TransientError):
        execute(versioned.context, plan, recheck)
    versioned.connection = direct
    assert versioned.names() == {three}  # a file of the plan has two objects here
    versioned.store.delete(three)
    audit = execute(versioned.context, plan, recheck)
    results = versioned.results(plan)
    assert [(results[each].outcome, results[each].tried_before) for each in (one, two, three)] == [
        ("gone", True),
        ("gone", True),
        ("gone", False),
    ]
    assert audit.undoable == 2
    assert undo(versioned.context, plan, "Ada", "wrong").restored == 2
    assert versioned.names() == {one, two}


def test_an_object_that_others_deleted_too_is_not_told_to_be_back(versioned: Scene) -> None:
    versioned.put(1)
    plan = versioned.plan().plan_hash
    versioned.execute(plan)
    versioned.store.put(name(1), b"in between")
    versioned.store.delete(name(1))
    undone = undo(versioned.context, plan, "Ada", "wrong")
    assert (undone.restored, undone.failed) == (0, 1)
    assert "another delete marker" in undone.failures[0]


CHILD = """
import sys, time
from pathlib import Path
from ticdc_replay.domain.connections import Connection
from ticdc_replay.reconcile.delete import deletion_plan as plans
from ticdc_replay.store_stages import deletion
from ticdc_replay.storage.s3.deletion import S3Deletion
from tests.support.deletions import Clock, Scene

folder, uri, endpoint, key, secret, region, plan, recheck, ahead = sys.argv[1:]
fields = {"endpoint_url": endpoint, "region_name": region}
known = Connection(conn_id="s3", conn_type="aws", login=key, password=secret, extra=fields)
scene = Scene(Path(folder), uri, known, Clock(int(ahead)))
scene.clock.set_program_clock(setattr)
deletion._THREADS = 2
right = S3Deletion.delete_unchanged

def slowly(store, expected):
    done = right(store, expected)
    print(expected.name, flush=True)
    time.sleep(0.05)
    return done

S3Deletion.delete_unchanged = slowly
deletion.execute(scene.context, plan, recheck)
"""


def test_a_deletion_that_is_killed_goes_on_and_each_object_has_one_result(
    versioned: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticdc_replay.reconcile.delete.deletion_plan.FILE_ROWS", 20)
    names = set(versioned.put(*range(1, 61)))
    needed = {name(30): LOW + 1}
    plan = versioned.plan().plan_hash
    recheck = versioned.recheck(plan, needed)
    assert versioned.connection is not None
    known = versioned.connection
    told = [
        str(versioned.folder), versioned.uri, known.extra["endpoint_url"], known.login, known.password,
        known.extra["region_name"], plan, recheck, str(versioned.clock.ahead_ms),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "include"), str(CHECKOUT)])}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, *map(str, told)], stdout=subprocess.PIPE, text=True, env=environment, cwd=CHECKOUT
    )
    assert child.stdout is not None
    for _ in range(27):  # the second file of the plan is under way
        assert child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    assert child.wait(PATIENCE_S) == -signal.SIGKILL
    killed = names - versioned.names()
    assert 27 <= len(killed) <= 40
    first = versioned.results(plan)
    assert len(first) == 20
    with pytest.raises(LeaseHeldError):  # nobody knows that it died
        execute(versioned.context, plan, recheck)
    expire_leases(versioned)
    audit = execute(versioned.context, plan, recheck)
    assert versioned.names() == {name(30)}
    rows = [found for part in all_results(versioned.artifacts, plan) for found in part]
    assert sorted(rows) == sorted(names)
    assert sum(audit.counts.values()) == len(names)
    gone = [found for found in versioned.results(plan).values() if found.outcome == "gone"]
    assert {found.name for found in gone} == killed - set(first)
    assert all(found.tried_before for found in gone)
    assert audit.undoable == len(names) - 1
    assert undo(versioned.context, plan, "Ada", "a test").restored == len(names) - 1
    assert versioned.names() == names


def expire_leases(scene: Scene) -> None:
    """What two minutes do."""
    from sqlalchemy import update

    from ticdc_replay.state import tables

    with scene.context.state._database.writing() as database:
        database.execute(update(tables.lease).values(expires_at_ms=int(time.time() * 1000) - 1))


def test_of_two_executions_at_once_one_deletes(scene: Scene) -> None:
    names = scene.put(*range(1, 41))
    needed = {names[7]: LOW}
    plan = scene.plan().plan_hash
    rechecks = [scene.recheck(plan, needed) for _ in range(4)]
    contexts = [scene.context for _ in rechecks]

    def attempt(number: int) -> str:
        try:
            return str(execute(contexts[number], plan, rechecks[number]).counts)
        except TicdcReplayError as error:
            return f"{type(error).__name__}: {error}"

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(attempt, range(4)))
    assert told.count("{'deleted': 39, 'withheld': 1}") + told.count("{'withheld': 1, 'deleted': 39}") == 1, told
    assert all("deleting there" in text or "executed" in text for text in told if "Error" in text), told
    assert scene.names() == {names[7]}
    assert sum(len(file.results) for file in progress_of(scene.artifacts, plan).values()) == 20


def test_a_plan_made_again_after_an_undo_has_to_be_approved_again(versioned: Scene) -> None:
    versioned.put(1)
    plan = versioned.plan().plan_hash
    versioned.execute(plan)
    undo(versioned.context, plan, "Ada", "wait")
    again = make_plan(versioned.context, versioned.reconcile({}))
    assert again is not None
    assert again.status == "open"
    assert decide(versioned.context, again.plan_hash, False, "Ada", "wait").status == "rejected"
    assert versioned.names() == {name(1)}
