"""The pytest plugin: a ``waltz_mock`` fixture.

    def test_transfer(waltz_mock):
        with waltz.blocking.connect(waltz_mock) as client:
            ...

It has four partitions; ``@pytest.mark.waltz_mock(partitions=1)`` asks for another number.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from waltz.client.mock.driver import MockDriver

_PARTITIONS = 4


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "waltz_mock(partitions=4): shape of the cluster that the fixture stands for")


@pytest.fixture
def waltz_mock(request: pytest.FixtureRequest) -> "MockDriver":
    """A mock driver of its own for each test."""
    from waltz.client.mock.driver import MockDriver  # imported at its use: every pytest run loads its plugins

    marker = request.node.get_closest_marker("waltz_mock")
    arguments = {} if marker is None else marker.kwargs
    return MockDriver(arguments.get("partitions", _PARTITIONS))
