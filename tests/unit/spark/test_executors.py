"""What a job says of executors that can't run it."""

from ticdc_replay import __version__
from ticdc_replay.spark.executors import _problems

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
