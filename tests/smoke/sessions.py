"""A client of the smoke test that begins write sessions now and then, and goes on in those of others."""

import asyncio
import contextlib
import random
from collections import defaultdict

from tests.smoke.journal import Fence, Journal
from waltz.client.callbacks import WaltzClient
from waltz.common.errors import WaltzError

MEAN_INTERVAL_S = 1.0
"""Between two sessions that one client begins."""
EXCLUSIVE_SHARE = 0.2
LONGEST_EXCLUSIVE_S = 0.5
PATIENCE_S = 0.1
"""How long nothing is appended to a partition where somebody else holds an exclusive session."""


class Sessions:
    """Of one client, for all partitions. What it begins is written into the journal."""

    def __init__(self, client: WaltzClient, journal: Journal, draw: random.Random) -> None:
        self._client = client
        self._journal = journal
        self._draw = draw
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self) -> None:
        """Begin sessions, for ever. Some come to nothing, while nodes are down or because somebody else is faster."""
        while True:
            await asyncio.sleep(self._draw.expovariate(1 / MEAN_INTERVAL_S))
            partition_id = self._draw.randrange(self._client.partition_count)
            with contextlib.suppress(WaltzError):
                async with self._locks[partition_id]:
                    if self._draw.random() < EXCLUSIVE_SHARE:
                        await self._be_exclusive(partition_id)
                    else:
                        await self._fence(partition_id)

    async def regain(self, partition_id: int) -> None:
        """Return when appends to the partition belong to a session again."""
        async with self._locks[partition_id]:
            while self._client.write_session(partition_id) is None:
                try:
                    if self._draw.random() < EXCLUSIVE_SHARE:
                        await self._fence(partition_id)
                    else:
                        await self._client.renew_session(partition_id)
                except WaltzError:
                    await asyncio.sleep(PATIENCE_S)

    async def _fence(self, partition_id: int) -> None:
        transaction_id = await self._client.last_transaction_id(partition_id, fence=True)
        number = self._client.write_session(partition_id)
        if number is not None:  # else it is over already
            self._journal.fences.append(Fence(partition_id, number, transaction_id, False))

    async def _be_exclusive(self, partition_id: int) -> None:
        async with self._client.exclusive(partition_id) as session:
            self._journal.fences.append(Fence(partition_id, session.number, session.transaction_id, True))
            await asyncio.sleep(self._draw.random() * LONGEST_EXCLUSIVE_S)
