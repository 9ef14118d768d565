"""Of attempts that decode one changelog at a time the first to commit wins, and the others give way."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier, Event
from uuid import UUID

import msgspec
import pytest

from tests.support.changelogs import table
from tests.support.decoded_captures import LIMITS
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files import side_files
from ticdc_replay.changelog.files.index import (
    ChangelogIndex,
    DataFile,
    DecodeReport,
    EventCounts,
    MessageCounts,
    TableVersion,
)
from ticdc_replay.changelog.files.side_files import SideFile
from ticdc_replay.decode.plan.changelog_store import ChangelogStore
from ticdc_replay.decode.plan.tasks import Attempt
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError, TransientError
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.snapshot.manifest import Manifest, PinnedFile
from ticdc_replay.storage import open_store

WINDOW = Window(100, 200)
OBJECT = f"{UUID(int=1)}.json"


@pytest.fixture
def job(tmp_path: Path) -> DecodeJob:
    return DecodeJob(
        library_version="1",
        pipeline="p",
        artifacts=tmp_path.as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest="manifests/m.json",
        input_hash="i" * 64,
        changefeed=Changefeed(protocol="open-protocol", topic="topic", timezone="UTC"),
        tables=("s.*",),
        limits=LIMITS,
    )


@pytest.fixture
def store(job: DecodeJob) -> ChangelogStore:
    return ChangelogStore.open(job, Connections())


def decode(store: ChangelogStore, job: DecodeJob, attempt: Attempt, content: str = "content") -> ChangelogIndex:
    """What a decode leaves: references that are in the index, keys that are not."""
    filesystem, root = store.arrow_root()
    for name in ("references", "keys"):
        file = SideFile(filesystem, root, f"{name}/{attempt.id}-00000-0.parquet", side_files.REFERENCES)
        sha256 = hashlib.sha256(content.encode()).hexdigest()
        file.add(
            ("t", 0, 0, 0, 150, "s", "t", f"/{OBJECT}", OBJECT, "used", content, len(content), sha256, 0, None, None)
        )
        file.close()
    return ChangelogIndex(
        pipeline="p",
        run_hash=job.run_hash,
        input_hash=job.input_hash,
        library_version=job.library_version,
        window=WINDOW,
        ranges=(),
        tables=(),
        ddl=(),
        changes=(),
        quarantine_files=(),
        reference_files=(f"references/{attempt.id}-00000-0.parquet",),
        sparse_index_files=(),
        report=DecodeReport(
            messages=MessageCounts(),
            events=EventCounts(),
            quarantine_reasons={},
            watermark=None,
            undeclared_tables=(),
        ),
    )


def files(job: DecodeJob, folder: str) -> list[str]:
    return [entry.name for entry in open_store(job.artifacts).list(f"{folder}/")]


def test_the_winner_leaves_what_its_index_names(store: ChangelogStore, job: DecodeJob) -> None:
    decode(store, job, Attempt("killed"))
    attempt = Attempt("a")
    index = store.complete(attempt, lambda: decode(store, job, attempt))
    assert store.index() == index
    assert files(job, store.root) == [f"{store.root}/index.json", f"{store.root}/{index.reference_files[0]}"]


@pytest.mark.parametrize("contents", [("same", "same"), ("first", "other")])
def test_of_attempts_that_commit_at_once_one_wins_and_all_return_its_index(
    job: DecodeJob, contents: tuple[str, str]
) -> None:
    together = Barrier(4, timeout=PATIENCE_S)

    def run(number: int) -> ChangelogIndex:
        store, attempt = ChangelogStore.open(job, Connections()), Attempt(f"{number:08x}")

        def work() -> ChangelogIndex:
            index = decode(store, job, attempt, contents[number % 2])
            together.wait()
            return index

        return store.complete(attempt, work)

    with ThreadPoolExecutor(4) as pool:
        indexes = list(pool.map(run, range(4)))
    store = ChangelogStore.open(job, Connections())
    assert indexes == [store.index()] * 4
    assert files(job, store.root) == [f"{store.root}/index.json", f"{store.root}/{indexes[0].reference_files[0]}"]


def test_an_attempt_that_was_slower_shows_no_stack(
    store: ChangelogStore, job: DecodeJob, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        for name in ("fast", "slow"):
            attempt = Attempt(name)
            store.complete(attempt, partial(decode, store, job, attempt, name))
    assert f"another attempt has completed changelog {job.run_hash}" in caplog.text
    assert "Traceback" not in caplog.text


def interrupted(store: ChangelogStore, job: DecodeJob, finish: Callable[[], ChangelogIndex]) -> ChangelogIndex:
    """The result of an attempt that has written its files and goes on with *finish* after another has committed."""
    written, committed = Event(), Event()
    slow, fast = Attempt("slow"), Attempt("fast")

    def work() -> ChangelogIndex:
        decode(store, job, slow)
        written.set()
        assert committed.wait(PATIENCE_S)
        return finish()

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(store.complete, slow, work)
        assert written.wait(PATIENCE_S)
        winner = store.complete(fast, lambda: decode(store, job, fast))
        committed.set()
        assert result.result(PATIENCE_S) == winner
    assert files(job, store.root) == [f"{store.root}/index.json", f"{store.root}/references/fast-00000-0.parquet"]
    return winner


def test_an_attempt_whose_files_the_winner_deleted_gives_way(store: ChangelogStore, job: DecodeJob) -> None:
    def finish() -> ChangelogIndex:
        filesystem, root = store.arrow_root()
        filesystem.open_input_file(f"{root}/keys/slow-00000-0.parquet")
        raise AssertionError("the file should be gone")

    interrupted(store, job, finish)


def test_an_attempt_that_writes_more_after_the_winner_removes_it(store: ChangelogStore, job: DecodeJob) -> None:
    interrupted(store, job, lambda: decode(store, job, Attempt("slow")))


def test_a_failure_is_raised_where_no_changelog_is_there(store: ChangelogStore, job: DecodeJob) -> None:
    def fail() -> ChangelogIndex:
        raise TransientError("Kafka is away")

    with pytest.raises(TransientError, match="Kafka is away"):
        store.complete(Attempt("a"), fail)


def test_a_lost_changelog_can_be_decoded_again_although_it_uses_other_objects(
    store: ChangelogStore, job: DecodeJob
) -> None:
    first, second = Attempt("first"), Attempt("second")
    store.complete(first, lambda: decode(store, job, first, "one"))
    artifacts = open_store(job.artifacts)
    for name in files(job, "runs"):
        artifacts.delete(name)
    index = store.complete(second, lambda: decode(store, job, second, "two"))
    assert store.index() == index


def test_what_is_gone_of_a_changelog_is_noticed_whatever_it_is(store: ChangelogStore, job: DecodeJob) -> None:
    schema = table("s.t", {"id": ColumnType("int", declared=True)})
    whole = msgspec.structs.replace(
        decode(store, job, Attempt("a")),
        tables=(TableVersion(schema, "v", True, (DataFile("data/d.parquet", 1, 1, 150, 150),), 1),),
        quarantine_files=("quarantine/q.parquet",),
        sparse_index_files=("sparse_index/s.parquet",),
    )
    artifacts = open_store(job.artifacts)
    for name in whole.files():
        artifacts.put(f"{store.root}/{name}", b"content")
    assert store.lost(whole) == []
    names = ["data/d.parquet", "quarantine/q.parquet", "references/a-00000-0.parquet", "sparse_index/s.parquet"]
    for number, name in enumerate(names, 1):
        artifacts.delete(f"{store.root}/{name}")
        assert store.lost(whole) == names[:number]


def test_a_changelog_that_is_not_whole_any_more_is_completed_anew(store: ChangelogStore, job: DecodeJob) -> None:
    old, new = Attempt("old"), Attempt("new")
    broken = store.complete(old, lambda: decode(store, job, old))
    store.discard(broken)
    assert store.index() is None
    assert files(job, store.root) == [f"{store.root}/{broken.reference_files[0]}"]
    index = store.complete(new, lambda: decode(store, job, new))
    assert files(job, store.root) == [f"{store.root}/index.json", f"{store.root}/{index.reference_files[0]}"]


def test_what_another_attempt_has_made_anew_is_not_discarded(store: ChangelogStore, job: DecodeJob) -> None:
    old, fast, slow = Attempt("old"), Attempt("fast"), Attempt("slow")
    broken = store.complete(old, lambda: decode(store, job, old))
    store.discard(broken)
    index = store.complete(fast, lambda: decode(store, job, fast))
    store.discard(broken)
    assert store.index() == index
    assert store.complete(slow, lambda: decode(store, job, slow)) == index
    assert files(job, store.root) == [f"{store.root}/index.json", f"{store.root}/{index.reference_files[0]}"]


def test_a_schema_of_the_registry_must_stay_what_a_run_of_the_input_used(store: ChangelogStore, job: DecodeJob) -> None:
    def using(store: ChangelogStore, job: DecodeJob, **schemas: str) -> ChangelogIndex:
        attempt = Attempt(job.library_version)
        index = msgspec.structs.replace(decode(store, job, attempt), writer_schemas=schemas)
        return store.complete(attempt, lambda: index)

    using(store, job, one="a" * 64, two="b" * 64)
    for version, hashes in (("2", {"one": "a" * 64}), ("3", {"two": "b" * 64, "three": "c" * 64})):
        newer = msgspec.structs.replace(job, library_version=version)
        using(ChangelogStore.open(newer, Connections()), newer, **hashes)
    changed = msgspec.structs.replace(job, library_version="4")
    with pytest.raises(ArtifactCorruptError, match="schema three of the registry is not the one"):
        using(ChangelogStore.open(changed, Connections()), changed, three="d" * 64)


def manifest(inventory: PinnedFile | None = None) -> Manifest:
    return Manifest(
        pipeline="p",
        changefeed_hash="",
        window=WINDOW,
        grade="proven",
        topics=(),
        inventory=inventory,
        pinned_at_ms=0,
    )


def test_what_a_run_used_is_known_to_runs_of_another_library_on_the_same_input_only(
    store: ChangelogStore, job: DecodeJob
) -> None:
    assert store.known_objects(manifest()) == ()
    attempt = Attempt("a")
    store.complete(attempt, lambda: decode(store, job, attempt))
    newer = msgspec.structs.replace(job, library_version="2")
    assert newer.run_hash != job.run_hash
    (known,) = ChangelogStore.open(newer, Connections()).known_objects(manifest())
    assert known.startswith(f"{store.arrow_root()[1].removesuffix(store.root)}used/{job.input_hash}/")
    other = msgspec.structs.replace(job, input_hash="o" * 64)
    assert ChangelogStore.open(other, Connections()).known_objects(manifest()) == ()


def test_an_inventory_is_read_only_as_it_was_pinned(store: ChangelogStore, job: DecodeJob) -> None:
    digest = canonical.digest(b"inventory")
    artifacts = open_store(job.artifacts)
    name = f"inventories/{digest}.parquet"
    pinned = manifest(PinnedFile(artifacts.uri(name), digest, 1))
    with pytest.raises(ArtifactNotFoundError, match="repin"):
        store.known_objects(pinned)
    artifacts.put(name, b"inventory")
    assert store.known_objects(pinned)[0].endswith(name)
    artifacts.put(name, b"edited")
    with pytest.raises(ArtifactCorruptError, match="repin"):
        store.known_objects(pinned)
