"""Runs one server and sees to it that nothing of it outlives the process that asked for it. A script, standard library only.

    supervisor.py <parent pid> <stop signal> <grace seconds> <main|group> <uid:gid|-> <command> …

The server gets a session of its own. It is stopped when the supervisor is told to (TERM or INT), or when the parent is gone,
even by kill -9: signal, wait, KILL. As subreaper the supervisor inherits every process the server leaves behind, also those
that made sessions of their own, so "everything" needs no guessing. Should the supervisor itself be killed, the kernel kills
the server's main process (parent-death signal). Exit code: 0 when stopped on request, else the server's.

A separate process because the parent-death signal belongs to the *thread* that forked, and servers are started from threads.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
PARENT_CHECK_SECONDS = 0.25


def prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def run_server(supervisor: int, account: str, command: list[str]) -> None:
    """Become the server. Never returns."""
    try:
        os.setsid()
        if account != "-":
            uid, gid = (int(part) for part in account.split(":"))
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after setuid, which clears it
        if os.getppid() != supervisor:
            os._exit(125)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"can't run {command[0]}: {error}", file=sys.stderr, flush=True)
    os._exit(127)


def descendants() -> list[int]:
    """Every process below this one, zombies too: behind the zombie of a main thread other threads may run, and have children.

    Empty only when nothing is left. Whatever runs below us does so below a child of ours, and those stay until we collect them.
    """
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                _, parent = stat.read().rpartition(")")[2].split()[:2]
        except OSError:  # it ended while we looked
            continue
        children.setdefault(int(parent), []).append(int(entry))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def reap(server: int) -> int | None:
    """Collect the processes that ended; the server's exit code when it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == server:
            code = os.waitstatus_to_exitcode(status)


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, number)


def end_everything(server: int, stop_signal: int, grace: float, whole_group: bool) -> None:
    send(-server if whole_group else server, stop_signal)
    deadline = time.monotonic() + grace
    reap(server)
    while descendants() and time.monotonic() < deadline:
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)
        reap(server)
    while left := descendants():
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(0.01)
        reap(server)


def main(arguments: list[str]) -> int:
    parent, stop_signal, grace, reach, account, *command = arguments
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    supervisor = os.getpid()
    server = os.fork()
    if server == 0:
        run_server(supervisor, account, command)
    code = 0
    while os.getppid() == int(parent):
        caught = signal.sigtimedwait(WATCHED, PARENT_CHECK_SECONDS)
        if caught is None:
            continue
        if caught.si_signo != signal.SIGCHLD:
            break
        ended = reap(server)
        if ended is not None:
            code = ended if ended >= 0 else 128 - ended
            break
    end_everything(server, int(stop_signal), float(grace), reach == "group")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
