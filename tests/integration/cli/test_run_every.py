"""``ticdc-replay run --every``: windows that share the drivers of their jobs, and stay windows of their own."""

from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from tests.integration.cli.conftest import Shop
from tests.integration.snapshot.feed import at
from ticdc_replay import jobspec
from ticdc_replay.domain import tso
from ticdc_replay.domain.window import Window
from ticdc_replay.submit.driver_process import DriverProcess

pytestmark = pytest.mark.integration

WINDOWS = [Window(at(begin), at(begin + 60)) for begin in (60, 120, 180)]
WHOLE = Window(WINDOWS[0].from_ts, WINDOWS[-1].to_ts)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[jobspec.JobSpec]:
    """The job specs whose drivers were started."""
    jobs: list[jobspec.JobSpec] = []
    start = DriverProcess.start

    def noted(driver: DriverProcess) -> None:
        jobs.append(driver._submission.job)
        start(driver)

    monkeypatch.setattr(DriverProcess, "start", noted)
    return jobs


def loaded(shop: Shop) -> list[int]:
    """The second of every row in the lake's changelog, sorted."""
    files = (shop.folder / "lake").glob("shop/changelog/**/*.parquet")
    return sorted(
        row["after"]["id"] // 1000 for file in files for row in pq.read_table(file, partitioning=None).to_pylist()
    )


def test_windows_share_drivers_and_are_loaded_one_by_one(
    make_shop: Callable[..., Shop], started: list[jobspec.JobSpec]
) -> None:
    shop = make_shop(runner="local")
    shop.feed.seconds(40, 245)
    done = shop.command("run", "--every", "1m", window=WHOLE)
    assert done.exit_code == 0, (done.output, done.exception)
    assert [jobspec.kind_of(job) for job in started] == ["decode", "load"]
    assert loaded(shop) == list(range(60, 240))
    again = shop.command("run", "--every", "1m", window=WHOLE)
    assert again.exit_code == 0, (again.output, again.exception)
    assert len(started) == 2, "all of them are done"
    assert loaded(shop) == list(range(60, 240))


def test_windows_of_one_decode_are_cut_from_it_by_one_driver(
    make_shop: Callable[..., Shop], started: list[jobspec.JobSpec]
) -> None:
    begin = tso.to_datetime(WHOLE.from_ts).isoformat()
    shop = make_shop(runner="local", window={"decode_hours": 1}, schedule={"start": begin})
    shop.feed.seconds(40, 245)
    shop.feed.resolved(2 * 3600)
    shop.feed.flush()
    done = shop.command("run", "--every", "1m", window=WHOLE)
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.stdout.count("taken from the decode of") == 3
    assert [jobspec.kind_of(job) for job in started] == ["decode", "load"]
    assert loaded(shop) == list(range(60, 240))


def test_a_window_that_must_not_be_loaded_holds_up_those_after_it_alone(
    make_shop: Callable[..., Shop], started: list[jobspec.JobSpec]
) -> None:
    shop = make_shop(runner="local")
    shop.feed.seconds(40, 130)
    shop.feed.row(0, 130, claim_check="00000000-0000-4000-8000-000000000000.json")
    shop.feed.seconds(131, 245)
    done = shop.command("run", "--every", "1m", window=WHOLE)
    assert done.exit_code == 2
    assert "claim_check_missing" in done.output
    assert loaded(shop) == list(range(60, 120))


def test_windows_before_one_that_is_not_over_are_loaded(
    make_shop: Callable[..., Shop], started: list[jobspec.JobSpec]
) -> None:
    shop = make_shop(runner="local")
    shop.feed.seconds(40, 190)
    done = shop.command("run", "--every", "1m", window=WHOLE)
    assert done.exit_code == 2
    assert "watermark" in done.output.lower()
    assert [jobspec.kind_of(job) for job in started] == ["decode", "load"]
    assert loaded(shop) == list(range(60, 180))
