"""Every peer of the benchmark that is installed starts, takes appends, and ends."""

import tempfile
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import PEERS
from benchmarks.peers.load import measure
from benchmarks.peers.peer import Peer, missing

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
async def test_takes_appends(peer: Peer) -> None:
    """In a directory below one that every user may enter: PostgreSQL does not run as root."""
    if needs := missing(peer):
        pytest.skip("; ".join(needs))
    with tempfile.TemporaryDirectory() as directory:
        async with peer.start(Path(directory), 4) as running:
            cost = await measure(running, b"some data", 4, 0.0)
            assert running.promise
    assert cost.appends == 4
    assert 0 < cost.p50_s <= cost.p99_s <= cost.seconds
