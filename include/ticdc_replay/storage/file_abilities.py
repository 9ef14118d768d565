"""Tries what is relied upon of a folder, which may be on a network file system."""

import fcntl
import os
import uuid
from pathlib import Path

from ticdc_replay.storage.abilities import PROBE_PREFIX, Ability, missing
from ticdc_replay.storage.mounts import mount_of

_LOCAL_LOCKS = ("nolock", "local_lock=all", "local_lock=flock", "nobrl", "localflock", "localflocks")
"""Options of NFS, SMB, Lustre, GFS2 and OCFS2 mounts by which locks are this machine's own."""


def try_links(folder: Path) -> None:
    """Try that a hard link takes a name only once, and that files are there once they were written.

    Raises MissingAbilityError, and OSError as it comes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    first, second, name = (folder / f"{PROBE_PREFIX}{uuid.uuid4().hex}" for _ in range(3))
    try:
        for path in (first, second):
            path.write_bytes(path.name.encode())
        try:
            os.link(first, name)
        except OSError as error:
            raise missing(Ability.LINK, folder.as_uri(), f"a file could not be linked: {error.strerror}") from error
        try:
            os.link(second, name)
        except FileExistsError:
            pass
        else:
            raise missing(Ability.LINK, folder.as_uri(), "a link replaced a file")
        if name.read_bytes() != first.name.encode():
            raise missing(Ability.READ_AFTER_WRITE, folder.as_uri(), "a linked file does not have its content")
        if name.name not in os.listdir(folder):
            raise missing(Ability.LIST_AFTER_WRITE, folder.as_uri(), "a linked file is not in its folder")
    finally:
        for path in (first, second, name):
            path.unlink(missing_ok=True)


def try_locks(folder: Path) -> None:
    """Try that a locked file can't be locked again, and look whether the mount keeps locks from other machines.

    Raises MissingAbilityError, and OSError as it comes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mount = mount_of(folder)
    local = sorted(set(_LOCAL_LOCKS) & set(mount.options)) if mount is not None and mount.is_network else []
    if local:
        raise missing(Ability.LOCK, folder.as_uri(), f"it is mounted with {', '.join(local)}")
    path = folder / f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    try:
        with path.open("ab") as first, path.open("ab") as second:
            try:
                fcntl.flock(first, fcntl.LOCK_EX)
            except OSError as error:
                raise missing(Ability.LOCK, folder.as_uri(), f"a file could not be locked: {error.strerror}") from error
            try:
                fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            except OSError as error:
                raise missing(
                    Ability.LOCK, folder.as_uri(), f"a locked file could not be tried: {error.strerror}"
                ) from error
            raise missing(Ability.LOCK, folder.as_uri(), "a file was locked twice")
    finally:
        path.unlink(missing_ok=True)
