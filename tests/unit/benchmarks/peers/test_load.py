import asyncio
import os

import pytest

from benchmarks.peers.load import append_for, measure, share
from benchmarks.peers.peer import Running


class Counting:
    """Takes appends, and notes how many were under way."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.under_way = 0
        self.most = 0

    async def append(self, payload: bytes) -> None:
        self.payloads.append(payload)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1


@pytest.mark.parametrize("in_flight", [1, 16])
async def test_as_many_as_asked_are_in_flight(in_flight: int) -> None:
    peer = Counting()
    latencies = await append_for(peer.append, b"data", in_flight, 0.0)
    assert len(latencies) == len(peer.payloads) == peer.most == in_flight
    assert peer.under_way == 0
    assert set(peer.payloads) == {b"data"}


async def test_a_failed_append_ends_the_measurement() -> None:
    async def append(payload: bytes) -> None:
        raise OSError("gone")

    with pytest.raises(ExceptionGroup) as caught:
        await append_for(append, b"", 2, 0.0)
    assert caught.group_contains(OSError, match="gone")


async def test_the_warm_up_does_not_count() -> None:
    peer = Counting()
    cost = await measure(Running(peer.append, [os.getpid()], "nothing"), b"", 4, 0.0)
    assert cost.appends == 4
    assert len(peer.payloads) == 8
    assert 0 <= cost.p50_s <= cost.p99_s <= cost.seconds
    assert cost.rate == cost.appends / cost.seconds


def test_share() -> None:
    values = [float(number) for number in range(100)]
    assert [share(values, part) for part in (0.0, 0.5, 0.99, 1.0)] == [0.0, 50.0, 99.0, 99.0]
    assert share([7.0], 0.99) == 7.0
