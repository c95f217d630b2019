"""The mutex of the store's administration: one ephemeral node, whose creator holds the lock.

No queue, no fairness, not re-entrant, like the original's (lock node ``store/adminLock``). One addition: the node has a
token, so that a creation whose answer was lost is recognised as one's own instead of blocking all processes until the
session ends. The original never reads the data of the node. The holder may replace the data by others that contain the
token.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator

from waltz.common.errors import DeadlineExceededError
from waltz.common.zk.client import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeper,
    ZooKeeperError,
)
from waltz.common.zk.session import SessionZooKeeper

logger = logging.getLogger(__name__)

_RELEASE_TIMEOUT_S = 30.0
_REPEAT_DELAY_S = 0.1


@contextlib.asynccontextmanager
async def mutex(
    zookeeper: ZooKeeper, path: str, *, timeout_s: float | None = 60.0, token: bytes | None = None
) -> AsyncIterator[ZooKeeper]:
    """Hold the lock at ``path``, whose parent must exist; ``token`` is of this holder alone.

    Yields a view of the client for use inside: when the session with the lock has ended, its calls fail instead of
    continuing without the lock.

    Raises ``DeadlineExceededError`` when the lock is not free within ``timeout_s``, and ``NoNodeError`` when the parent
    is missing.
    """
    token = token or uuid.uuid4().bytes
    try:
        async with asyncio.timeout(timeout_s):
            session = await _acquire(zookeeper, path, token)
    except TimeoutError:
        await _release(zookeeper, path, token)
        raise DeadlineExceededError(
            f"the lock {path} was not free within {timeout_s:g} s: others held it, or ZooKeeper was away"
        ) from None
    except BaseException:
        await _release(zookeeper, path, token)
        raise
    try:
        yield session
    finally:
        await _release(session, path, token)


async def _acquire(zookeeper: ZooKeeper, path: str, token: bytes) -> SessionZooKeeper:
    while True:
        with contextlib.suppress(NodeExistsError, ConnectionLossError, SessionExpiredError):
            await zookeeper.create(path, token, ephemeral=True)
        # Whatever the creation returned, the node shows the owner of the lock.
        changed = asyncio.Event()
        try:
            data, stat = await zookeeper.get(path, changed.set)
        except NoNodeError:
            continue
        except (ConnectionLossError, SessionExpiredError):
            await asyncio.sleep(_REPEAT_DELAY_S)
            continue
        if token in (data or b"") and stat.owner == zookeeper.session_id:
            return SessionZooKeeper(zookeeper, stat.owner)
        await changed.wait()


async def _release(zookeeper: ZooKeeper, path: str, token: bytes) -> None:
    """Delete the node if it is ours; repeats until that is certain or the session has ended."""
    try:
        async with asyncio.timeout(_RELEASE_TIMEOUT_S):
            while True:
                if await _try_release(zookeeper, path, token):
                    return
                await asyncio.sleep(_REPEAT_DELAY_S)
    except TimeoutError:
        logger.warning("ZooKeeper: the lock %s could not be released; it will end with the session", path)


async def _try_release(zookeeper: ZooKeeper, path: str, token: bytes) -> bool:
    try:
        data, stat = await zookeeper.get(path)
        if token in (data or b""):
            await zookeeper.delete(path, stat.version)
    except ConnectionLossError:
        return False
    except ZooKeeperError:
        pass  # gone already, or gone with its session
    return True
