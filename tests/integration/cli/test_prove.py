"""``ticdc-replay prove``: what of a pinned window is still there."""

import json
from collections.abc import Callable

import msgspec
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.integration.cli.conftest import Shop
from tests.support.changelogs import Changelog, put, table
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.side_files import REFERENCES, SideFile
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.state.runs import Run

pytestmark = pytest.mark.integration

NAMES = [f"{number:08x}-0000-4000-8000-000000000000.json" for number in range(3)]


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """Pinned, with three objects in its claim-check store."""
    shop = make_shop(2)
    for name in NAMES:
        (shop.claims / name).write_bytes(b"{}")
    shop.feed.seconds(40, 125)
    pin(shop.context(), shop.window)
    return shop


def proof_of(shop: Shop, *options: str) -> tuple[int, dict[str, object]]:
    """Exit code and proof."""
    done = shop.command("prove", "--json", *options, window=None if options else shop.window)
    assert done.stdout, (done.stderr, done.exception)
    return done.exit_code, json.loads(done.stdout)


def findings_of(proof: dict[str, object]) -> list[tuple[str, str]]:
    return [(found["kind"], found["place"]) for found in proof["findings"]]  # type: ignore[attr-defined]


def manifest_of(context: ReplayContext, shop: Shop) -> Manifest:
    entry = context.state.manifests.of_window("shop", shop.window)
    assert entry is not None
    return manifests.decode(context.artifacts.get(entry.name))


def expire(kafka: Kafka, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    cut = TopicPartition(topic, 1, offset)
    admin.delete_records([cut])[cut].result(PATIENCE_S)


def keep_changelog(context: ReplayContext, shop: Shop, *, refers_to: str) -> str:
    """Leave a changelog of the window whose one row came from the object *refers_to*; its run."""
    manifest = manifest_of(context, shop)
    changelog = Changelog(shop.folder / "artifacts/shop", shop.window.from_ts, shop.window.to_ts)
    orders = table("shop.orders", {"id": ColumnType("int")})
    changelog.rows(orders, [put(shop.window.from_ts, id=1)])
    root = changelog_root(changelog.run_hash)
    filesystem, base = context.artifacts.arrow_filesystem()
    file = SideFile(filesystem, f"{base}/{root}", "references/0.parquet", REFERENCES)
    for name, status, commit_ts in (
        (refers_to, "used", shop.window.from_ts),
        (NAMES[2], "not_needed", shop.window.to_ts),  # outside the window
    ):
        file.add(
            (shop.feed.topic, 0, 0, 0, commit_ts, "shop", "orders", name, name, status, "etag", 2)
            + (None,) * (len(REFERENCES.names) - 12)
        )
    file.close()
    index = msgspec.structs.replace(
        changelog.write(), pipeline="shop", input_hash=manifest.input_hash, reference_files=("references/0.parquet",)
    )
    context.artifacts.put(f"{root}/index.json", canonical.encode(index))
    context.state.runs.record(
        Run(
            pipeline="shop", run_hash=index.run_hash, window=shop.window, input_hash=manifest.input_hash, status="done",
            started_at_ms=0, index=f"{root}/index.json",
        )
    )  # fmt: skip
    return index.run_hash


def test_nothing_is_found_where_all_is_there_as_it_was_pinned(shop: Shop) -> None:
    code, proof = proof_of(shop)
    assert (code, proof["findings"]) == (0, [])
    assert (proof["from_kafka"], proof["grade"], proof["objects"]) == (True, "proven", 3)
    shown = shop.command("prove", window=shop.window)
    assert shown.exit_code == 0
    assert "can be replayed from Kafka" in shown.stdout


def test_a_manifest_that_is_named_need_not_be_the_one_that_its_window_has_now(shop: Shop) -> None:
    old = manifest_of(shop.context(), shop).input_hash
    pin(shop.context(), shop.window, repin=True)
    for name in (old, f"{old}.json", f"file:///anywhere/manifests/{old}.json"):
        code, proof = proof_of(shop, "--manifest", name)
        assert (code, proof["input_hash"]) == (0, old)
    assert shop.command("prove", "--manifest", "no-hash").exit_code == 2
    assert shop.command("prove", "--manifest", old, window=shop.window).exit_code == 2


def test_a_window_that_ends_at_a_resolved_ts_later_than_its_record_is_not_proven(
    make_shop: Callable[..., Shop],
) -> None:
    shop = make_shop(1)
    shop.feed.seconds(40, 118)
    shop.feed.resolved(125, recorded=118)
    shop.feed.flush()
    text = shop.file.read_text()
    assert "clock_skew_seconds: 5" in text
    shop.file.write_text(text.replace("clock_skew_seconds: 5", "clock_skew_seconds: 14"))
    pin(shop.context(), shop.window)
    assert proof_of(shop)[0] == 0
    shop.file.write_text(text)  # clocks differ by less than was said
    code, proof = proof_of(shop)
    assert (code, findings_of(proof)) == (3, [("resolved_ts", f"{shop.feed.topic}[0]@156")])
    assert "is 7000 ms later than the time of its record" in str(proof)
    assert "Pin it again (repin)" in str(proof)


def test_what_kafka_has_removed_is_said_by_partition(shop: Shop, kafka: Kafka) -> None:
    expire(kafka, shop.feed.topic, 100)
    code, proof = proof_of(shop)
    assert (code, findings_of(proof)) == (3, [("offsets", f"{shop.feed.topic}[1]")])
    shown = shop.command("prove", window=shop.window).stdout
    assert "Kafka has removed 10 to 99 of 161: it holds offsets from 100 on" in shown
    assert "can no longer be replayed" in shown


def test_a_topic_that_was_recreated_is_another_one(shop: Shop, kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topic = shop.feed.topic
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    wait_for(f"topic {topic} to go", lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics)
    assert findings_of(proof_of(shop)[1]) == [("topic", topic)]
    create_topic(admin, topic, 2)
    code, proof = proof_of(shop)
    assert (code, findings_of(proof)) == (3, [("topic", topic)])


def test_the_resolved_ts_must_be_where_it_was_found(shop: Shop) -> None:
    context = shop.context()
    manifest = manifest_of(context, shop)
    (topic,) = manifest.topics
    forged = msgspec.structs.replace(topic.partitions[0], resolved_at=160)  # a row
    forged_topic = msgspec.structs.replace(topic, partitions=(forged, topic.partitions[1]))
    other = msgspec.structs.replace(manifest, topics=(forged_topic,))
    context.artifacts.put(f"manifests/{other.input_hash}.json", canonical.encode(other))
    code, proof = proof_of(shop, "--manifest", other.input_hash)
    assert (code, findings_of(proof)) == (3, [("resolved_ts", f"{shop.feed.topic}[0]@160")])


def test_a_manifest_that_was_edited_proves_nothing(shop: Shop) -> None:
    context = shop.context()
    entry = context.state.manifests.of_window("shop", shop.window)
    assert entry is not None
    context.artifacts.put(entry.name, context.artifacts.get(entry.name).replace(b'"live":true', b'"live":false', 1))
    code, proof = proof_of(shop)
    assert (code, findings_of(proof)) == (3, [("manifest", entry.name)])


def test_a_window_of_a_changefeed_that_was_configured_otherwise_is_not_what_would_be_read_now(shop: Shop) -> None:
    shop.file.write_text(shop.file.read_text().replace("timezone: UTC", "timezone: Asia/Shanghai"))
    code, proof = proof_of(shop)
    assert (code, findings_of(proof)) == (3, [("manifest", f"manifests/{proof['input_hash']}.json")])


def test_without_a_changelog_all_objects_of_the_inventory_must_be_as_they_were(shop: Shop) -> None:
    (shop.claims / NAMES[0]).unlink()
    (shop.claims / NAMES[1]).write_bytes(b"{} ")
    (shop.claims / "later.json").write_bytes(b"{}")
    code, proof = proof_of(shop)
    assert (code, findings_of(proof)) == (3, [("object", NAMES[0]), ("object", NAMES[1])])
    assert (proof["missing_objects"], proof["objects"]) == (2, 3)
    inventory = manifest_of(shop.context(), shop).inventory
    assert inventory is not None
    (shop.folder / "artifacts/shop/inventories" / f"{inventory.sha256}.parquet").unlink()
    assert findings_of(proof_of(shop)[1]) == [("file", inventory.uri)]


def test_with_a_changelog_the_objects_that_rows_of_the_window_refer_to_must_be_there(shop: Shop) -> None:
    run_hash = keep_changelog(shop.context(), shop, refers_to=NAMES[0])
    for name in NAMES[1:]:
        (shop.claims / name).unlink()
    code, proof = proof_of(shop)
    assert (code, proof["objects"], proof["changelogs"]) == (0, 1, [run_hash])
    (shop.claims / NAMES[0]).unlink()
    code, proof = proof_of(shop)
    assert (code, findings_of(proof), proof["from_kafka"]) == (1, [("object", NAMES[0])], False)


def test_a_window_is_not_lost_as_long_as_kafka_or_its_changelog_has_it(shop: Shop, kafka: Kafka) -> None:
    run_hash = keep_changelog(shop.context(), shop, refers_to=NAMES[0])
    expire(kafka, shop.feed.topic, 100)
    code, proof = proof_of(shop)
    assert (code, findings_of(proof)) == (1, [("offsets", f"{shop.feed.topic}[1]")])
    assert f"can be replayed from changelog {run_hash}" in shop.command("prove", window=shop.window).stdout
    (file,) = (shop.folder / "artifacts/shop" / changelog_root(run_hash)).rglob("data/**/*.parquet")
    file.unlink()
    code, proof = proof_of(shop)
    assert code == 3
    assert ("changelog", run_hash) in findings_of(proof)
