"""A ZooKeeper ensemble whose followers lag: each session reads from a tree of its own, which is as old as it may be.

What ZooKeeper promises is kept: writes are decided by the leader, one after the other; a session sees them in that
order, and what it has written itself (or tried to) before it gets the answer; a watch fires before the change it was
set for can be read. What it does not promise is missing: a read may be older than what another session has written
long ago, unless the session has synced.
"""

import contextvars
from collections import deque
from collections.abc import Callable

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.simulation.loop import SimulatedLoop
from waltz.common.zk.client import Stat

Change = Callable[[MemoryZooKeeperServer], object]


class Follower(MemoryZooKeeperServer):
    """The tree as one session sees it. The changes are the leader's, in their order."""

    def __init__(
        self, leader: "Leader", loop: SimulatedLoop, context: contextvars.Context, lag_s: Callable[[], float]
    ) -> None:
        """``lag_s``: how long the next change takes to get here, 0 for at once."""
        super().__init__()
        for change in leader.changes:
            change(self)
        self._leader = leader
        self._loop = loop
        self._context = context
        self._lag_s = lag_s
        self._due_s = 0.0
        self._behind: deque[Change] = deque()
        leader.followers.append(self)

    @property
    def changes_behind(self) -> int:
        """Changes that have not arrived."""
        return len(self._behind)

    def follow(self, change: Change) -> None:
        """For the leader: there is another change."""
        now_s = self._loop.now_s
        self._due_s = max(self._due_s, now_s + self._lag_s())
        if self._due_s <= now_s and not self._behind:
            change(self)
            return
        self._behind.append(change)
        self._loop.call_at(self._due_s, self._arrive, change, context=self._context)

    def catch_up(self) -> None:
        """See everything that the leader has decided until now."""
        while self._behind:
            self._behind.popleft()(self)

    def leave(self) -> None:
        """The session is over."""
        if self in self._leader.followers:
            self._leader.followers.remove(self)

    def _arrive(self, change: Change) -> None:
        if any(waiting is change for waiting in self._behind):
            while (first := self._behind.popleft()) is not change:
                first(self)
            change(self)


class Leader(MemoryZooKeeperServer):
    """The tree as it is decided."""

    def __init__(self, latency_s: Callable[[], float]) -> None:
        super().__init__(latency_s)
        self.changes: list[Change] = []
        """All that was ever done to the tree, for followers that begin later."""
        self.followers: list[Follower] = []

    def create(self, path: str, data: bytes | None, owner: int, sequential: bool) -> str:
        """See the base class."""
        made = super().create(path, data, owner, sequential)
        self._tell(lambda tree: tree.create(made, data, owner, sequential=False))
        return made

    def set(self, path: str, data: bytes | None, version: int) -> Stat:
        """See the base class."""
        stat = super().set(path, data, version)
        self._tell(lambda tree: tree.set(path, data, version))
        return stat

    def delete(self, path: str, version: int) -> None:
        """See the base class."""
        super().delete(path, version)
        self._tell(lambda tree: tree.delete(path, version))

    def release_watches(self, client: MemoryZooKeeper) -> None:
        """See the base class; the watches are where the client reads."""
        super().release_watches(client)
        for follower in self.followers:
            follower.release_watches(client)

    def _tell(self, change: Change) -> None:
        self.changes.append(change)
        for follower in self.followers:
            follower.follow(change)
