"""Which file system a folder is on, and whether other machines write to it."""

import os
import re
from pathlib import Path

import msgspec

_NETWORK = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "fakeowner", "fhgfs", "gfs2", "glusterfs", "gpfs", "lustre"),
        *("ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf"),
        *("virtiofs", "vmhgfs", "wekafs"),
    )
)
_ESCAPE = re.compile(r"\\([0-7]{3})")
_MOUNTS = Path("/proc/self/mountinfo")


class Mount(msgspec.Struct, frozen=True):
    """A mounted file system: its folder, type and options."""

    folder: str
    type: str
    options: tuple[str, ...]

    @property
    def is_network(self) -> bool:
        """Whether other machines may see it. FUSE counts: what is below it is not known, and is often an object store or SSH.

        Not so the layers of a container, which some run-times put together by FUSE.
        """
        fuse = self.type == "fuse" or (self.type.startswith("fuse.") and self.type != "fuse.fuse-overlayfs")
        return fuse or self.type in _NETWORK


def mount_of(path: Path, mounts: Path = _MOUNTS) -> Mount | None:
    """The mount that *path*, or its first parent that exists, is on; None where the system does not say (it is not Linux)."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    real = os.path.realpath(path)
    best: Mount | None = None
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, described = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(described) < 3:
            continue
        folder = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4])
        inside = real == folder or real.startswith(folder.rstrip("/") + "/")
        if inside and (best is None or len(folder) >= len(best.folder)):  # the last of several at one place is on top
            options = (*fields[5].split(","), *described[2].split(","))
            best = Mount(folder, described[0], options)
    return best
