"""The cache that processes share."""

from pathlib import Path

import pytest

from demo.embedded_stack import cache


def test_of_processes_that_make_the_same_at_once_the_first_one_s_is_kept(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        cache.keep(tmp_path / name, tmp_path / "kept")
    assert (tmp_path / "kept" / "file").read_text() == "one"


def test_what_can_not_be_moved_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cache.keep(tmp_path / "nothing", tmp_path / "kept")
