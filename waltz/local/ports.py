"""Free loopback ports for the nodes of a local cluster."""

import os
import random
import socket

from waltz.common.errors import ConfigError

HOST = "127.0.0.1"
_RANGE = range(15_000, 32_000)
"""The range of the ports. It is below the range of the kernel for outgoing connections, so that no such connection
takes one of these ports."""

PORTS_VARIABLE = "WALTZ_LOCAL_PORTS"
"""The environment variable with another range, such as ``20000-20999``, for machines with several users that start
clusters."""


def free_ports(count: int) -> list[int]:
    """``count`` different ports on the loopback interface, at present without a listener.

    Raises:
        ConfigError: The variable ``WALTZ_LOCAL_PORTS`` is no range.
        OSError: Fewer ports are free.
    """
    held: list[socket.socket] = []
    ports: list[int] = []
    candidates = _range()
    try:
        for port in random.sample(candidates, len(candidates)):
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
    raise OSError(f"no {count} free ports between {candidates.start} and {candidates.stop} on {HOST}")


def _range() -> range:
    text = os.environ.get(PORTS_VARIABLE)
    if text is None:
        return _RANGE
    first, separator, last = text.partition("-")
    if not (separator and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65_536):
        raise ConfigError(f"{PORTS_VARIABLE} is {text!r}; it has to be a range of ports such as 20000-20999")
    return range(int(first), int(last) + 1)
