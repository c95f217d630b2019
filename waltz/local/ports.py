"""Free loopback ports for the nodes of a local cluster."""

import random
import socket

HOST = "127.0.0.1"
_RANGE = range(15_000, 32_000)
"""Below the range from which the kernel takes ports for outgoing connections, so that none of those takes one first."""


def free_ports(count: int) -> list[int]:
    """``count`` different ports on the loopback interface that nobody listens on at the moment."""
    held: list[socket.socket] = []
    ports: list[int] = []
    try:
        for port in random.sample(_RANGE, len(_RANGE)):
            probe = socket.socket()
            held.append(probe)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    finally:
        for probe in held:
            probe.close()
    raise OSError(f"no {count} free ports between {_RANGE.start} and {_RANGE.stop} on {HOST}")
