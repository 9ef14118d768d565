"""How long a window is expected to take."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.rates import rates
from ticdc_replay.state.runs import Run


@contextmanager
def pipeline(folder: Path, conf: Mapping[str, str] = {}, protocol: str = "open-protocol") -> Iterator[ReplayContext]:
    text = {
        "name": "shop",
        "changefeed": {"sink_uri": f"kafka://b:9092/t?protocol={protocol}", "timezone": "UTC"},
        "connections": {"kafka": "k"},
        "artifacts": (folder / "artifacts").as_uri(),
        "schedule": {"start": "2026-03-01T00:00:00Z"},
        "spark": {"conf": dict(conf)},
        "targets": [{"name": "lake", "type": "parquet", "uri": (folder / "lake").as_uri()}],
    }
    (folder / "shop.yaml").write_text(yaml.safe_dump(text))
    with ReplayContext(load_pipeline(folder / "shop.yaml"), Connections({})) as context:
        yield context


@pytest.mark.parametrize(
    ("conf", "cores", "expected"),
    [
        ({"spark.executor.instances": "3", "spark.executor.cores": "4"}, None, 12),
        ({"spark.cores.max": "6"}, None, 6),
        ({"spark.cores.max": "6"}, 2, 2),
    ],
)
def test_cores_are_those_that_the_jobs_will_have(
    tmp_path: Path, conf: dict[str, str], cores: int | None, expected: int
) -> None:
    with pipeline(tmp_path, conf) as context:
        found = rates(context, cores)
    assert f"on {expected} cores" in found.basis
    assert found.decoded_rows == 45_000 * expected


def test_the_last_ten_runs_count_by_what_they_did_together(tmp_path: Path) -> None:
    with pipeline(tmp_path) as context:
        for number in range(12):
            slow = number < 2  # too long ago
            counts = {
                "messages_bytes": 1_000_000,
                "decode_ms": 10**9 if slow else 2_000,
                "events_written": 500,
                "load_ms": 250,
            }
            context.state.runs.record(
                Run(
                    pipeline="shop", run_hash=str(number), window=Window(number, number + 1), input_hash="i", status="done",
                    started_at_ms=number, counts=counts,
                )
            )  # fmt: skip
        context.state.runs.record(
            Run(
                pipeline="shop",
                run_hash="empty",
                window=Window(90, 91),
                input_hash="i",
                status="done",
                started_at_ms=99,
            )
        )
        found = rates(context, None)
    assert found.basis == "rates of the last 10 runs of this pipeline"
    assert (found.decoded_bytes, found.loaded_rows) == (500_000, 2_000)
    seconds = found.seconds(size=5_000_000, rows=1, wanted=4_000, objects=10**6, object_bytes=10**9, targets=2)
    assert seconds == 60 + 10 + 2  # three jobs start; the objects of earlier runs took their part of the time


def test_simple_as_avro_is_expected_to_take_longer_than_as_json(tmp_path: Path) -> None:
    expected = {}
    for encoding in ("json", "avro"):
        with pipeline(tmp_path, protocol=f"simple&encoding-format={encoding}") as context:
            expected[encoding] = rates(context, 1).decoded_rows
    assert expected == {"json": 40_000, "avro": 12_000}
