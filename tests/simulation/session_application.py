"""Applications that append within write sessions, and fence, renew, and write alone for a while."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from tests.simulation.application import ClientHost, Context
from tests.simulation.checker import Checker, Submitted
from tests.simulation.clients import NEWEST
from tests.simulation.cluster import World
from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext
from waltz.client.errors import ClientClosedError
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId

_EXCLUSIVE_SHARE = 0.25


class SessionHost(ClientHost):
    """Its transactions are not attempted again but for locks."""

    def __init__(self, world: World, name: str, checker: Checker, quota: int) -> None:
        super().__init__(world, name, checker, quota)
        self.version = NEWEST
        self._fences = world.random(f"fences of {name}")
        self._always_exclusive = self._fences.random() < _EXCLUSIVE_SHARE

    def settings(self) -> dict[str, object]:
        return {
            **super().settings(),
            "client.enableSessionWrite": True,
            "client.enableExclusiveSession": self._always_exclusive,
            "client.sessionTimeout": 5_000,
        }

    def beside(self, client: WaltzClient) -> list[Coroutine[Any, Any, None]]:
        partitions = range(self.world.options.partitions)
        return [self._keep_session(client, partition_id) for partition_id in partitions]

    def context(self, submitted: Submitted) -> TransactionContext:
        return SessionContext(self, submitted)

    async def _keep_session(self, client: WaltzClient, partition_id: int) -> None:
        """Begin a session now and then, and go on when somebody else has begun one."""
        while True:
            await asyncio.sleep(self._fences.choice((0.02, 0.3, 1.0, 3.0)) * self._fences.random())
            over = self.world.loop.time() >= self.world.options.duration_s - 1.0
            try:
                held = client.write_session(partition_id)
                if held is None:
                    if not over and self._fences.random() < 0.4:
                        await self._fence(client, partition_id, None)
                    elif not over or not self.idle:
                        async with self._asking(client, partition_id):
                            await client.renew_session(partition_id)
                elif not over:
                    await self._use_session(client, partition_id, held)
            except ClientClosedError:
                return
            except WaltzError as error:
                self.world.trace.line(self.name, f"has no session of partition {partition_id}: {error}")

    async def _use_session(self, client: WaltzClient, partition_id: int, held: int) -> None:
        way = self._fences.random()
        if way < 0.3:
            await self._fence(client, partition_id, None if way < 0.1 else held)
        elif way < 0.4:
            async with self._asking(client, partition_id):
                await client.renew_session(partition_id)
        elif way < 0.6:
            await client.last_transaction_id(partition_id)
        elif way < 0.75:
            exclusive = client.exclusive(partition_id)
            registered = self._registered_last(client, partition_id)
            async with self._asking(client, partition_id):
                session = await exclusive.__aenter__()
            self._check_decided(client, partition_id, session.transaction_id, registered)
            await asyncio.sleep(self._fences.random())
            async with self._asking(client, partition_id):
                await exclusive.__aexit__(None, None, None)

    async def _fence(self, client: WaltzClient, partition_id: int, expected: int | None) -> None:
        registered = self._registered_last(client, partition_id)
        async with self._asking(client, partition_id):
            last = await client.last_transaction_id(partition_id, fence=True, if_session=expected)
        self._check_decided(client, partition_id, last, registered)

    def _registered_last(self, client: WaltzClient, partition_id: int) -> bytes | None:
        """The append that was sent last."""
        return client._engine.partitions[partition_id].appends.monitor.last_enqueued

    def _check_decided(self, client: WaltzClient, partition_id: int, last: int, registered: bytes | None) -> None:
        """A session has begun: what came before is applied, and what was sent before is decided."""
        if registered is not None and registered in client._engine.partitions[partition_id].appends.monitor:
            self.world.fail(
                f"{self.name} has begun a session of partition {partition_id}; {ReqId(registered)} is not decided"
            )
        if self.applied(partition_id) < last:
            self.world.fail(
                f"{self.name} has begun a session of partition {partition_id} behind {last}, and has applied "
                f"{self.applied(partition_id)}"
            )

    @contextlib.asynccontextmanager
    async def _asking(self, client: WaltzClient, partition_id: int) -> AsyncIterator[None]:
        """Meanwhile the client may take another number."""
        checks = self.world.session_checks
        checks.client_asks(client.client_id, partition_id)
        try:
            yield
        finally:
            number = None
            with contextlib.suppress(WaltzError):
                number = client.write_session(partition_id)
            checks.client_asked(client.client_id, partition_id, number)


class SessionContext(Context):
    """One transaction, which is attempted again for its locks only."""

    __slots__ = ("_conflicts",)

    def __init__(self, host: ClientHost, submitted: Submitted) -> None:
        super().__init__(host, submitted)
        self._conflicts = 0

    def execute(self, builder: TransactionBuilder) -> bool:
        """See the base class."""
        if len(self._submitted.attempts) > self._conflicts:
            self._host.world.fail(
                f"transaction {self._submitted.number} is attempted again, behind later ones; it had "
                f"{len(self._submitted.attempts)} attempts and {self._conflicts} conflicts"
            )
        return super().execute(builder)

    def on_lock_conflict(self, transaction_id: int) -> None:
        """See the base class."""
        self._conflicts += 1
        super().on_lock_conflict(transaction_id)
