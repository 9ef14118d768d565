"""A dump that jobs of Spark read and load."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.support.dumpling_files import Table, Variant, write_dump
from tests.support.replayed_windows import pipeline_for
from tests.support.seeds import request_of
from ticdc_replay.cli.submit import submit
from ticdc_replay.domain.errors import TicdcReplayError
from ticdc_replay.stages.seed.jobs import check_base, write_seed_job
from ticdc_replay.stages.seed.pin import pin_dump
from ticdc_replay.stages.window.jobs import write_load_job

pytestmark = pytest.mark.spark

TAKEN = 460000000000000000
CREATE = "CREATE TABLE `t` (`id` bigint NOT NULL, `v` varchar(10) DEFAULT NULL, PRIMARY KEY (`id`))"
ROWS = [(str(number).encode(), f"v {number}".encode()) for number in range(1000)]


def test_jobs_of_spark_seed(java_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home))
    table = Table("shop", "t", CREATE, ["id", "v"], ["number", "string"], ROWS)
    dump = write_dump(tmp_path / "dump", [table], TAKEN, Variant(file_rows=300, compression="zstd"))
    request = request_of(dump)
    with pipeline_for(tmp_path, "unused:9092", "topic") as context:
        job = write_seed_job(context, pin_dump(context, request, None), request, None)
        file = dump / "shop.t.000000002.csv.zst"
        content = file.read_bytes()
        file.unlink()
        with pytest.raises(TicdcReplayError, match=file.name):
            submit(job.uri, context, "local[2]")
        file.write_bytes(content)
        job = write_seed_job(context, pin_dump(context, request, None), request, None)
        submit(job.uri, context, "local[2]")
        check_base(context, job.run_hash, None)
        submit(write_load_job(context, job.run_hash, "lake", None).uri, context, "local[2]")
    files = sorted((tmp_path / "lake" / "shop" / "fold").rglob("*.parquet"))
    rows = [row["after"] for row in ds.dataset(files, format="parquet").to_table(columns=["after"]).to_pylist()]
    assert sorted(rows, key=lambda row: row["id"]) == [{"id": number, "v": f"v {number}"} for number in range(1000)]
