"""Times, peak memory and medians."""

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil


@dataclass
class Stage:
    """The runs of one stage: seconds and the largest resident set of one process below this one, in MB."""

    name: str
    seconds: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median of the seconds."""
        return statistics.median(self.seconds)

    @property
    def peak(self) -> float:
        """Median of the peaks, in MB."""
        return statistics.median(self.peak_mb)


def measure(stage: Stage, work: Callable[[], Any]) -> Any:
    """Run *work* once and note its time and the peak memory of the Python workers it used."""
    stop = threading.Event()
    peak = 0.0

    def watch() -> None:
        nonlocal peak
        me = psutil.Process()
        while not stop.wait(0.2):
            for process in me.children(recursive=True):
                try:
                    if process.name().startswith("python"):
                        peak = max(peak, process.memory_info().rss / 1e6)
                except psutil.NoSuchProcess:
                    continue

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.perf_counter()
    try:
        return work()
    finally:
        stage.seconds.append(time.perf_counter() - start)
        stop.set()
        watcher.join()
        stage.peak_mb.append(peak)
