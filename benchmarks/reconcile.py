"""The join of a reconciliation on two cores: synthetic objects and references, classified and written.

``python -m benchmarks.reconcile`` makes 10 M objects and 20 M references, and a tenth of that, joins both on ``local[2]`` and
writes its part of ``benchmarks/RESULTS.md``; with other numbers it only prints. Each join has a process of its own, which is the
driver; its executor runs in the same JVM. Memory that is flat is the same for both sizes.
"""

import argparse
import contextlib
import multiprocessing
import os
import platform
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.results import replace_part
from ticdc_replay.domain import tso
from ticdc_replay.reconcile.judge import records
from ticdc_replay.reconcile.judge.rules import Evidence, ObjectClass, PartitionBounds, ReferenceClass, ReplayableRange
from ticdc_replay.reconcile.judge.summary import Summary
from ticdc_replay.spark.parquet_files import Sources
from ticdc_replay.spark.reconcile import classify
from ticdc_replay.targets.base import StoreAddress

OBJECTS, REFERENCES = 10_000_000, 20_000_000
GOAL_S = 180
FILE_ROWS = 500_000
TOPICS, PARTITIONS, TABLES = 4, 12, 50
NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
SPAN_MS = 30 * 24 * HOUR_MS


class Measured(NamedTuple):
    """One join. Memory in MB: the heap of the JVM after a full collection, and peaks of resident sets."""

    objects: int
    references: int
    seconds: float
    processor: float
    heap: float
    driver: float
    worker: float
    files: int
    summary: Summary


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--objects", type=int, default=OBJECTS)
    arguments.add_argument("--references", type=int, default=REFERENCES)
    arguments.add_argument("--cores", type=int, default=2)
    arguments.add_argument("--folder", type=Path, help="for the data, about 350 bytes a row; a temporary one if absent")
    options = arguments.parse_args()
    sizes = [(options.objects // 10, options.references // 10), (options.objects, options.references)]
    found = []
    for objects, references in sizes:
        folder = Path(tempfile.mkdtemp(prefix="reconcile-", dir=options.folder))
        try:
            # Neither what made the data nor the join before counts.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as apart:
                begin = time.perf_counter()
                apart.submit(make, folder, objects, references).result()
                print(f"made the data in {time.perf_counter() - begin:.0f} s", flush=True)
                found.append(apart.submit(measure, folder, objects, references, options.cores).result())
        finally:
            shutil.rmtree(folder)
    text = table(options.cores, *found)
    print(text)
    if (options.objects, options.references, options.cores) == (OBJECTS, REFERENCES, 2):
        replace_part("reconcile", text)


def make(folder: Path, objects: int, references: int) -> None:
    """Write the files of both sides."""
    write(folder, "objects", objects_of(objects))
    write(folder, "references", references_of(references, objects))


def measure(folder: Path, objects: int, references: int, cores: int) -> Measured:
    """Join the files in *folder*."""
    place = StoreAddress(folder.as_uri(), None)
    sources = [
        Sources(place, tuple(f"{kind}/{path.name}" for path in sorted((folder / kind).iterdir())))
        for kind in ("objects", "references")
    ]
    spark = session(cores, folder)
    try:
        with Watch() as watch:
            begin = time.perf_counter()
            found = classify(spark, sources[0], sources[1:], evidence(), place, "out", cores)
            seconds = time.perf_counter() - begin
        return Measured(
            objects=objects,
            references=references,
            seconds=seconds,
            processor=processor_seconds(),
            heap=heap_after_collection(spark),
            driver=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            worker=watch.peak / 1e6,
            files=len(found.objects) + len(found.references),
            summary=found.summary,
        )
    finally:
        spark.stop()


class Watch:
    """Looks every half second how much memory the largest Python worker has."""

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if process.name().startswith("python"):
                        self.peak = max(self.peak, process.memory_info().rss)


def session(cores: int, folder: Path) -> SparkSession:
    """A local Spark as a worker with little memory would be."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.appName("benchmark of reconcile")
        .master(f"local[{cores}]")
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "20000")
        .getOrCreate()
    )


def evidence() -> Evidence:
    """Half of the messages have expired, and a quarter is pinned by windows."""
    partitions = [
        PartitionBounds(f"topic{topic}", "id", number, 200_000, 1_000_000, NOW_MS - SPAN_MS // 2)
        for topic in range(TOPICS)
        for number in range(PARTITIONS)
    ]
    return Evidence(
        bounds_ms=NOW_MS,
        listed_ms=NOW_MS,
        partitions=tuple(partitions),
        replayable=tuple(ReplayableRange(found.topic, "id", found.partition, 100_000, 250_000) for found in partitions),
        young_ms=24 * HOUR_MS,
        skew_ms=300_000,
        grace_ms=168 * HOUR_MS,
        owners_complete=True,
        unread_offsets=0,
    )


def objects_of(count: int) -> Iterator[pa.Table]:
    """Objects by number; the last modified times rise with it."""
    for first in range(0, count, FILE_ROWS):
        numbers = np.arange(first, min(first + FILE_ROWS, count), dtype=np.int64)
        columns = [
            names(numbers),
            pa.array(2_000_000 + numbers % 1000),
            hexadecimal(numbers, 32),
            pa.array(NOW_MS - SPAN_MS + numbers * SPAN_MS // count),
            pa.nulls(len(numbers), pa.string()),
        ]
        yield pa.Table.from_arrays(columns, schema=records.OBJECTS)


def references_of(count: int, objects: int) -> Iterator[pa.Table]:
    """References in the order of the messages. A fifth of the objects has none, a hundredth names an object that is not there,
    and some row versions have two objects."""
    for first in range(0, count, FILE_ROWS):
        at = np.arange(first, min(first + FILE_ROWS, count), dtype=np.int64)
        rows = len(at)
        target = at * objects // count
        target -= (target % 5 == 4).astype(np.int64)
        number = np.where(at % 100 == 99, target + 2 * objects, target)
        version = np.where(target % 20 == 1, target - 1, target)
        commit_ms = NOW_MS - SPAN_MS + version * SPAN_MS // objects
        tables = version % TABLES
        scanned = at % 2 == 1
        place = at % (TOPICS * PARTITIONS)
        columns: dict[str, Any] = {
            "object_name": names(number),
            "pipeline": choice(np.zeros(rows), ["shop"]),
            "topic": choice(place % TOPICS, [f"topic{topic}" for topic in range(TOPICS)]),
            "topic_id": choice(np.zeros(rows), ["id"]),
            "partition": pa.array((place // TOPICS).astype(np.int32)),
            "offset": pa.array(at * 1_000_000 // count),
            "ordinal": pa.array(np.zeros(rows, np.int32)),
            "timestamp_ms": pa.array(commit_ms + 1000, mask=~scanned),
            "commit_ts": pa.array(commit_ms << tso.LOGICAL_BITS),
            "schema": choice(np.zeros(rows), ["shop"]),
            "table": choice(tables, [f"table{table}" for table in range(TABLES)]),
            "key_hash": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(16), rows, [None, pa.py_buffer(mixed(version, 2))]
            ),
            "key": pa.nulls(rows, pa.string()),
            "etag": masked(hexadecimal(number, 32), scanned),
            "size": pa.array(2_000_000 + number % 1000, mask=scanned),
            "sha256": masked(hexadecimal(number, 64), scanned),
            "status": choice(scanned, ["used", records.SEEN]),
            "source": choice(scanned, ["decode", "scan"]),
        }
        yield pa.Table.from_arrays([columns[name] for name in records.REFERENCES.names], schema=records.REFERENCES)


def mixed(numbers: npt.NDArray[Any], words: int) -> npt.NDArray[np.uint64]:
    """*words* well mixed 64-bit words of each number, by splitmix64: as random as UUIDs and hashes, and the same each time."""
    steps = np.arange(1, words + 1).astype(np.uint64)
    state: npt.NDArray[np.uint64] = (numbers.astype(np.uint64)[:, None] * np.uint64(words) + steps).astype(np.uint64)
    state *= np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.ascontiguousarray(state ^ (state >> np.uint64(31)))


def digits(numbers: np.ndarray, count: int) -> np.ndarray:
    """*count* hexadecimal digits of each number, as bytes of ASCII."""
    raw = mixed(numbers, count // 16).view(np.uint8)
    both = np.stack([raw >> 4, raw & 15], axis=-1).reshape(len(numbers), count)
    return np.frombuffer(b"0123456789abcdef", np.uint8)[both]


def names(numbers: np.ndarray) -> pa.Array:
    """A claim-check name for each number."""
    parts = np.split(digits(numbers, 32), [8, 12, 16, 20], axis=1)
    dash = np.full((len(numbers), 1), ord("-"), np.uint8)
    suffix = np.broadcast_to(np.frombuffer(b".json", np.uint8), (len(numbers), 5))
    return strings(np.hstack([parts[0], dash, parts[1], dash, parts[2], dash, parts[3], dash, parts[4], suffix]))


def hexadecimal(numbers: np.ndarray, count: int) -> pa.Array:
    """*count* hexadecimal digits for each number."""
    return strings(digits(numbers, count))


def strings(text: np.ndarray) -> pa.Array:
    """Rows of ASCII bytes as strings."""
    offsets = np.arange(0, text.size + 1, text.shape[1], dtype=np.int32)
    return pa.StringArray.from_buffers(len(text), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)))


def choice(numbers: np.ndarray, texts: list[str]) -> pa.Array:
    """The text at each number."""
    return pa.array(texts).take(pa.array(numbers.astype(np.int64)))


def masked(values: pa.Array, mask: np.ndarray) -> pa.Array:
    """*values*, null where *mask*."""
    return pa.compute.if_else(pa.array(mask), pa.scalar(None, values.type), values)


def write(folder: Path, kind: str, tables: Iterator[pa.Table]) -> None:
    """Write each of *tables* as a file."""
    (folder / kind).mkdir()
    for number, content in enumerate(tables):
        path = folder / kind / f"{number:05d}.parquet"
        pq.write_table(content, path, compression="zstd", compression_level=1, row_group_size=100_000)


def heap_after_collection(spark: SparkSession) -> float:
    """MB of the heap that the JVM of driver and executor still uses."""
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


def processor_seconds() -> float:
    """Of all processes that this one started, and of theirs, ended or not."""
    found = psutil.Process().children(recursive=True)
    return sum(sum(process.cpu_times()[:4]) for process in found)


def table(cores: int, small: Measured, large: Measured) -> str:
    """The results as Markdown."""

    def row(name: str, value: Callable[[Measured], str], goal: str = "") -> str:
        return f"| {name} | {value(small)} | {value(large)} | {goal} |"

    goal = f"≤ {GOAL_S * large.references / REFERENCES:.0f}"
    lines = [
        f"`python -m benchmarks.reconcile`: local[{cores}] with 3 GB, Python {platform.python_version()}; reading, joining, "
        "writing and counting.",
        "",
        row("", lambda run: f"{run.objects:,} objects, {run.references:,} references", "goal"),
        "|---|---|---|---|",
        row("seconds", lambda run: f"{run.seconds:.0f}", goal),
        row("processor seconds of Spark and its workers", lambda run: f"{run.processor:.0f}"),
        row("k references/s", lambda run: f"{run.references / run.seconds / 1e3:,.0f}"),
        row("MB of the JVM's heap afterwards", lambda run: f"{run.heap:,.0f}", "flat"),
        row("peak MB of the driver's Python", lambda run: f"{run.driver:,.0f}", "flat"),
        row("peak MB of a worker's Python", lambda run: f"{run.worker:,.0f}"),
        row("files written", lambda run: str(run.files)),
    ]
    for kind in ObjectClass:
        lines.append(row(f"objects {kind}", partial(_objects, kind)))
    for found in ReferenceClass:
        lines.append(row(f"references {found}", partial(_references, found)))
    return "\n".join(lines)


def _objects(kind: ObjectClass, run: Measured) -> str:
    return f"{run.summary.objects(kind):,}"


def _references(kind: ReferenceClass, run: Measured) -> str:
    return f"{run.summary.references(kind):,}"


if __name__ == "__main__":
    main()
