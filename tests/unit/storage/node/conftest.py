"""Fixtures of the tests of a storage node with a journal."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.storage.node.journal_support import DIRECTORY, PARTITIONS, Client, Held, HeldFiles, open_manager
from waltz.storage.node import checkpoints
from waltz.storage.node import journaled as journaled_module
from waltz.storage.node.scrubber import Scrubber


@pytest.fixture
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 0.001)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr(journaled_module, "ALONE_TURNS", 2)


@pytest.fixture
async def held(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, frequent_checkpoints: None
) -> AsyncIterator[Held]:
    """All partitions are assigned. The parameter of an indirect one is the threshold of segments."""
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    monkeypatch.setattr(Scrubber, "start", lambda self: None)
    files = HeldFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    manager = await open_manager(files, threshold=getattr(request, "param", 1_000_000))
    await manager.assign(range(PARTITIONS))
    yield Held(files, manager, Client(manager))
    await manager.close()
