"""Fixtures that several kinds of tests share."""

from collections.abc import Iterator

import pytest

from waltz.local.zookeeper import LocalZooKeeper


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[LocalZooKeeper]:
    """A real ZooKeeper for the whole test run. Tests use roots of their own in it and do not stop it."""
    with LocalZooKeeper() as server:
        yield server
