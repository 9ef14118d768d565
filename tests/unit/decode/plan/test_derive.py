"""A window out of other changelogs: the rows, the DDL and the quarantine of that window, and nothing copied."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.changelogs import Changelog, delete, put, table
from tests.support.decoded_captures import LIMITS
from tests.support.examples import examples
from tests.support.in_process import in_process
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.copies.cover import Candidate, choose
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.reading import read_rows
from ticdc_replay.changelog.files.side_files import QUARANTINE
from ticdc_replay.decode.plan.changelog_store import ChangelogStore
from ticdc_replay.decode.plan.derive import TakenChangelog, derive
from ticdc_replay.decode.plan.tasks import Attempt
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError, PermanentError
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.messages import EventPlace, OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.unread import UnreadDdl
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource
from ticdc_replay.storage import open_store
from ticdc_replay.targets.load import load

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
ITEMS = table("shop.items", {"id": INT})


class Derivation:
    """A window that is derived below *folder*, the pipeline's artefacts, with *tables* wanted."""

    def __init__(self, folder: Path, window: Window, tables: tuple[str, ...] = ("*.*",)) -> None:
        manifest = Manifest(
            pipeline="pipeline", changefeed_hash="c", window=window, grade="proven", topics=(), pinned_at_ms=0
        )
        self.folder, self.manifest = folder, manifest
        self.job = DecodeJob(
            library_version="0",
            pipeline="pipeline",
            artifacts=folder.as_uri(),
            artifacts_connection=None,
            kafka_connection="kafka",
            claim_check_connection=None,
            manifest="manifests/m.json",
            input_hash=canonical.hash_of(window),
            changefeed=Changefeed(protocol="open-protocol", topic="topic", timezone="UTC"),
            tables=tables,
            limits=LIMITS,
        )
        self.store = ChangelogStore.open(self.job, Connections())

    def of(self, parts: Sequence[tuple[ChangelogIndex, Window]]) -> ChangelogIndex:
        sources = [(ManifestSource(index.run_hash, canonical.hash_of(index), window), index) for index, window in parts]
        taken = [TakenChangelog(source, self.store.source(source)) for source, _ in sources]
        attempt = Attempt("a")
        work = partial(derive, self.job, self.manifest, taken, attempt, *self.store.arrow_artifacts(), in_process)
        return self.store.complete(attempt, work)


def rows(folder: Path, index: ChangelogIndex, table: str = "orders") -> list[tuple[Any, ...]]:
    found = []
    for batch in read_rows(open_store(folder.as_uri()), index, ["shop." + table]):
        for row in batch.rows.to_pylist():
            image = row["after"] or row["before"]
            found.append((row["_commit_ts"], row["_op"], *image.values()))
    return sorted(found)


def changelog(folder: Path, start: int, end: int, run: str = "a") -> Changelog:
    """One row version at each moment of the window, in three files of several row groups."""
    versions = [put(at, id=at % 7, v=f"{at}") for at in range(start, end)]
    return Changelog(folder, start, end, run).rows(ORDERS, versions, files=3)


@settings(max_examples=examples(0.25))
@given(data=st.data())
def test_whatever_overlaps_each_row_version_is_derived_exactly_once(tmp_path_factory: Any, data: Any) -> None:
    folder = tmp_path_factory.mktemp("artifacts")
    spans = st.tuples(st.integers(0, 40), st.integers(1, 30)).map(lambda pair: Window(pair[0], sum(pair)))
    windows = data.draw(st.lists(spans, min_size=1, max_size=4, unique=True))
    indexes = {index.run_hash: index for index in (changelog(folder, w.from_ts, w.to_ts).write() for w in windows)}
    ages = data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
    known = [
        Candidate(index.run_hash, index.window, "proven", False, age)
        for index, age in zip(indexes.values(), ages, strict=False)
    ]
    wanted = data.draw(spans)
    cover = choose(wanted, known)
    parts = [(indexes[part.candidate.run_hash], part.window) for part in cover.parts]
    index = Derivation(folder, wanted).of(parts)
    times = [commit_ts for commit_ts, *_ in rows(folder, index)]
    assert times == [at for at in range(wanted.from_ts, wanted.to_ts) if any(at in each for each in windows)]
    assert index.report.events.written == len(times) == sum(version.rows for version in index.tables)


def test_files_stay_where_they_are_and_nothing_is_read_where_a_file_is_whole_inside(tmp_path: Path) -> None:
    source = changelog(tmp_path, 0, 30).write()
    derived = Derivation(tmp_path, Window(0, 40)).of([(source, Window(0, 30))])
    (version,) = derived.tables
    assert [(file.run, file.only, file.rows) for file in version.files] == [(source.run_hash, None, 10)] * 3
    assert [entry.name for entry in open_store(tmp_path.as_uri()).list(f"{changelog_root(derived.run_hash)}/")] == [
        f"{changelog_root(derived.run_hash)}/index.json"
    ]
    assert derived.derived == (ManifestSource(source.run_hash, canonical.hash_of(source), Window(0, 30)),)


def test_a_target_gets_of_a_derived_window_what_it_would_get_of_a_decoded_one(tmp_path: Path) -> None:
    whole = changelog(tmp_path, 0, 60).rows(ORDERS, [delete(25, id=3), delete(45, id=4)]).write()
    derived = Derivation(tmp_path, Window(20, 40)).of([(whole, Window(20, 40))])
    decoded = Changelog(tmp_path, 20, 40, run="direct").rows(
        ORDERS, [*(put(at, id=at % 7, v=f"{at}") for at in range(20, 40)), delete(25, id=3)]
    )
    contents = []
    for index in (derived, decoded.write()):
        lake = tmp_path / f"lake-{index.run_hash[:6]}"
        job = decoded.job({"type": "parquet", "name": "lake", "uri": lake.as_uri()})
        job = msgspec.structs.replace(
            job, run_hash=index.run_hash, index=f"{changelog_root(index.run_hash)}/index.json"
        )
        report = load(job, Connections(), in_process)
        (orders,) = report.tables
        counts = (orders.events, orders.keys, orders.folded, orders.upserted, orders.tombstones)
        kinds = {
            kind: sorted(
                repr((row["_commit_ts"], row["_op"], row["before"], row["after"]))
                for path in lake.glob(f"pipeline/{kind}/**/*.parquet")
                for row in pq.read_table(path, partitioning=None).to_pylist()
            )
            for kind in ("changelog", "fold")
        }
        contents.append((counts, kinds))
    assert contents[0] == contents[1]


def test_ddl_and_its_changes_are_those_of_the_window(tmp_path: Path) -> None:
    source = changelog(tmp_path, 0, 30).ddl(5, "ALTER TABLE orders COMMENT 'a'").ddl(15, "DROP TABLE orders").write()
    derived = Derivation(tmp_path, Window(10, 20)).of([(source, Window(10, 20))])
    assert [ddl.commit_ts for ddl in derived.ddl] == [15]
    assert {change.commit_ts for change in derived.changes} == {15}


def test_ddl_that_a_source_could_not_read_is_told_where_it_may_concern_the_window(tmp_path: Path) -> None:
    first, second = (changelog(tmp_path, start, start + 20, run).write() for start, run in ((0, "a"), (20, "b")))
    gaps = [UnreadDdl("topic", 0, at, after=at, until=at + 2) for at in (5, 19, 22)]

    def with_unread(index: ChangelogIndex, *unread: UnreadDdl) -> ChangelogIndex:
        told = msgspec.structs.replace(index, unread_ddl=unread)
        open_store(tmp_path.as_uri()).put(f"{changelog_root(index.run_hash)}/index.json", canonical.encode(told))
        return told

    parts = [(with_unread(first, *gaps[:2]), Window(0, 19)), (with_unread(second, gaps[2]), Window(20, 40))]
    assert Derivation(tmp_path, Window(0, 40)).of(parts).unread_ddl == (gaps[0], gaps[2])
    by_an_earlier_version = changelog(tmp_path, 40, 60, "c").write()
    parts.append((by_an_earlier_version, Window(40, 60)))
    assert Derivation(tmp_path, Window(0, 60)).of(parts).unread_ddl is None


def test_what_is_derived_is_searched_no_better_than_any_of_its_sources(tmp_path: Path) -> None:
    now, second = (changelog(tmp_path, start, start + 20, run).write() for start, run in ((0, "a"), (20, "b")))
    earlier = msgspec.structs.replace(second, search=0)
    open_store(tmp_path.as_uri()).put(f"{changelog_root(earlier.run_hash)}/index.json", canonical.encode(earlier))
    assert Derivation(tmp_path, Window(0, 20)).of([(now, Window(0, 20))]).search == SEARCH
    both = [(now, Window(0, 20)), (earlier, Window(20, 40))]
    assert Derivation(tmp_path, Window(0, 40)).of(both).search == 0


def test_a_place_counts_as_set_aside_where_every_source_that_read_it_did_so(tmp_path: Path) -> None:
    places = [EventPlace("topic", 0, offset) for offset in range(5)]

    def decoded(index: ChangelogIndex, end: int, named: list[EventPlace], idle: list[EventPlace]) -> ChangelogIndex:
        told = msgspec.structs.replace(
            index,
            ranges=(OffsetRange("topic", 0, 0, end),),
            set_aside=tuple(named),
            report=msgspec.structs.replace(index.report, idle_places=tuple(idle)),
        )
        open_store(tmp_path.as_uri()).put(f"{changelog_root(index.run_hash)}/index.json", canonical.encode(told))
        return told

    first = decoded(changelog(tmp_path, 0, 20).write(), 5, places, [places[0], places[1], places[4]])
    second = decoded(changelog(tmp_path, 20, 40, "b").write(), 4, places[:3], [places[0], places[2]])
    derived = Derivation(tmp_path, Window(0, 40)).of([(first, Window(0, 20)), (second, Window(20, 40))])
    assert derived.set_aside == (*places[:3], places[4]), "the second one read the fourth place and did not know of it"
    assert derived.report.idle_places == (places[0], places[4])


def test_only_the_tables_that_are_wanted_are_derived(tmp_path: Path) -> None:
    source = changelog(tmp_path, 0, 30).rows(ITEMS, [put(3, id=1)]).write()
    derived = Derivation(tmp_path, Window(0, 30), ("shop.items",)).of([(source, Window(0, 30))])
    assert [str(version.schema.name) for version in derived.tables] == ["shop.items"]
    assert derived.selection == ("shop.items",)


def set_aside(folder: Path, index: ChangelogIndex, *entries: tuple[int, int | None, str | None]) -> ChangelogIndex:
    """*index* with a quarantine of (offset, commitTs, table)."""
    root = folder / changelog_root(index.run_hash)
    (root / "quarantine").mkdir()
    values = [
        dict(
            zip(
                QUARANTINE.names,
                ("topic", 0, offset, 0, 1, b"", b"", "bad", "d", at, name and "shop", name),
                strict=True,
            )
        )
        for offset, at, name in entries
    ]
    pq.write_table(QUARANTINE.empty_table().from_pylist(values, QUARANTINE), root / "quarantine" / "q.parquet")
    changed = msgspec.structs.replace(index, quarantine_files=("quarantine/q.parquet",))
    (root / "index.json").write_bytes(canonical.encode(changed))
    return changed


def test_the_quarantine_is_cut_to_the_window_and_keeps_what_may_be_of_it(tmp_path: Path) -> None:
    source = changelog(tmp_path, 0, 30).write()
    source = set_aside(tmp_path, source, (1, 5, "orders"), (2, 15, "orders"), (3, None, None), (4, 15, "others"))
    derived = Derivation(tmp_path, Window(10, 20), ("shop.orders",)).of([(source, Window(10, 20))])
    (name,) = derived.quarantine_files
    kept = pq.read_table(tmp_path / changelog_root(derived.run_hash) / name, partitioning=None)
    assert kept["offset"].to_pylist() == [2, 3]
    events = derived.report.events
    assert derived.report.quarantine_reasons == {"bad": 2}
    assert (events.rows, events.quarantined, events.undecodable, events.written) == (11, 1, 1, 10)


def test_each_entry_of_the_quarantine_comes_from_one_source(tmp_path: Path) -> None:
    # Two halves of one UPDATE, at 5; a message that can't be read, whose window is not known, in both.
    first = set_aside(tmp_path, changelog(tmp_path, 0, 10).write(), (1, 5, "orders"), (1, 5, "orders"), (2, None, None))
    second = set_aside(tmp_path, changelog(tmp_path, 10, 30).write(), (2, None, None), (3, 15, "orders"))
    index = Derivation(tmp_path, Window(0, 30)).of([(first, Window(0, 10)), (second, Window(10, 30))])
    (name,) = index.quarantine_files
    kept = pq.read_table(tmp_path / changelog_root(index.run_hash) / name, partitioning=None)
    assert kept["offset"].to_pylist() == [1, 1, 2, 3]
    assert (index.report.events.quarantined, index.report.events.undecodable) == (3, 1)


def test_a_source_that_is_gone_or_another_one_is_told(tmp_path: Path) -> None:
    source = changelog(tmp_path, 0, 30).write()
    derivation = Derivation(tmp_path, Window(0, 30))
    index = derivation.of([(source, Window(0, 30))])
    with pytest.raises(ArtifactCorruptError, match="is not the changelog that"):
        derivation.store.source(ManifestSource(source.run_hash, "0" * 64, Window(0, 30)))
    lost = source.tables[0].files[0].name
    (tmp_path / changelog_root(source.run_hash) / lost).unlink()
    assert derivation.store.lost(index) == [f"../{source.run_hash}/{lost}"]
    with pytest.raises(ArtifactNotFoundError, match="1 of the 3 files"):
        derivation.of([(source, Window(0, 30))])


def test_changelogs_of_a_topic_that_was_recreated_between_them_are_no_window(tmp_path: Path) -> None:
    first = Changelog(tmp_path, 0, 10, topic_id="old").rows(ORDERS, [put(1, id=1, v="a")]).write()
    second = Changelog(tmp_path, 10, 20, topic_id="new").rows(ORDERS, [put(11, id=1, v="a")]).write()
    with pytest.raises(PermanentError, match="topic was recreated"):
        Derivation(tmp_path, Window(0, 20)).of([(first, Window(0, 10)), (second, Window(10, 20))])
