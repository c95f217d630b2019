"""From configuration to limits, and what the process's limit of open files leaves of them."""

import resource

import pytest

from waltz.common.config.schemas import ServerConfig, StorageConfig, from_mapping
from waltz.common.errors import ConfigError
from waltz.common.net.limits import (
    ListenerLimits,
    TrafficLimits,
    fit_to_open_files,
    listener_limits,
    raise_open_files,
    traffic_limits,
)

UNLIMITED = resource.RLIM_INFINITY
SERVER = {
    "zookeeper.connectString": "zk:2181",
    "zookeeper.sessionTimeout": 30000,
    "cluster.root": "/waltz",
    "server.port": 55180,
    "server.host": "node1",
}
STORAGE = {
    "zookeeper.connectString": "zk:2181",
    "zookeeper.sessionTimeout": 30000,
    "cluster.root": "/waltz",
    "storage.port": 1,
    "storage.admin.port": 2,
    "storage.directory": "/d",
}


class FakeLimit:
    """The process's limit of open files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.now = (soft, hard)
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.now)
        monkeypatch.setattr(resource, "setrlimit", lambda _, limits: setattr(self, "now", limits))


@pytest.mark.parametrize(
    ("soft", "hard", "possible", "after"),
    [
        (1024, UNLIMITED, 10_000, 10_256),
        (1024, 1 << 20, 10_000, 10_256),
        (20_000, 20_000, 10_000, 20_000),
        (UNLIMITED, UNLIMITED, 10_000, UNLIMITED),
        (1024, 4096, 4096 - 256, 4096),
        (100, 100, 50, 100),
    ],
)
def test_connections_leave_files_to_everything_else(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    possible: int,
    after: int,
) -> None:
    limit = FakeLimit(monkeypatch, soft, hard)
    assert fit_to_open_files(10_000, "server.connections.max") == possible
    assert limit.now == (after, hard)
    assert bool(caplog.records) == (possible < 10_000)
    assert ("server.connections.max is 10000" in caplog.text) == (possible < 10_000)


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [(1024, UNLIMITED, 5000), (1024, 5000, 5000), (1024, 4096, 4096), (9000, 9000, 9000), (UNLIMITED, UNLIMITED, None)],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int | None
) -> None:
    limit = FakeLimit(monkeypatch, soft, hard)
    expected = UNLIMITED if after is None else after
    assert raise_open_files(5000) == expected
    assert limit.now == (expected, hard)


def test_other_files_are_reserved_beside_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limit = FakeLimit(monkeypatch, 1024, UNLIMITED)
    assert fit_to_open_files(2000, "storage.connections.max", 12_256) == 2000
    assert limit.now == (14_256, UNLIMITED)
    assert not caplog.records
    FakeLimit(monkeypatch, 1024, 13_000)
    assert fit_to_open_files(2000, "storage.connections.max", 12_256) == 2000
    FakeLimit(monkeypatch, 1024, 3000)
    assert fit_to_open_files(2000, "storage.connections.max", 12_256) == 1500


def test_defaults() -> None:
    server, storage = from_mapping(SERVER, ServerConfig).connections, from_mapping(STORAGE, StorageConfig).connections
    assert traffic_limits(server) == TrafficLimits()
    assert traffic_limits(storage) == TrafficLimits(unread_timeout_s=60, max_receive_bytes=1 << 30)
    assert listener_limits(server, "key", 5) == ListenerLimits(
        max_per_address=5000, max_payload_bytes=5, opening_payload_bytes=64 << 10
    )
    assert (storage.max, storage.max_per_address, storage.max_admin) == (2000, 1000, 100)


def test_settings_change_what_they_name() -> None:
    settings = {
        "server.acl.enabled": True,
        "server.ssl.trustStore.location": "/trust.pem",
        "server.connections": {
            "max": 7,
            "maxPerAddress": 6,
            "maxPerPrincipal": 4,
            "helloTimeout": 1500,
            "frameTimeout": 2500,
            "unreadTimeout": 3500,
            "receiveMemory": 1 << 30,
            "sendMemory": 99,
        },
    }
    connections = from_mapping({**SERVER, **settings}, ServerConfig).connections
    assert traffic_limits(connections) == TrafficLimits(2.5, 3.5, 1 << 30, 99)
    assert listener_limits(connections, "key", 5) == ListenerLimits(
        max_connections=7,
        max_per_address=6,
        max_per_principal=4,
        hello_timeout_s=1.5,
        max_payload_bytes=5,
        opening_payload_bytes=64 << 10,
    )


def test_one_message_of_the_largest_size_must_fit() -> None:
    with pytest.raises(ConfigError, match=r"^server\.connections\.receiveMemory \(1000\) must be at least twice"):
        from_mapping({**SERVER, "server.connections.receiveMemory": 1000}, ServerConfig)
    with pytest.raises(ConfigError, match=r"storage\.maxRequestSize \(2147483647\)"):
        from_mapping({**STORAGE, "storage.maxRequestSize": (1 << 31) - 1}, StorageConfig)
