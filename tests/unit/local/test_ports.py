import socket

import pytest

from waltz.common.errors import ConfigError
from waltz.local.ports import HOST, PORTS_VARIABLE, free_ports


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
        monkeypatch.setenv(PORTS_VARIABLE, f"{taken}-{taken}")
        with pytest.raises(OSError, match="no 1 free ports between"):
            free_ports(1)


def test_another_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, "30100-30119")
    assert set(free_ports(3)) <= set(range(30100, 30120))


@pytest.mark.parametrize("text", ["", "30100", "30100-", "b-c", "30119-30100", "0-5", "65000-65536", "-5-7"])
def test_what_is_no_range_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, text)
    with pytest.raises(ConfigError, match="WALTZ_LOCAL_PORTS is .* such as 20000-20999"):
        free_ports(1)
