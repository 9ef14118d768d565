"""One decode for several windows: which windows share one, and who decodes while the others wait."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from ticdc_replay.changelog.files.layout import INDEX
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import LeaseHeldError
from ticdc_replay.domain.handover import HandedOverError
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import SharedDecode
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window import shared
from ticdc_replay.stages.window.shared import decoding, span_of

SINK = "kafka://b:9092/t?protocol=open-protocol"


@pytest.fixture
def make_context(tmp_path: Path) -> Iterator[Callable[..., ReplayContext]]:
    made: list[ReplayContext] = []

    def make(hours: int | None = 24, sink: str = SINK, **policies: str) -> ReplayContext:
        pipeline = {
            "name": "shop",
            "changefeed": {"sink_uri": sink, "timezone": "UTC"},
            "connections": {"kafka": "k"},
            "artifacts": (tmp_path / "artifacts").as_uri(),
            "schedule": {"start": "2026-03-01T06:00:00Z"},
            "window": {"decode_hours": hours, "timeout_minutes": 1},
            "policies": policies,
            "targets": [{"name": "mirror", "type": "postgres", "connection": "m"}],
        }
        (tmp_path / "shop.yaml").write_text(yaml.safe_dump(pipeline))
        made.append(ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections()))
        return made[-1]

    yield make
    for context in made:
        context.__exit__()


def between(start: str, end: str) -> Window:
    return Window(tso.parse(f"2026-03-{start}:00Z"), tso.parse(f"2026-03-{end}:00Z"))


@pytest.mark.parametrize(
    ("window", "span"),
    [
        (between("02T05:00", "02T06:00"), between("02T00:00", "03T00:00")),
        (between("02T23:00", "03T00:00"), between("02T00:00", "03T00:00")),
        (
            between("01T06:00", "01T07:00"),
            between("01T06:00", "02T00:00"),
        ),  # the schedule begins in the middle of a day
        (between("02T00:00", "03T00:00"), None),
        (between("02T23:30", "03T00:30"), None),
        (between("01T05:00", "01T06:00"), None),
        (
            Window(tso.parse("2026-02-28T05:00:00Z"), tso.parse("2026-02-28T06:00:00Z")),
            None,
        ),  # days before the schedule
    ],
)
def test_windows_within_one_aligned_span_share_it(
    make_context: Callable[..., ReplayContext], window: Window, span: Window | None
) -> None:
    assert span_of(make_context(), window) == span


def test_nothing_is_shared_unless_it_is_asked_for_and_rows_have_a_commit_time(
    make_context: Callable[..., ReplayContext],
) -> None:
    window = between("02T05:00", "02T06:00")
    assert span_of(make_context(None), window) is None
    plain = make_context(sink="kafka://b:9092/t?protocol=canal-json", unproven="allow")
    assert span_of(plain, window) is None


WIDE = SharedDecode("manifests/wide.json", "f" * 64)
ROOT = f"runs/{WIDE.run_hash}"


def test_one_decodes_and_the_others_wait_for_its_changelog(make_context: Callable[..., ReplayContext]) -> None:
    context = make_context()
    context.state.leases.current(context.artifacts.uri(ROOT))  # opens the store once
    decoded, inside, most = 0, 0, 0
    lock = threading.Lock()

    def run(number: int) -> None:
        nonlocal decoded, inside, most
        with decoding(context, f"manifests/{number}.json", f"{number}", WIDE, poll_s=0.02):
            if context.artifacts.info(f"{ROOT}/{INDEX}") is not None:
                return
            with lock:
                inside, decoded = inside + 1, decoded + 1
                most = max(most, inside)
            (lease,) = context.state.leases.current(context.artifacts.uri(ROOT))
            assert (lease.kind, lease.subject) == ("decode", WIDE.manifest)
            with lock:
                inside -= 1
            context.artifacts.put_once(f"{ROOT}/{INDEX}", b"{}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert (decoded, most) == (1, 1)
    assert context.state.leases.current(context.artifacts.uri(ROOT)) == []


def test_where_the_one_that_decodes_fails_the_next_one_does(make_context: Callable[..., ReplayContext]) -> None:
    context = make_context()
    with pytest.raises(RuntimeError), decoding(context, "manifests/1.json", "1", WIDE):
        raise RuntimeError("it broke")
    with decoding(context, "manifests/2.json", "2", WIDE):
        assert [lease.kind for lease in context.state.leases.current(context.artifacts.uri(ROOT))] == ["decode"]


def test_a_decode_that_is_handed_over_lets_nobody_in_until_it_is_finished(
    make_context: Callable[..., ReplayContext],
) -> None:
    context = make_context()
    holder = "replay application_1"
    for each in (None, holder):
        with pytest.raises(HandedOverError), decoding(context, "manifests/1.json", "1", WIDE, holder=each):
            raise HandedOverError(holder)
        (lease,) = context.state.leases.current(context.artifacts.uri(ROOT))
        assert (lease.holder, lease.kind) == (holder, "decode")
    context.artifacts.put_once(f"{ROOT}/{INDEX}", b"{}")
    with decoding(context, "manifests/1.json", "1", WIDE, holder=holder):
        pass
    assert context.state.leases.current(context.artifacts.uri(ROOT)) == []


def test_who_took_over_a_decode_and_was_silent_for_too_long_waits_for_nobody(
    make_context: Callable[..., ReplayContext],
) -> None:
    context = make_context()
    with (
        decoding(context, "manifests/2.json", "2", WIDE),
        decoding(context, "manifests/1.json", "1", WIDE, holder="replay application_1"),
    ):
        (lease,) = context.state.leases.current(context.artifacts.uri(ROOT))
        assert lease.holder.startswith("decode (")


def test_nobody_waits_for_ever(make_context: Callable[..., ReplayContext], monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_context()
    with decoding(context, "manifests/1.json", "1", WIDE):
        passed = iter([0.0, 59.0, 61.0])
        monkeypatch.setattr(shared, "time", SimpleNamespace(monotonic=lambda: next(passed), sleep=lambda _: None))
        with (
            pytest.raises(LeaseHeldError, match=r"longer than window\.timeout_minutes"),
            decoding(context, "manifests/2.json", "2", WIDE),
        ):
            pass
