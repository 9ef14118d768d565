"""Free TCP ports of the loopback interface."""

import contextlib
import socket

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """*count* different ports that nothing listens on at this moment.

    All are held open while they are picked, so they differ. Another process may take one before it is used: whoever starts a
    server tries again then (``server.Server``).
    """
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def is_listening(port: int) -> bool:
    """Whether something accepts connections at *port*."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
