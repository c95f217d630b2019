"""Fixtures of the client's tests."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.unit.client.application import World


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    """One partition."""
    world = World()
    yield world
    await world.close()


@pytest_asyncio.fixture
async def wide_world() -> AsyncIterator[World]:
    """Three partitions."""
    world = World(3)
    yield world
    await world.close()
