"""Fixtures that several kinds of tests share."""

import signal
from collections.abc import Iterator

import pytest

from waltz.local.zookeeper import LocalZooKeeper


def pytest_configure() -> None:
    """A shell starts programs in the background with SIGINT ignored, and what they start would ignore it as well."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[LocalZooKeeper]:
    """A real ZooKeeper for the whole test run. Tests use roots of their own in it and do not stop it."""
    with LocalZooKeeper() as server:
        yield server
