"""Times, peak memory and medians."""

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil

WATCH_S = 0.1


@dataclass
class Stage:
    """The runs of one stage: seconds, and peaks of resident sets in MB.

    ``peak_mb`` is of the largest Python process below this one, ``driver_mb`` of this process, ``jvm_mb`` of the JVM below it.
    """

    name: str
    seconds: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    driver_mb: list[float] = field(default_factory=list)
    jvm_mb: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median of the seconds."""
        return statistics.median(self.seconds)

    @property
    def peak(self) -> float:
        """The largest of the workers' peaks, in MB."""
        return max(self.peak_mb)


class Watch:
    """Peaks of resident sets while it is entered, in MB: of the Python processes and the JVM below this process, and its own."""

    def __init__(self) -> None:
        self.worker = self.driver = self.jvm = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        me = psutil.Process()
        while True:
            self.driver = max(self.driver, me.memory_info().rss / 1e6)
            for process in me.children(recursive=True):
                try:
                    name, size = process.name(), process.memory_info().rss / 1e6
                except psutil.NoSuchProcess:
                    continue
                if name.startswith("python"):
                    self.worker = max(self.worker, size)
                elif name == "java" and "SparkSubmit" in " ".join(process.cmdline()):
                    self.jvm = max(self.jvm, size)
            if self._stop.wait(WATCH_S):
                return


def measure(stage: Stage, work: Callable[[], Any]) -> Any:
    """Run *work* once and note its time and the peak memory of what it used."""
    with Watch() as watch:
        start = time.perf_counter()
        try:
            return work()
        finally:
            stage.seconds.append(time.perf_counter() - start)
            stage.peak_mb.append(watch.worker)
            stage.driver_mb.append(watch.driver)
            stage.jvm_mb.append(watch.jvm)
