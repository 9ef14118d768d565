"""``ticdc-replay plan`` of windows that have a manifest, or that changelogs hold: what their run would refuse or could not do."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.integration.cli.conftest import Shop
from tests.integration.snapshot.feed import at
from tests.support.changelogs import Changelog, put, table
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.window import Window
from ticdc_replay.snapshot.manifest import Manifest, SharedInput
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.upkeep.prune import remove
from ticdc_replay.stages.window.derive import derive, register, topics_of
from ticdc_replay.stages.window.jobs import decode_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.stages.window.plan import plan
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.runs import Run

pytestmark = pytest.mark.integration

INSIDE, LATER = Window(at(60), at(90)), Window(at(90), at(120))


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """One row and one resolved-ts a second in each of two partitions."""
    shop = make_shop(2)
    shop.feed.seconds(40, 125)
    return shop


def planned(shop: Shop, *options: str, window: Window | None = None) -> tuple[int, dict[str, Any]]:
    """Exit code, and what is expected of the one window."""
    done = shop.command("plan", "--json", *options, window=window or shop.window)
    assert done.stdout, (done.stderr, done.exception)
    (told,) = json.loads(done.stdout)["windows"]
    return done.exit_code, told


def refusal(shop: Shop, *options: str, window: Window | None = None) -> str:
    """Why the window is refused."""
    code, told = planned(shop, *options, window=window)
    assert code == 1, told
    return "; ".join(told["refusals"])


def edit(shop: Shop, **sections: Any) -> None:
    shop.file.write_text(yaml.safe_dump(yaml.safe_load(shop.file.read_text()) | sections))


def expire(shop: Shop, kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for number in (0, 1):
        cut = TopicPartition(shop.feed.topic, number, 140)
        admin.delete_records([cut])[cut].result(PATIENCE_S)


def decoded(shop: Shop, pinned: PinnedManifest, run_hash: str = "a" * 64) -> ChangelogIndex:
    """A changelog of what is *pinned*, as if *run_hash* had decoded it."""
    context, window = shop.context(), pinned.manifest.window
    changelog = Changelog(shop.folder / "artifacts/shop", window.from_ts, window.to_ts)
    changelog.run_hash = run_hash
    changelog.rows(table("shop.orders", {"id": ColumnType("int")}), [put(window.from_ts, id=1)])
    index = msgspec.structs.replace(
        changelog.write(), pipeline="shop", input_hash=pinned.manifest.input_hash, selection=("*.*",), unsearched=()
    )
    root = changelog_root(run_hash)
    context.artifacts.put(f"{root}/{INDEX}", canonical.encode(index))
    run = Run(
        pipeline="shop",
        run_hash=run_hash,
        window=window,
        input_hash=index.input_hash,
        status="done",
        started_at_ms=0,
        index=f"{root}/{INDEX}",
    )
    context.state.runs.record(run)
    return index


def test_a_window_of_another_configuration_is_refused(shop: Shop) -> None:
    pin(shop.context(), shop.window)
    shop.file.write_text(shop.file.read_text().replace("timezone: UTC", "timezone: Asia/Shanghai"))
    assert "pinned with another configuration of the changefeed" in refusal(shop)
    assert shop.command("snapshot", window=shop.window).exit_code == 2


def test_another_end_than_the_window_has_is_refused(shop: Shop) -> None:
    pin(shop.context(), shop.window)
    assert "not with the policy head" in refusal(shop, "--pin", "head")
    assert planned(shop, "--pin", "head", "--repin")[0] == 0


def test_a_derived_window_is_refused_once_what_it_is_taken_from_is_removed(shop: Shop) -> None:
    context = shop.context()
    source = decoded(shop, pin(context, shop.window))
    pinned = derive(context, INSIDE)
    code, told = planned(shop, window=INSIDE)
    assert (code, told["input"], told["messages"]) == (0, "changelogs", 0)
    remove(context, source)
    assert "was removed, and" in refusal(shop, window=INSIDE)
    decoded(shop, pinned, decode_job(context, pinned).run_hash)
    assert planned(shop, window=INSIDE)[0] == 0, "it is decoded itself"


def test_a_derived_window_is_refused_where_set_aside_names_a_row_of_what_it_is_taken_from(shop: Shop) -> None:
    context = shop.context()
    source = decoded(shop, pin(context, shop.window))
    later = Window(at(75), INSIDE.to_ts)  # without the one row that the changelog has
    for window in (INSIDE, later):
        derive(context, window)
    edit(shop, set_aside=["topic[0]@1"])
    assert f"run {source.run_hash[:12]}, which it is taken from, has rows of topic[0]@1" in refusal(shop, window=INSIDE)
    assert planned(shop, window=later)[0] == 0


def share(shop: Shop, wide: PinnedManifest, window: Window) -> PinnedManifest:
    manifest = wide.manifest
    shares = Manifest(
        pipeline="shop",
        changefeed_hash=manifest.changefeed_hash,
        window=window,
        grade=manifest.grade,
        topics=topics_of(manifest),
        tables=manifest.tables,
        shared=SharedInput(wide.name, manifest.input_hash, manifest.window),
        pinned_at_ms=manifest.pinned_at_ms,
    )
    return register(shop.context(), shares, None)


def test_what_a_shared_decode_has_to_read_is_told_with_one_window_and_refused_with_each_once_it_is_gone(
    shop: Shop, kafka: Kafka
) -> None:
    wide = pin(shop.context(), shop.window)
    first, _ = share(shop, wide, INSIDE), share(shop, wide, LATER)
    told = plan(shop.context(), [INSIDE, LATER]).windows
    assert [(each.input, each.messages, each.refusals) for each in told] == [
        ("changelogs", 304, ()),
        ("changelogs", 0, ()),
    ]
    assert told[1].notes == ("what its decode reads is listed with an earlier window",)
    expire(shop, kafka)
    for each in plan(shop.context(), [INSIDE, LATER]).windows:
        assert "Kafka has removed" in each.refusals[0]
    shared = first.manifest.shared
    assert shared is not None
    decoded(shop, wide, decode_job(shop.context(), first).decoding(shared).run_hash)
    assert [(each.messages, each.refusals) for each in plan(shop.context(), [INSIDE, LATER]).windows] == [(0, ())] * 2


def test_what_would_be_taken_from_changelogs_that_are_not_proven_is_refused_where_the_policy_stops(
    shop: Shop, kafka: Kafka
) -> None:
    context = shop.context()
    entry = context.state.manifests.of_window("shop", pin(context, shop.window).manifest.window)
    assert entry is not None
    manifest = pin(context, shop.window).manifest
    doubtful = msgspec.structs.replace(
        manifest, grade="unproven", reasons=("clocks differ",), replaces=entry.input_hash
    )
    name = f"manifests/{doubtful.input_hash}.json"
    context.artifacts.put(name, canonical.encode(doubtful))
    made = WindowManifest("shop", shop.window, doubtful.input_hash, name, manifest.pinned_at_ms + 1)
    context.state.manifests.register(made, replaces=entry)
    decoded(shop, PinnedManifest(doubtful, name, name, reused=False))
    expire(shop, kafka)
    assert "clocks differ" in refusal(shop, window=INSIDE)
    assert shop.command("snapshot", window=INSIDE).exit_code == 2
    edit(shop, policies={"unproven": "allow"})
    code, told = planned(shop, window=INSIDE)
    assert (code, told["input"], told["grade"], told["reasons"]) == (0, "changelogs", "unproven", ["clocks differ"])


def test_a_changelog_counts_for_the_run_that_would_make_it_and_for_others_by_pinning_anew(
    shop: Shop, kafka: Kafka
) -> None:
    context = shop.context()
    pinned = pin(context, shop.window)
    expire(shop, kafka)
    assert "--from-changelog" not in refusal(shop)
    decoded(shop, pinned, "b" * 64)
    assert "--repin --from-changelog" in refusal(shop)
    decoded(shop, pinned, decode_job(context, pinned).run_hash)
    code, told = planned(shop)
    assert (code, "of it is whole" in told["notes"][0]) == (0, True)
    assert "Kafka has removed" in refusal(shop, "--table", "shop.orders"), "that is another run"


@pytest.mark.parametrize("damage", ["deleted", "edited"])
def test_one_window_whose_manifest_is_lost_is_refused_and_the_others_are_planned(shop: Shop, damage: str) -> None:
    context = shop.context()
    begin, middle, end = at(60), at(120), at(180)
    pinned = pin(context, Window(begin, middle))
    file = shop.folder / "artifacts/shop" / pinned.name
    if damage == "deleted":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes().replace(b'"live":true', b'"live":false', 1))
    done = shop.command("plan", "--json", "--every", "1m", window=Window(begin, end))
    assert done.exit_code == 1, done.stderr
    first, second = json.loads(done.stdout)["windows"]
    assert "pin with repin" in first["refusals"][0]
    assert second["window"] == {"from_ts": middle, "to_ts": end}


def test_artefacts_that_can_not_be_reached_are_told(shop: Shop) -> None:
    connections = shop.folder / "connections.yaml"
    known = yaml.safe_load(connections.read_text())
    away = {"endpoint_url": "http://127.0.0.1:9", "region_name": "us-east-1"}
    known["s3"] = {"conn_type": "aws", "login": "a", "password": "b", "extra": away}
    known["db"] = {"conn_type": "sqlite", "host": str(shop.folder / "state.db")}
    connections.write_text(yaml.safe_dump(known))
    edit(shop, artifacts="s3://bucket/x", connections={"kafka": "kafka", "artifacts": "s3", "state": "db"})
    done = shop.command("plan", window=shop.window)
    assert (done.exit_code, "127.0.0.1:9" in done.stderr) == (2, True), (done.stdout, done.stderr)
