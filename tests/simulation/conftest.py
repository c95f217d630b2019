"""Fixtures for tests of whole simulations."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.simulation.processes import SimulationServer


@pytest.fixture(scope="session")
def simulations() -> Iterator[SimulationServer]:
    """Runs command lines of ``tests.simulation``."""
    with contextlib.closing(SimulationServer()) as server:
        yield server
