"""What is relied upon of a folder is tried before it is relied upon."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from ticdc_replay.domain.errors import MissingAbilityError
from ticdc_replay.storage import ObjectStore, open_store
from ticdc_replay.storage.file_abilities import try_locks
from ticdc_replay.storage.mounts import Mount, mount_of

MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:40 / /srv/shared rw,relatime shared:7 - nfs4 files:/export rw,vers=4.2,local_lock=none
41 27 0:41 / /srv/old\\040share rw,relatime - nfs files:/old rw,vers=3,nolock,local_lock=all
42 27 0:42 / /srv/bucket rw,nosuid - fuse.s3fs s3fs rw,user_id=0
45 27 0:45 / /container rw - fuse.fuse-overlayfs fuse-overlayfs rw
43 40 0:43 / /srv/shared/inner rw - xfs /dev/vdb rw
44 27 0:44 / /srv/été rw - cifs //win/share rw,vers=3.1.1
"""


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "root").as_uri())


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    (tmp_path / "mountinfo").write_text(MOUNTS, encoding="utf-8")
    return tmp_path / "mountinfo"


def test_a_folder_is_tried_once_and_nothing_of_it_is_left(store: ObjectStore, tmp_path: Path) -> None:
    store.put_once("a", b"1")
    store.update("b", lambda found: b"2")
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == [".ticdc-replay-lock", "a", "b"]
    assert [found.name for found in store.list()] == ["a", "b"]


def test_a_file_system_without_hard_links_is_refused_by_name(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(MissingAbilityError, match=r"hard links \(a file could not be linked: Operation not permitted"):
        store.put_once("a", b"1")
    assert store.info("a") is None


def test_a_file_system_whose_links_replace_is_refused(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def replacing(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())

    store.put("a", b"first")
    monkeypatch.setattr(os, "link", replacing)
    with pytest.raises(MissingAbilityError, match="a link replaced a file"):
        store.put_once("a", b"second")
    assert store.get("a") == b"first"


def test_a_file_system_whose_locks_lock_nobody_out_is_refused(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    with pytest.raises(MissingAbilityError, match="a file was locked twice"):
        store.update("a", lambda found: b"1")
    assert store.info("a") is None


def test_a_file_system_that_stops_locking_is_not_taken_for_one_that_locks_others_out(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locking(_: object, operation: int) -> None:
        if operation & fcntl.LOCK_NB:
            raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", locking)
    with pytest.raises(MissingAbilityError, match="a locked file could not be tried: No locks available"):
        store.update("a", lambda found: b"1")


@pytest.mark.parametrize(
    ("type_", "options"),
    [("nfs", "local_lock=all, nolock"), ("cifs", "nobrl"), ("lustre", "localflock"), ("gfs2", "localflocks")],
)
def test_a_mount_whose_locks_are_this_machine_s_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_: str, options: str
) -> None:
    mount = Mount("/srv/shared", type_, ("rw", *options.split(", ")))
    monkeypatch.setattr("ticdc_replay.storage.file_abilities.mount_of", lambda folder: mount)
    with pytest.raises(MissingAbilityError, match=f"locks that all machines see .*{options}"):
        try_locks(tmp_path)


@pytest.mark.parametrize(
    ("path", "type_", "network"),
    [
        ("/var/lib/state", "ext4", False),
        ("/srv/shared/state", "nfs4", True),
        ("/srv/sharedness", "ext4", False),
        ("/srv/old share/x", "nfs", True),
        ("/srv/bucket", "fuse.s3fs", True),
        ("/container/state", "fuse.fuse-overlayfs", False),
        ("/srv/shared/inner/x", "xfs", False),
        ("/srv/été/x", "cifs", True),
    ],
)
def test_the_mount_of_a_path_is_the_innermost(mounts: Path, path: str, type_: str, network: bool) -> None:
    found = mount_of(Path(path), mounts)
    assert found is not None
    assert (found.type, found.is_network) == (type_, network)


def test_without_a_list_of_mounts_nothing_is_known(tmp_path: Path) -> None:
    assert mount_of(tmp_path, tmp_path / "missing") is None
