"""What a job says of executors that can't run it."""

from pathlib import Path

from tests.support.dumpling_files import Table, write_dump
from tests.support.replayed_windows import pipeline_for
from tests.support.seeds import request_of, seed_job
from ticdc_replay import __version__
from ticdc_replay.spark.executors import _folders, _problems, _read

PATHS = {"/shared/marker": "file:///shared"}


def test_each_host_is_told_what_it_lacks() -> None:
    seen = [
        ("one", __version__, []),
        ("two", "none (No module named 'ticdc_replay')", []),
        ("three", __version__, ["/shared/marker"]),
    ]
    library, folder = _problems(seen, PATHS)
    assert library.startswith("on two there is ticdc-replay none (No module named 'ticdc_replay'), and the driver is")
    assert folder.startswith("file:///shared is a folder of the driver's machine that three does not see")


def test_a_seed_asks_for_the_folder_of_its_dump(tmp_path: Path) -> None:
    table = Table(
        "shop", "t", "CREATE TABLE `t` (`id` bigint NOT NULL, PRIMARY KEY (`id`))", ["id"], ["number"], [(b"1",)]
    )
    dump = write_dump(tmp_path / "dump", [table], 460000000000000000)
    with pipeline_for(tmp_path, "unused:9092", "topic") as context:
        job, _ = seed_job(context, request_of(dump))
    assert list(_folders(_read(job))) == [(dump.as_uri(), dump)]
