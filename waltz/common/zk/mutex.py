"""The mutex of the store's administration: one ephemeral node, whose creator holds the lock.

No queue, no fairness, not re-entrant, like the original's (lock node ``store/adminLock``). One addition: the node has a
token, so that a creation whose answer was lost is recognised as one's own instead of blocking all processes until the
session ends. Before the token the data say which process holds the lock, for those who wait. The original never reads
the data of the node. The holder may replace the data by others that contain the token.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from waltz.common.errors import DeadlineExceededError
from waltz.common.iso_time import from_milliseconds
from waltz.common.zk.client import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    Stat,
    ZooKeeper,
    ZooKeeperError,
)
from waltz.common.zk.session import SessionZooKeeper

logger = logging.getLogger(__name__)

_RELEASE_TIMEOUT_S = 30.0
_REPEAT_DELAY_S = 0.1
_MAX_NAME_BYTES = 300
_SESSION_MASK = (1 << 64) - 1
"""ZooKeeper writes sessions as unsigned numbers."""


@contextlib.asynccontextmanager
async def mutex(
    zookeeper: ZooKeeper, path: str, *, timeout_s: float | None = 60.0, token: bytes | None = None
) -> AsyncIterator[ZooKeeper]:
    """Hold the lock at ``path``, whose parent must exist; a given ``token`` is of this holder alone, and all its data.

    Yields a view of the client for use inside: when the session with the lock has ended, its calls fail instead of
    continuing without the lock.

    Raises ``DeadlineExceededError`` when the lock is not free within ``timeout_s``, which says who was seen to hold it,
    and ``NoNodeError`` when the parent is missing.
    """
    own = token or uuid.uuid4().bytes
    data = own if token else b"%s\n%s" % (_this_process().encode(), own)
    token, seen = own, _Seen()
    try:
        async with asyncio.timeout(timeout_s):
            session = await _acquire(zookeeper, path, data, token, seen)
    except TimeoutError:
        await _release(zookeeper, path, token)
        raise DeadlineExceededError(
            f"the lock {path} was not free within {timeout_s:g} s: {seen.holder or 'ZooKeeper was away'}"
        ) from None
    except BaseException:
        await _release(zookeeper, path, token)
        raise
    try:
        yield session
    finally:
        await _release(session, path, token)


class _Seen:
    """Who was seen to hold the lock last."""

    holder: str | None = None


def _this_process() -> str:
    """The words for this process, for who waits for its lock."""
    command = Path((sys.argv or [""])[0]).name or "python"
    return f"{command} on {socket.gethostname()}, process {os.getpid()}"


def _holder(data: bytes | None, stat: Stat) -> str:
    """The words for the holder of a lock, by its node."""
    name, found, _ = (data or b"").partition(b"\n")
    known = bool(found) and len(name) <= _MAX_NAME_BYTES and name.isascii() and name.decode().isprintable()
    who = name.decode() if known else "a process that does not give its name"
    since = f", since {from_milliseconds(stat.mtime_ms):%Y-%m-%dT%H:%M:%SZ}" if stat.mtime_ms else ""
    return f"last held by {who}{since}, in the ZooKeeper session {stat.owner & _SESSION_MASK:#x}"


async def _acquire(zookeeper: ZooKeeper, path: str, data: bytes, token: bytes, seen: _Seen) -> SessionZooKeeper:
    while True:
        with contextlib.suppress(NodeExistsError, ConnectionLossError, SessionExpiredError):
            await zookeeper.create(path, data, ephemeral=True)
        # Whatever the creation returned, the node shows the owner of the lock.
        changed = asyncio.Event()
        try:
            present, stat = await zookeeper.get(path, changed.set)
        except NoNodeError:
            continue
        except (ConnectionLossError, SessionExpiredError):
            await asyncio.sleep(_REPEAT_DELAY_S)
            continue
        if token in (present or b"") and stat.owner == zookeeper.session_id:
            return SessionZooKeeper(zookeeper, stat.owner)
        seen.holder = _holder(present, stat)
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
        logger.warning(
            "ZooKeeper: the lock %s could not be released within %g s; others get it when the session of this process "
            "ends, at the latest one zookeeper.sessionTimeout after the process",
            path,
            _RELEASE_TIMEOUT_S,
        )


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
