"""What the log of a job tells while its tasks run."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.support.waiting import wait_for
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.progress import report_done
from ticdc_replay.drivers import progress
from ticdc_replay.drivers.progress import Channel, Progress, ProgressLine, brief, telling
from ticdc_replay.drivers.runner import Sizes, _measured
from ticdc_replay.spark.tasks import SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGER = "ticdc_replay.drivers.progress"


def line_after(seconds: float, done: int, total: int = 1_200_000, earlier: tuple[tuple[float, int], ...] = ()) -> str:
    line = ProgressLine("decode", total, "messages")
    begin = line.begin
    for after, count in earlier:
        line.at(begin + after, count)
    return line.at(begin + seconds, done)


def test_the_line_tells_share_rate_and_time_left():
    assert line_after(5, 504_000) == "decode: 42 % of 1.2 M messages, 101 k/s, 7 s left"


def test_the_rate_is_that_of_the_last_half_minute():
    slow_start = ((10.0, 0), (20.0, 0), (30.0, 0), (40.0, 100_000), (50.0, 200_000))
    assert line_after(60, 300_000, earlier=slow_start) == "decode: 25 % of 1.2 M messages, 10 k/s, 90 s left"


def test_nothing_is_foretold_before_anything_is_done():
    assert line_after(10, 0) == "decode: 0 % of 1.2 M messages"


def test_files_may_still_be_written_when_all_messages_are_read():
    assert line_after(10, 1_200_000) == "decode: 100 % of 1.2 M messages, 120 k/s, finishing"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.4, "0.4"),
        (8, "8"),
        (999, "999"),
        (1_000, "1.0 k"),
        (105_432, "105 k"),
        (1.2e6, "1.2 M"),
        (3e9, "3.0 G"),
    ],
)
def test_numbers_are_brief(number, text):
    assert brief(number) == text


def test_a_task_that_can_t_reach_the_driver_goes_on():
    with telling(Channel("host.invalid", 9, b"k" * 16), 0, 10):
        report_done(5)


def test_tasks_that_know_their_size_are_counted_by_it():
    class Files:
        units: ClassVar[str] = "files"

        def __init__(self, size: int) -> None:
            self.size = size

    assert _measured([Files(2), Files(3)]) == Sizes([2, 3], "files")
    assert _measured(["a", "b"]) == Sizes([1, 1], "tasks")


@pytest.mark.spark
class TestRunning:
    @pytest.fixture(autouse=True)
    def often(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        monkeypatch.setattr(progress, "DEFAULT_SECONDS", 0.3)
        caplog.set_level(logging.INFO, LOGGER)

    def shares(self, caplog: pytest.LogCaptureFixture) -> list[int]:
        lines = [record.getMessage() for record in caplog.records if record.name == LOGGER]
        found = [re.fullmatch(r"count: (\d+) % of 400 messages(, .*)?", line) for line in lines]
        assert all(found), lines
        return [int(match[1]) for match in found if match]

    @pytest.fixture
    def half(self, tmp_path: Path) -> Iterator[Path]:
        """A file that is there as soon as the log says that half is done."""
        path = tmp_path / "half"

        class Watch(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if "50 %" in record.getMessage():
                    path.touch()

        watch = Watch()
        logging.getLogger(LOGGER).addHandler(watch)
        yield path
        logging.getLogger(LOGGER).removeHandler(watch)

    def test_running_tasks_count_before_they_end(self, spark, caplog, half):
        def work(_):
            def half_is_logged():
                report_done(100)
                return half.exists()

            return wait_for("a line that half is done", half_is_logged)

        assert SparkRunner(spark).run(work, [1, 2], "count", Sizes([200, 200], "messages")) == [True, True]
        shares = self.shares(caplog)
        assert shares == sorted(shares)
        lines = len(caplog.records)
        time.sleep(0.8)
        assert len(caplog.records) == lines, "no line after the end"

    def test_finished_tasks_count_where_no_datagram_arrives(self, spark, caplog, half, monkeypatch):
        monkeypatch.setattr(Progress, "channel", property(lambda self: None))

        def work(number):
            return number < 2 or wait_for("a line that half is done", half.exists)

        assert SparkRunner(spark).run(work, range(4), "count", Sizes([100] * 4, "messages"))[2:] == [True, True]

    def test_what_a_stranger_sends_does_not_count(self, spark, caplog):
        with Progress("count", [200, 200], "messages", ("127.0.0.1", "")) as running:
            channel = running.channel
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                forged = progress._signed(b"x" * 16, progress._COUNT.pack(0, 100))
                for content in (b"", b"hello", forged):
                    stranger.sendto(content, (channel.host, channel.port))
            with telling(channel, 1, 50):
                pass
            while not caplog.records or caplog.records[-1].getMessage().startswith("count: 0 %"):
                time.sleep(0.05)
        assert self.shares(caplog)[-1] == 12

    def test_the_end_of_a_job_waits_for_no_task_to_tell_anything(self, spark, monkeypatch):
        monkeypatch.setattr(progress, "_LISTEN_S", 600)
        monkeypatch.setattr(progress, "DEFAULT_SECONDS", 600)
        begin = time.monotonic()
        assert SparkRunner(spark).run(lambda number: number, [1, 2], "count") == [1, 2]
        assert time.monotonic() - begin < 300

    def test_a_failing_job_ends_its_lines(self, spark, caplog):
        def fail(_):
            raise PermanentError("for good")

        with pytest.raises(PermanentError, match="for good"):
            SparkRunner(spark).run(fail, [1], "count")
        lines = len(caplog.records)
        time.sleep(0.7)
        assert len(caplog.records) == lines
