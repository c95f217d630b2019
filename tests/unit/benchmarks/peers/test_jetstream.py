from pathlib import Path

import pytest

from benchmarks.peers.jetstream import FIRST_WITH_SYNC, configuration, version_of


@pytest.mark.parametrize(
    ("text", "version", "syncs"),
    [
        ("nats-server: v2.9.10\n", (2, 9, 10), False),
        ("nats-server: v2.10.0\n", (2, 10, 0), True),
        ("nats-server: v2.15.1-RC.1\n", (2, 15, 1), True),
    ],
)
def test_versions(text: str, version: tuple[int, ...], syncs: bool) -> None:
    assert version_of(text) == version
    assert (version >= FIRST_WITH_SYNC) == syncs


def test_what_is_no_version() -> None:
    with pytest.raises(ValueError, match="not a version of nats-server: 'none'"):
        version_of("none")


def test_configuration() -> None:
    text = configuration(1, [11, 12, 13, 21, 22, 23], Path("/data"), syncs=True)
    assert text == (
        'listen: "127.0.0.1:12"\n'
        "server_name: server1\n"
        'jetstream { store_dir: "/data", sync_interval: always }\n'
        'cluster { name: bench, listen: "127.0.0.1:22", routes: ["nats-route://127.0.0.1:21", '
        '"nats-route://127.0.0.1:22", "nats-route://127.0.0.1:23"] }\n'
    )
    assert "sync_interval" not in configuration(1, [11, 12, 13, 21, 22, 23], Path("/data"), syncs=False)
