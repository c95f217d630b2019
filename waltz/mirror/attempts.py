"""Attempts to mirror one partition, one after the other, each with the lock that keeps two processes apart."""

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.net.backoff import Backoff
from waltz.common.quiet_log import OutageLog
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.mutex import mutex
from waltz.common.zk.paths import ClusterPaths
from waltz.mirror.errors import MirrorStoppedError, PromotedError
from waltz.mirror.mirror_metrics import PartitionState, Stage

logger = logging.getLogger(__name__)

RETRY_INITIAL_S = 0.5
RETRY_MAXIMUM_S = 30.0
"""Longest pause between two attempts."""

LOCK_TIMEOUT_S = 5.0
"""How long another process is waited for before this one says that it stands by."""


class Target(NamedTuple):
    """The target cluster."""

    zookeeper: ZooKeeper
    root: str
    tls: ssl.SSLContext | None
    client_id: int
    """An id that no other client of the target has."""


class SourceFailedError(WaltzError):
    """The source does not deliver."""


class Attempts:
    """The attempts of one partition, until one of them says that it is over for good."""

    def __init__(self, partition_id: int, target: Target, state: PartitionState) -> None:
        self._partition_id = partition_id
        self._target = target
        self._state = state
        self._outage = OutageLog(logger)
        self._backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, random.Random())

    async def run(self, check: Callable[[], Awaitable[None]], work: Callable[[], Awaitable[None]]) -> None:
        """Attempt again and again. Returns when that is over for good: the state then says why.

        ``check`` is what precedes the lock, ``work`` what is done with it.
        """
        while True:
            try:
                await check()
                await self._alone(work)
            except PromotedError as error:
                logger.warning("%s", error)
                self.show(Stage.PROMOTED, str(error))
                return
            except MirrorStoppedError as error:
                logger.error("%s; it is not mirrored any more", error)
                self.show(Stage.STOPPED, str(error))
                return
            except SourceFailedError as error:
                self.show(Stage.WAITING_FOR_SOURCE, str(error))
                self._outage.failed(f"partition {self._partition_id} waits for the source: {error}")
            except WaltzError as error:
                if self._state.stage is not Stage.STANDING_BY:
                    self.show(Stage.WAITING, str(error))
                    self._outage.failed(f"partition {self._partition_id} waits for the target: {error}")
            await asyncio.sleep(self._backoff.next_delay_s())

    def show(self, stage: Stage, reason: str = "") -> None:
        """Say what the attempt does at present."""
        self._state.stage = stage
        self._state.reason = reason
        self._state.in_flight_bytes = 0

    def progressed(self) -> None:
        """The attempt has made progress: the next one begins without a long pause."""
        self._outage.over()
        self._backoff.reset()

    async def _alone(self, work: Callable[[], Awaitable[None]]) -> None:
        path = ClusterPaths.of(self._target.root).mirror_lock(self._partition_id)
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(mutex(self._target.zookeeper, path, timeout_s=LOCK_TIMEOUT_S))
            except DeadlineExceededError:
                self.show(Stage.STANDING_BY, f"another process holds {path}")
                self.progressed()
                raise
            if self._state.stage is Stage.STANDING_BY:
                self.show(Stage.WAITING)
            await work()
