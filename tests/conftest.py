"""Fixtures that several kinds of tests share."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from waltz.local.zookeeper import LocalZooKeeper


def pytest_configure() -> None:
    """A shell starts programs in the background with SIGINT ignored, and what they start would ignore it as well."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

if os.environ.get("TEST_LOOP"):

    def pytest_asyncio_loop_factories(
        config: pytest.Config, item: pytest.Item
    ) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
        """``TEST_LOOP=uvloop`` has the tests run on that loop; without it they run on asyncio's own."""
        name = os.environ["TEST_LOOP"]
        return {name: LOOPS[name]}


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[LocalZooKeeper]:
    """A real ZooKeeper for the whole test run. Tests use roots of their own in it and do not stop it."""
    with LocalZooKeeper() as server:
        yield server
