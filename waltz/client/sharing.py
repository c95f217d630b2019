"""Shares partitions among the instances of an application: one instance has a partition at a time.

Every instance has an ephemeral node, and so has every taken partition. An instance with more than a fair share gives
partitions back; an instance with less takes free ones. Partitions move only when they must, and each instance decides
for itself. The nodes of a dead instance go when its session ends.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection

from waltz.client.errors import PositionConflictError
from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.zk.client import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    State,
    ZooKeeper,
    ZooKeeperError,
)
from waltz.common.zk.paths import ClusterPaths

logger = logging.getLogger(__name__)

RETRY_S = 1.0


class _NotBegunError(Exception):
    """Reading of a partition cannot begin at present."""


def fair_part(partition_count: int, members: Collection[str], name: str) -> int:
    """The number of partitions that a member may have."""
    each, left = divmod(partition_count, len(members))
    return each + (sorted(members).index(name) < left)


class Membership:
    """The membership of one instance in its group, from :meth:`start` to :meth:`leave`.

    ``take`` is awaited when a partition has become this instance's, ``give_back`` before it becomes another's, and
    ``lost`` is called when it may be another's already, because the session has ended.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        root: str,
        group: str,
        partition_ids: Collection[int],
        *,
        take: Callable[[int], Awaitable[None]],
        give_back: Callable[[int], Awaitable[None]],
        lost: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """``failed`` gets a fatal error. Raises ``ValueError`` when the group's name cannot be the name of a node."""
        check_group(group)
        paths = ClusterPaths.of(root)
        self.owned: set[int] = set()
        """The partitions that are this instance's."""
        self._zookeeper = zookeeper
        self._members = paths.consumer_members(group)
        self._owners = paths.consumer_owners(group)
        self._partition_ids = sorted(partition_ids)
        self._name = uuid.uuid4().hex
        self._take = take
        self._give_back = give_back
        self._lost = lost
        self._failed = failed
        self._doubtful: set[int] = set()
        self._has_begun = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] | None = None

    def start(self) -> None:
        """Join the group."""
        self._stop_listening = self._zookeeper.add_listener(self._state_changed)
        self._task = asyncio.create_task(self._run(), name="shares of partitions")

    async def leave(self) -> None:
        """Give all partitions back, so that others can take them at once; the session's end frees the rest."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        try:
            for partition_id in sorted(self.owned):
                await self._release(partition_id)
            for partition_id in list(self._doubtful):
                await self._settle(partition_id)
            await self._delete(f"{self._members}/{self._name}")
        except ZooKeeperError as error:
            logger.warning("the partitions of this instance cannot be given back before its session ends: %s", error)
        finally:
            if self._stop_listening is not None:
                self._stop_listening()

    def check(self) -> None:
        """Check by the clock whether the session has ended; ``lost`` is called if so.

        To be called before records are handed out: a process that stood still has not been told yet.
        """
        _ = self._zookeeper.state

    def give_up(self, partition_id: int) -> None:
        """A partition turned out to be another instance's: contend for it anew."""
        self.owned.discard(partition_id)
        self._doubtful.add(partition_id)
        self._changed.set()

    def _state_changed(self, state: State) -> None:
        if state is State.LOST:
            owned, self.owned = self.owned, set()
            self._doubtful |= owned  # if the session is alive after all, the nodes still exist
            for partition_id in owned:
                self._lost(partition_id)
            if owned:
                logger.warning("the ZooKeeper session has ended; partitions %s may be others' now", sorted(owned))
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._balance()
            except (ConnectionLossError, SessionExpiredError, DeadlineExceededError, _NotBegunError) as error:
                logger.warning("shares of partitions: %s; trying again", error)
                await asyncio.sleep(RETRY_S)
                continue
            except BaseException as error:
                if not isinstance(error, asyncio.CancelledError):
                    self._failed(error)
                raise
            await self._changed.wait()

    async def _balance(self) -> None:
        zookeeper = self._zookeeper
        await self._ensure_member()
        for partition_id in list(self._doubtful):
            await self._settle(partition_id)
        members = await self._children(self._members)
        taken = await self._children(self._owners)
        if self._name not in members:
            self._changed.set()  # the session ended a moment ago
            return
        allowed = fair_part(len(self._partition_ids), members, self._name)
        for partition_id in sorted(self.owned)[allowed:]:
            await self._release(partition_id)
        free = [each for each in self._partition_ids if str(each) not in taken and each not in self.owned]
        begin = sorted(members).index(self._name) * len(free) // len(members)
        for partition_id in free[begin:] + free[:begin]:
            if len(self.owned) >= allowed:
                break
            session_id = zookeeper.session_id
            self._doubtful.add(partition_id)  # a creation continues when its answer is lost, or its caller is gone
            try:
                await zookeeper.create(self._owner(partition_id), None, ephemeral=True)
            except NodeExistsError:
                self._doubtful.discard(partition_id)
                continue
            if session_id is None or zookeeper.session_id != session_id:
                self._changed.set()  # the node is gone with its session, or the partition will be taken again
                return
            self._doubtful.discard(partition_id)
            await self._begin(partition_id)

    async def _begin(self, partition_id: int) -> None:
        self.owned.add(partition_id)
        try:
            await self._take(partition_id)
        except BaseException as error:
            self.owned.discard(partition_id)
            self._lost(partition_id)
            self._doubtful.add(partition_id)  # nothing is awaited here: a cancellation must not get lost
            if self._may_pass(error):
                raise _NotBegunError(f"partition {partition_id} cannot be begun at present: {error}") from error
            raise
        self._has_begun = True
        if partition_id not in self.owned:
            self._lost(partition_id)  # the session ended meanwhile

    def _may_pass(self, error: BaseException) -> bool:
        """Whether an error may pass: another instance was first or, after a good start, the database is away."""
        if isinstance(error, WaltzError):
            return isinstance(error, PositionConflictError)
        return self._has_begun and isinstance(error, Exception)

    async def _release(self, partition_id: int) -> None:
        await self._give_back(partition_id)
        if partition_id in self.owned:
            self.owned.discard(partition_id)
            self._doubtful.add(partition_id)
            await self._settle(partition_id)

    async def _settle(self, partition_id: int) -> None:
        """Delete nodes of this session for partitions that it does not own."""
        await self._zookeeper.sync(self._owners)  # a creation whose answer was lost has ended by then
        stat = await self._zookeeper.exists(self._owner(partition_id))
        if stat is not None and stat.owner == self._zookeeper.session_id:
            await self._delete(self._owner(partition_id))
        self._doubtful.discard(partition_id)

    async def _ensure_member(self) -> None:
        for parent in (self._members, self._owners):
            with contextlib.suppress(NodeExistsError):
                await self._zookeeper.create(parent, None, make_path=True)
        with contextlib.suppress(NodeExistsError):
            await self._zookeeper.create(f"{self._members}/{self._name}", None, ephemeral=True)

    async def _children(self, path: str) -> list[str]:
        return await self._zookeeper.children(path, self._changed.set)

    async def _delete(self, path: str) -> None:
        with contextlib.suppress(NoNodeError):
            await self._zookeeper.delete(path)

    def _owner(self, partition_id: int) -> str:
        return f"{self._owners}/{partition_id}"


def check_group(group: str) -> None:
    """Raise ``ValueError`` when the group cannot be the name of a node."""
    if not group or group in (".", "..") or "/" in group or not group.isprintable():
        raise ValueError(f"the name of a group is printable, without slashes, and not empty: {group!r}")
