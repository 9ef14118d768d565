"""Where the time of Kafka → changelog goes: processor time per event and stage, for all rows, for inserts and for updates alone.

``python -m benchmarks.stages`` runs it and writes its part of ``benchmarks/RESULTS.md``. One split, which has all of a topic, is
decoded by one process without Spark, and its duplicates are looked for. A clock asks every millisecond where the main thread is
and gives that stage the processor time since it asked last; *client* is that of all other threads, which are the Kafka client's.
What one job costs whatever its size, with Spark, is measured apart.
"""

import argparse
import os
import platform
import signal
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

from benchmarks.jobs import CORES, DECODERS, connections, decode_job, native_is_there, prepare_environment, session
from benchmarks.measure import Stage
from benchmarks.pinning import pin_everything
from benchmarks.replay import replay
from benchmarks.results import replace_part
from benchmarks.workload import OPEN, WORKLOADS, Kind, publish
from demo.embedded_stack.kafka import Kafka
from ticdc_replay.changelog.copies.key_buckets import plan_buckets
from ticdc_replay.decode.complete.deduplicate import find_surplus
from ticdc_replay.decode.plan.schema_pass import lookup_in
from ticdc_replay.decode.plan.splits import sampled_of
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext
from ticdc_replay.decode.read.split import decode_split
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.storage import open_store

EVENTS = 200_000
KINDS: tuple[Kind | None, ...] = (None, "insert", "update")
EVERYTHING = Window(1, 1 << 62)
TICK_S = 0.001
LIBRARY = os.sep + "ticdc_replay" + os.sep
# The first that begins the name of a file below the library, and of a function where one is given, counts.
STAGES = (
    ("kafka/", "", "consume"),
    ("codecs/", "", "decode"),
    ("changelog/files/writer.py", "_batch", "to Arrow"),
    ("changelog/files/data_file.py", "", "write"),
    ("changelog/files/side_files.py", "", "write"),
    ("changelog/files/keys.py", "write", "write"),
    ("changelog/copies/key_buckets.py", "", "dedupe"),
    ("changelog/copies/duplicates.py", "", "dedupe"),
    ("changelog/files/identity.py", "", "identify"),
    ("changelog/files/keys.py", "", "identify"),
    ("changelog/files/writer.py", "", "identify"),
    ("changelog/", "", "to Arrow"),
    ("schemas/", "", "identify"),
    ("decode/complete/deduplicate.py", "", "dedupe"),
    ("decode/", "", "sort in"),
)
ORDER = ("client", "consume", "decode", "sort in", "identify", "to Arrow", "write", "dedupe", "other")


class Clock:
    """Processor seconds by stage while it is entered, in the main thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.samples: Counter[str] = Counter()
        self._last = 0.0

    def __enter__(self) -> Self:
        self._before = time.process_time() - time.thread_time()
        self._last = time.thread_time()
        signal.signal(signal.SIGALRM, self._tick)
        signal.setitimer(signal.ITIMER_REAL, TICK_S, TICK_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.seconds["client"] += time.process_time() - time.thread_time() - self._before

    def _tick(self, _number: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        stage, place = stage_of(frame)
        self.seconds[stage] += now - self._last
        self.samples[place] += 1
        self._last = now


def stage_of(frame: FrameType | None) -> tuple[str, str]:
    """The stage that the innermost frame of the library belongs to, and that frame's place for people."""
    while frame is not None:
        _, inside, name = frame.f_code.co_filename.rpartition(LIBRARY)
        if inside:
            function = frame.f_code.co_name
            for file, wanted, stage in STAGES:
                if name.startswith(file) and wanted in ("", function):
                    return stage, f"{name}:{frame.f_lineno} {function}"
        frame = frame.f_back
    return "other", "outside of the library"


class Measured(NamedTuple):
    """Processor seconds by stage, for *rows*; *places* with the most samples, in shares."""

    rows: int
    seconds: dict[str, float]
    places: list[tuple[str, float]]


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    arguments.add_argument("--events", type=int, default=EVENTS)
    arguments.add_argument("--places", action="store_true", help="print the lines of code with the most samples")
    options = arguments.parse_args()
    prepare_environment()
    found: dict[tuple[str, str, str], Measured] = {}
    decoders = [name for name in DECODERS if name != "native" or native_is_there()]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Kafka(Path(folder) / "kafka") as kafka:
        artifacts = f"file://{folder}/artifacts/bench"
        for name in options.workloads:
            workload = WORKLOADS[name]
            for kind in KINDS:
                topic = f"{name}-{kind or 'all'}"
                published = publish(kafka.bootstrap, topic, workload, options.events, only=kind)
                manifest = pin_everything(kafka.bootstrap, topic, artifacts)
                job = decode_job(manifest, workload.changefeed, artifacts, topic)
                for decoder in decoders:
                    os.environ["TICDC_REPLAY_NATIVE"] = "on" if decoder == "native" else "off"
                    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
                        work = apart.submit(profile, name, job, tuple(manifest.ranges()), kafka.bootstrap)
                        found[name, decoder, kind or "all"] = took = work.result()
                    assert took.rows == published.rows, f"{took.rows} of {published.rows} rows"
                    print(f"{topic}, {decoder}: {sum(took.seconds.values()) / took.rows * 1e6:.1f} µs", flush=True)
                    if options.places:
                        print("\n".join(f"  {share:5.1%} {place}" for place, share in took.places))
        begin = time.perf_counter()
        with session("bench") as spark:
            started = time.perf_counter() - begin
            publish(kafka.bootstrap, "few", OPEN, 1)
            manifest = pin_everything(kafka.bootstrap, "few", artifacts)
            jobs = Stage("few")
            for _ in range(6):
                replay(spark, OPEN, manifest, kafka.bootstrap, artifacts, jobs)
    text = table(found, started, jobs)
    print(text)
    if options.events == EVENTS and set(options.workloads) == set(WORKLOADS) and native_is_there():
        replace_part("stages", text)


def profile(name: str, job: DecodeJob, ranges: tuple[OffsetRange, ...], bootstrap: str) -> Measured:
    """Decode *ranges* as one split, twice: the first time makes parsers and imports what is needed."""
    history = lookup_in(WORKLOADS[name].capture, 1 << 28).history
    partitions = {part.topic: len(ranges) for part in ranges}
    filesystem, base = open_store(job.artifacts).arrow_filesystem()
    root = f"{base}/{job.changelog_root}"
    for attempt in (Attempt("first"), Attempt("second")):
        clock = Clock()
        with clock:
            split = Split(0, ranges, partitions, sampled_of(sum(part.length for part in ranges)))
            result = decode_split(split, SplitContext(attempt, job, EVERYTHING, history, connections(bootstrap)))
            assert result.keys_file is not None
            for bucket in plan_buckets([result.keys_file], 1):
                find_surplus(filesystem, root, attempt, bucket)
    samples = sum(clock.samples.values())
    places = [(place, count / samples) for place, count in clock.samples.most_common(40)]
    return Measured(result.events.written, dict(clock.seconds), places)


def table(found: dict[tuple[str, str, str], Measured], started: float, jobs: Stage) -> str:
    """The results as Markdown."""
    rows = next(iter(found.values())).rows
    lines = [
        f"`python -m benchmarks.stages`: about {rows:,} events, one process, Python {platform.python_version()}; µs of processor "
        "time per event.",
        "",
        f"| workload | decoder | rows | {' | '.join(ORDER)} | sum |",
        f"|---|---|---|{'---|' * (len(ORDER) + 1)}",
    ]
    for (name, decoder, kind), took in found.items():
        each = {stage: seconds / took.rows * 1e6 for stage, seconds in took.seconds.items()}
        cells = " | ".join(f"{each.get(stage, 0):.2f}" for stage in ORDER)
        lines.append(f"| {name} | {decoder} | {kind} | {cells} | {sum(each.values()):.2f} |")
    lines += [
        "",
        f"A job of {OPEN.name} with as few events as one repeat has, `local[{CORES}]`: {started:.1f} s to start a session, "
        f"{jobs.seconds[0]:.1f} s for the first job in it, {sorted(jobs.seconds[1:])[2]:.2f} s for a later one (median).",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
