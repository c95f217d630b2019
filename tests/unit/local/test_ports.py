import socket

import pytest

from waltz.local import ports
from waltz.local.ports import HOST, free_ports


def test_ports_are_free_and_different() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    for port in found:
        with socket.socket() as listener:
            listener.bind((HOST, port))


def test_a_port_that_is_taken_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports, "_RANGE", range(taken, taken + 1))
        with pytest.raises(OSError, match="no 1 free ports between"):
            free_ports(1)
