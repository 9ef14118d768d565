"""How fast windows of a pipeline are replayed: as its runs were, else as benchmarks were."""

import os

import msgspec

from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.state.runs import Run

LOADED = 100_000
"""Rows a second, from the changelog to a target, where no run has shown it."""
OBJECTS, OBJECT_BYTES = 300, 50_000_000
"""Claim-check objects, and bytes of them, a second, where no run has shown it."""
JOB_S = 20
"""What a Spark job takes to start."""
_RUNS = 10


class Rates(msgspec.Struct, frozen=True):
    """What is expected of a run."""

    decoded_bytes: float | None
    """Bytes of messages a second, from Kafka to the changelog, large messages included, as runs had it; None without runs."""
    decoded_rows: float
    """Row events a second where no run has shown it."""
    loaded_rows: float
    """Rows a second, from the changelog to all targets together."""
    basis: str
    """Where the rates are from, for people."""

    def seconds(self, *, size: int, rows: int, wanted: int, objects: int, object_bytes: int, targets: int) -> float:
        """How long a window takes with *size* bytes of messages that have *rows*, if *wanted* are loaded."""
        if self.decoded_bytes is not None:
            decode = size / self.decoded_bytes
        else:
            decode = rows / self.decoded_rows + max(objects / OBJECTS, object_bytes / OBJECT_BYTES)
        return JOB_S * (1 + targets) + decode + wanted / self.loaded_rows


def rates(context: ReplayContext, cores: int | None) -> Rates:
    """The rates of the pipeline's last runs, or of benchmarks on *cores*. *cores* defaults to those in ``spark.conf``,
    else of this machine."""
    number = cores or _cores(context.pipeline.spark.conf)
    protocol = context.changefeed.traits
    per_core = protocol.rows_per_core_by_encoding.get(context.changefeed.encoding_format, protocol.rows_per_core)
    decoded_rows = per_core * number
    runs = sorted(context.state.runs.all(context.pipeline.name), key=lambda run: run.started_at_ms)
    decoded = [run for run in runs if run.counts.get("decode_ms") and run.counts.get("messages_bytes")][-_RUNS:]
    loaded = [run for run in runs if run.counts.get("load_ms") and run.counts.get("events_written")][-_RUNS:]
    default_load = LOADED / max(1, len(context.pipeline.targets))
    loaded_rows = _per_second(loaded, "events_written", "load_ms") if loaded else default_load
    if not decoded:
        basis = f"rates of benchmarks for {protocol.name} on {number} core{'s' if number > 1 else ''}; no run has shown others"
        return Rates(None, decoded_rows, loaded_rows, basis)
    basis = f"rates of the last {len(decoded)} run{'s' if len(decoded) > 1 else ''} of this pipeline"
    return Rates(_per_second(decoded, "messages_bytes", "decode_ms"), decoded_rows, loaded_rows, basis)


def _per_second(runs: list[Run], amount: str, ms: str) -> float:
    return 1000 * sum(run.counts[amount] for run in runs) / sum(run.counts[ms] for run in runs)


def _cores(conf: dict[str, str]) -> int:
    instances, each = conf.get("spark.executor.instances", ""), conf.get("spark.executor.cores", "1")
    if instances.isdecimal() and each.isdecimal():
        return int(instances) * int(each)
    most = conf.get("spark.cores.max", "")
    return int(most) if most.isdecimal() else os.cpu_count() or 1
