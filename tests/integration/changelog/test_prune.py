"""Which changelogs are removed: those that are old and that nothing needs, and what is known of the others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.changelogs import Changelog, put, table
from tests.support.quarantine_files import TOPIC, index_with, quarantine
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.changelog.files.side_files import REFERENCES, SideFile
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical, tso
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError, TransientError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.reconcile.look.coverage import bounds_of, searched_by_runs, unsearched
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource, PartitionPin, SharedInput, TopicPin
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.leases import replaying
from ticdc_replay.stages.quarantine.entries import Selection
from ticdc_replay.stages.quarantine.redrive import open_runs, pin_redrive
from ticdc_replay.stages.upkeep import prune as changelogs
from ticdc_replay.stages.upkeep.prune import list_changelogs, prune, remove
from ticdc_replay.stages.window.derive import derive
from ticdc_replay.stages.window.jobs import write_load_job
from ticdc_replay.stages.window.shared import pin_shared
from ticdc_replay.state.coverage import Coverage
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.quarantine import AcceptedLoss, Redrive
from ticdc_replay.state.runs import Run

if TYPE_CHECKING:
    from demo.embedded_stack.kafka import Kafka
    from tests.conftest import MakeTopic
    from ticdc_replay.storage import ObjectStore

pytestmark = pytest.mark.integration

ORDERS = table("s.orders", {"id": ColumnType("bigint", declared=True)})
MESSAGES = 10
DAY_S = 86_400


class Setting:
    """A pipeline whose changelogs come from ten messages, all of them 90 days old unless said otherwise."""

    def __init__(self, folder: Path, kafka: Kafka, topic: str) -> None:
        document = {
            "name": "pipeline",
            "changefeed": {
                "sink_uri": f"kafka://b:9092/{topic}?protocol=open-protocol",
                "timezone": "UTC",
                "config": "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'\n"
                f"claim-check-storage-uri = '{(folder / 'claims').as_uri()}'\n",
            },
            "connections": {"kafka": "kafka"},
            "artifacts": folder.as_uri(),
            "schedule": {"start": "2025-01-01T00:00:00Z"},
            "changelog": {"keep_days": 30},
            "targets": [{"name": "mirror", "type": "postgres", "connection": "m"}],
        }
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(document))
        broker = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
        self.context = ReplayContext(load_pipeline(folder / "pipeline.yaml"), Connections({"kafka": broker}))
        self.folder, self.topic, self.bootstrap = folder / "pipeline", topic, kafka.bootstrap
        with Offsets(self.context.kafka) as offsets:
            self.identity = offsets.topics([topic])[topic].identity
            self.topic_id = self.identity.topic_id

    def decoded(
        self, start: int, end: int, *, last: int = MESSAGES, days_old: float = 90, run: str = "a", **members: Any
    ) -> ChangelogIndex:
        """A changelog of the offsets before *last*, as if it had been decoded and recorded."""
        window = Window(start, end)
        part = OffsetRange(self.topic, 0, 0, last)
        derived, shared = members.pop("derived", ()), members.pop("shared", None)
        kafka = not derived and shared is None
        pin = PartitionPin(part, True, None, None)
        manifest = Manifest(
            pipeline="pipeline",
            changefeed_hash=self.context.changefeed.hash,
            window=window,
            grade=members.pop("grade", "proven"),
            topics=(TopicPin(self.topic, self.topic_id, (pin,) if kafka else ()),),
            cluster_id=self.identity.cluster_id,
            derived=derived,
            shared=shared,
            pinned_at_ms=tso.physical_ms(1 << 18) + len(run),
        )
        name = f"manifests/{manifest.input_hash}.json"
        self.context.artifacts.put_once(name, canonical.encode(manifest))
        self.context.state.manifests.register(
            WindowManifest("pipeline", window, manifest.input_hash, name, int((time.time() - days_old * DAY_S) * 1000))
        )
        made = Changelog(self.folder, start, end, run, topic_id=self.topic_id)
        index = (made.rows(ORDERS, [put(start, id=1)]) if kafka else made).write()
        index = msgspec.structs.replace(
            index,
            input_hash=manifest.input_hash,
            ranges=(part,) if kafka else (),
            topic_ids={self.topic: self.topic_id},
            cluster_id=self.identity.cluster_id,
            selection=("*.*",),
            unsearched=(),
            derived=derived or members.pop("taken", ()),
            **members,
        )
        root = self.folder / changelog_root(index.run_hash)
        (root / INDEX).write_bytes(canonical.encode(index))
        self.age(index.run_hash, days_old)
        self.context.state.runs.record(
            Run(
                pipeline="pipeline",
                run_hash=index.run_hash,
                window=window,
                input_hash=index.input_hash,
                status="done",
                started_at_ms=0,
                index=f"{changelog_root(index.run_hash)}/{INDEX}",
                counts={},
            )
        )
        return index

    def change(self, index: ChangelogIndex, **members: Any) -> ChangelogIndex:
        """*index* with other members, in place of what it was."""
        changed = msgspec.structs.replace(index, **members)
        self.context.artifacts.put(f"{changelog_root(index.run_hash)}/{INDEX}", canonical.encode(changed))
        self.age(index.run_hash, 90)
        return changed

    def with_quarantine(self, index: ChangelogIndex) -> ChangelogIndex:
        """*index* with one entry in quarantine."""
        aside = index_with(self.context.artifacts, index.run_hash, quarantine(3, 0, "bad"))
        return self.change(
            index,
            topic_ids={**index.topic_ids, **aside.topic_ids},
            quarantine_files=aside.quarantine_files,
            report=msgspec.structs.replace(index.report, quarantine_reasons={"bad": 1}),
        )

    def refers_to(self, index: ChangelogIndex, name: str) -> ChangelogIndex:
        """*index* with a row that came from the claim-check object *name*."""
        filesystem, base = self.context.artifacts.arrow_filesystem()
        file = SideFile(filesystem, f"{base}/{changelog_root(index.run_hash)}", "references/0.parquet", REFERENCES)
        place = (self.topic, 0, 0, 0, index.window.from_ts, "s", "orders")
        file.add((*place, name, name, "used", "etag", 2) + (None,) * (len(REFERENCES.names) - 12))
        file.close()
        return self.change(index, reference_files=("references/0.parquet",))

    def accept_loss(self, index: ChangelogIndex) -> None:
        """Settle what ``with_quarantine`` set aside."""
        entry = AcceptedLoss(
            "pipeline",
            msgspec.structs.replace(TOPIC, cluster_id=self.identity.cluster_id),
            0,
            3,
            0,
            "bad",
            index.run_hash,
            "Ada Berg",
            "not ours",
            "accepted/a.json",
            1,
        )
        self.context.state.quarantine.record_accepted_losses([entry])

    def age(self, run_hash: str, days_old: float) -> None:
        for path in (self.folder / changelog_root(run_hash)).rglob("*"):
            os.utime(path, (time.time() - days_old * DAY_S,) * 2)

    def expire(self) -> None:
        place = TopicPartition(self.topic, 0, -1)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_records([place])[place].result(PATIENCE_S)

    def kept(self, **asked: Any) -> dict[str, tuple[str, ...]]:
        """By run, why it is kept; nothing is removed."""
        return {stored.run_hash: stored.kept for stored in prune(self.context, **asked)}

    def unsearched(self) -> list[OffsetRange]:
        """What Kafka holds and no changelog tells the references of."""
        found = searched_by_runs(self.context.state, self.context.artifacts, "pipeline")
        with Offsets(self.context.kafka) as offsets:
            return unsearched(bounds_of(offsets.topics([self.topic]).values(), offsets), found.searched)


@pytest.fixture
def setting(tmp_path: Path, kafka: Kafka, make_topic: MakeTopic) -> Iterator[Setting]:
    topic = make_topic(config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for _ in range(MESSAGES):
        producer.produce(topic, b"v", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    made = Setting(tmp_path, kafka, topic)
    yield made
    made.context.__exit__()


def test_what_is_old_and_can_be_decoded_again_goes_and_only_when_it_is_said_twice(setting: Setting) -> None:
    old, young = setting.decoded(0, 10), setting.decoded(10, 20, days_old=2)
    assert setting.kept() == {old.run_hash: (), young.run_hash: ("not old enough",)}
    assert setting.kept(keep_days=100) == dict.fromkeys((old.run_hash, young.run_hash), ("not old enough",))
    assert len(list_changelogs(setting.context)) == 2, "nothing was to be removed yet"
    assert [stored.kept for stored in prune(setting.context, execute=True)] == [(), ("not old enough",)]
    assert [stored.run_hash for stored in list_changelogs(setting.context)] == [young.run_hash]
    assert not [path for path in (setting.folder / changelog_root(old.run_hash)).rglob("*") if path.is_file()]
    with pytest.raises(ArtifactNotFoundError):
        read_index(setting.context.artifacts, old.run_hash)
    run = setting.context.state.runs.get("pipeline", old.run_hash)
    assert run is not None
    assert run.index is None


@pytest.mark.parametrize("days", [float("inf"), float("nan"), 1e9, 999_999, -1])
def test_days_that_are_no_time_to_keep_anything_for_are_refused(setting: Setting, days: float) -> None:
    with pytest.raises(ConfigError, match="give 0 to 36500"):
        prune(setting.context, keep_days=days)
    file = setting.folder.parent / "pipeline.yaml"
    file.write_text(file.read_text().replace("keep_days: 30", f"keep_days: {days:f}"))
    with pytest.raises(ConfigError, match=r"changelog\.keep_days"):
        load_pipeline(file)


def test_what_somebody_else_removes_meanwhile_is_left_out(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = setting.decoded(0, 10), setting.decoded(10, 20)

    def read_before_it_is_removed(store: ObjectStore, run_hash: str) -> ChangelogIndex:
        index = read_index(store, run_hash)
        if run_hash == first.run_hash:
            remove(setting.context, index)
        return index

    monkeypatch.setattr(changelogs, "read_index", read_before_it_is_removed)
    assert setting.kept() == {second.run_hash: ()}
    assert [stored.run_hash for stored in list_changelogs(setting.context)] == [second.run_hash]


def test_without_days_nothing_says_what_is_old(setting: Setting) -> None:
    file = setting.folder.parent / "pipeline.yaml"
    file.write_text(file.read_text().replace("keep_days: 30", "keep_days: null"))
    setting.context.loaded = load_pipeline(file)
    with pytest.raises(ConfigError, match=r"changelog\.keep_days is not set"):
        prune(setting.context)


def test_the_last_source_of_what_kafka_has_expired_stays_unless_asked_for(setting: Setting) -> None:
    wide, inside, alone = setting.decoded(0, 10), setting.decoded(2, 5, run="b"), setting.decoded(10, 20)
    assert set(setting.kept().values()) == {()}
    setting.expire()
    kept = setting.kept()
    assert {run: kept[run] for run in (wide.run_hash, alone.run_hash)} == {wide.run_hash: LAST, alone.run_hash: LAST}
    assert kept[inside.run_hash] == (), "the wider one holds it"
    assert set(setting.kept(even_if_last=True).values()) == {()}


def test_of_two_that_hold_one_window_of_what_kafka_has_expired_one_stays(setting: Setting) -> None:
    setting.decoded(0, 10)
    setting.decoded(0, 20, run="b")
    setting.expire()
    prune(setting.context, execute=True)
    assert [stored.window for stored in list_changelogs(setting.context)] == [Window(0, 20)]
    assert set(setting.kept().values()) != {()}


LAST = ("what it was decoded from can't be decoded again, and no other changelog holds it",)


def test_what_needs_a_claim_check_object_that_is_gone_can_not_be_decoded_again(setting: Setting) -> None:
    index = setting.refers_to(setting.decoded(0, 10), "a.json")
    claims = setting.folder.parent / "claims"
    claims.mkdir()
    (claims / "a.json").write_bytes(b"{}")
    assert setting.kept() == {index.run_hash: ()}
    (claims / "a.json").unlink()
    assert setting.kept() == {index.run_hash: LAST}


def test_what_the_changefeed_was_configured_otherwise_for_can_not_be_decoded_again(setting: Setting) -> None:
    index = setting.decoded(0, 10)
    file = setting.folder.parent / "pipeline.yaml"
    file.write_text(file.read_text().replace("timezone: UTC", "timezone: Asia/Shanghai"))
    setting.context.loaded = load_pipeline(file)
    assert setting.kept() == {index.run_hash: LAST}


def test_what_has_a_manifest_that_is_damaged_can_not_be_decoded_again(setting: Setting) -> None:
    index = setting.decoded(0, 10)
    setting.context.artifacts.put(f"manifests/{index.input_hash}.json", b"{")
    assert setting.kept() == {index.run_hash: LAST}


def test_what_ends_behind_the_end_of_the_log_can_not_be_decoded_again(setting: Setting) -> None:
    index = setting.decoded(0, 10, last=MESSAGES + 5)
    assert setting.kept() == {index.run_hash: LAST}


def test_of_two_that_hold_what_kafka_has_expired_the_one_with_holes_goes(setting: Setting) -> None:
    whole = setting.decoded(0, 10)
    holes = setting.with_quarantine(setting.decoded(0, 20, run="b"))
    setting.expire()
    assert setting.kept()[whole.run_hash] == LAST, "the other one lacks rows"
    setting.accept_loss(holes)
    inside = setting.with_quarantine(setting.decoded(2, 5, run="c"))
    kept = setting.kept()
    assert (kept[whole.run_hash], kept[holes.run_hash], kept[inside.run_hash]) == (LAST, LAST, ())


def test_what_came_out_of_quarantine_is_no_hole_that_others_may_have(setting: Setting) -> None:
    redriven = setting.with_quarantine(setting.decoded(0, 10))
    other = setting.with_quarantine(setting.decoded(0, 20, run="b"))
    setting.accept_loss(redriven)
    setting.expire()
    assert setting.kept() == {redriven.run_hash: (), other.run_hash: LAST}
    setting.context.state.quarantine.record_redrive(Redrive("pipeline", redriven.run_hash, "d" * 64, "", 1))
    assert setting.kept() == dict.fromkeys((redriven.run_hash, other.run_hash), LAST)


def test_what_is_not_proven_is_no_second_source_of_what_is(setting: Setting) -> None:
    proven, unproven = setting.decoded(0, 10), setting.decoded(0, 20, run="b", grade="unproven")
    inside = setting.decoded(2, 5, run="c", grade="unproven")
    setting.expire()
    assert setting.kept() == {proven.run_hash: LAST, unproven.run_hash: LAST, inside.run_hash: ()}


def test_what_does_not_tell_its_tables_is_not_given_again_by_other_changelogs(setting: Setting) -> None:
    old = setting.change(setting.decoded(0, 10), selection=())
    setting.change(setting.decoded(0, 20, run="b"), selection=("s.other",))
    setting.expire()
    assert setting.kept()[old.run_hash] == LAST


def test_what_others_take_rows_from_stays_as_long_as_they_do(setting: Setting) -> None:
    source = setting.decoded(0, 10)
    taker = setting.decoded(2, 5, days_old=1, run="b", derived=(ManifestSource(source.run_hash, "x", Window(2, 5)),))
    assert setting.kept() == {
        source.run_hash: (f"run {taker.run_hash[:12]} of {taker.window} takes rows from it",),
        taker.run_hash: ("not old enough",),
    }
    assert set(setting.kept(keep_days=0).values()) == {()}, "both of them go"


def test_a_window_that_is_derived_from_an_old_changelog_and_not_decoded_yet_keeps_it(setting: Setting) -> None:
    source = setting.decoded(0, 10)
    waiting = derive(setting.context, Window(2, 5))
    assert setting.kept() == {source.run_hash: (f"{Window(2, 5)} is pinned to it, and not decoded yet",)}
    long_ago = time.time() - 40 * DAY_S
    os.utime(setting.folder / waiting.name, (long_ago, long_ago))
    assert setting.kept() == {source.run_hash: ()}, "nobody decoded it in all the time that changelogs are kept for"


def test_a_window_that_is_pinned_to_an_old_shared_decode_and_not_decoded_yet_keeps_it(setting: Setting) -> None:
    file = setting.folder.parent / "pipeline.yaml"
    file.write_text(file.read_text() + "window: {decode_hours: 24}\n")
    setting.context.loaded = load_pipeline(file)
    begin = tso.parse("2026-03-01T00:00:00Z")
    wide = setting.decoded(begin, tso.parse("2026-03-02T00:00:00Z"))
    hour = Window(tso.parse("2026-03-01T05:00:00Z"), tso.parse("2026-03-01T06:00:00Z"))
    pinned = pin_shared(setting.context, hour)
    assert pinned is not None
    assert pinned.manifest.shared == SharedInput(f"manifests/{wide.input_hash}.json", wide.input_hash, wide.window)
    assert setting.kept() == {wide.run_hash: (f"{hour} is pinned to it, and not decoded yet",)}


def test_what_is_being_decoded_stays(setting: Setting) -> None:
    index = setting.decoded(0, 10)
    with replaying(setting.context, "manifests/m.json", index.run_hash):
        assert setting.kept() == {index.run_hash: ("a run that decodes it has a lease",)}
    assert setting.kept() == {index.run_hash: ()}


def test_what_has_something_open_in_quarantine_stays_until_that_is_settled(setting: Setting) -> None:
    index = setting.with_quarantine(setting.decoded(0, 10))
    assert setting.kept() == {index.run_hash: ("1 entries of its quarantine are open",)}
    setting.accept_loss(index)
    assert setting.kept() == {index.run_hash: ()}


def test_one_quarantine_that_can_not_be_read_keeps_that_changelog_and_no_other(setting: Setting) -> None:
    other, broken = setting.decoded(0, 10), setting.with_quarantine(setting.decoded(10, 20))
    (file,) = (setting.folder / changelog_root(broken.run_hash)).rglob("quarantine/*")
    file.unlink()
    kept = setting.kept()
    assert (kept[other.run_hash], len(kept[broken.run_hash])) == ((), 1)
    assert "its quarantine can't be read" in kept[broken.run_hash][0]


def test_what_is_removed_is_told_at_once_for_what_comes_later_may_fail(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = setting.decoded(0, 10), setting.decoded(10, 20)
    told: list[str] = []

    def fail_at_the_second(context: ReplayContext, index: ChangelogIndex) -> None:
        if index.run_hash == second.run_hash:
            raise TransientError("the store is away")
        remove(context, index)

    setting.age(second.run_hash, 80)  # the younger one comes later
    monkeypatch.setattr(changelogs, "remove", fail_at_the_second)
    with pytest.raises(TransientError):
        prune(setting.context, execute=True, tell=lambda stored: told.append(stored.run_hash))
    assert told == [first.run_hash]


def redriven(setting: Setting) -> tuple[ChangelogIndex, ChangelogIndex]:
    """A changelog with something in quarantine, and what came out of that today."""
    base = setting.with_quarantine(setting.decoded(0, 10))
    state = setting.context.state
    run = state.runs.get("pipeline", base.run_hash)
    assert run is not None
    state.runs.record(msgspec.structs.replace(run, counts={"events_quarantined": 1}))
    (aside,) = open_runs(setting.context, Selection())
    made = Changelog(setting.folder, 0, 10, "redrive", topic_id=setting.topic_id).write()
    again = setting.change(
        made,
        input_hash=pin_redrive(setting.context, aside).manifest.input_hash,
        redrives=base.run_hash,
        selection=("*.*",),
    )
    setting.age(again.run_hash, 0)
    state.quarantine.record_redrive(Redrive("pipeline", base.run_hash, again.run_hash, "", 1))
    return base, again


def test_what_came_out_of_a_quarantine_lately_can_be_loaded_still(setting: Setting) -> None:
    base, again = redriven(setting)
    assert setting.kept() == {
        base.run_hash: (f"re-drive {again.run_hash[:12]} of its quarantine is not old enough",),
        again.run_hash: ("not old enough",),
    }
    prune(setting.context, execute=True)
    assert write_load_job(setting.context, again.run_hash, "mirror").run_hash == again.run_hash
    setting.age(again.run_hash, 90)
    assert setting.kept() == {base.run_hash: (), again.run_hash: ()}, "both of them go"


def test_what_came_out_of_a_quarantine_stays_until_each_target_that_holds_the_run_has_it(setting: Setting) -> None:
    base, again = redriven(setting)
    setting.age(again.run_hash, 90)
    state = setting.context.state
    held = Coverage(
        pipeline="pipeline",
        target="mirror",
        place=setting.context.places["mirror"],
        window=base.window,
        run_hash=base.run_hash,
        selection=("*.*",),
        grade="proven",
        quality="quarantine",
        tables=(),
        loaded_at_ms=1,
    )
    state.coverage.record([held])
    assert setting.kept() == {
        base.run_hash: ("1 entries of its quarantine are open",),
        again.run_hash: (f"came out of the quarantine of run {base.run_hash[:12]}, which is kept",),
    }
    place = setting.context.places["mirror"]
    state.quarantine.record_redrive(Redrive("pipeline", base.run_hash, again.run_hash, "mirror", 1, place))
    assert setting.kept() == {base.run_hash: (), again.run_hash: ()}


def test_what_a_removed_changelog_had_searched_for_references_is_searched_again(
    setting: Setting, make_topic: Callable[..., str]
) -> None:
    setting.decoded(0, 10)
    assert setting.unsearched() == []
    prune(setting.context, execute=True)
    assert setting.unsearched() == [OffsetRange(setting.topic, 0, 0, MESSAGES)]
    setting.expire()
    assert setting.unsearched() == [], "what Kafka has expired can't be searched: its objects are expired, not orphaned"
