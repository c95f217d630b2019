"""The ZooKeeper of a simulated cluster, as one process sees it.

The tree and its sessions are those of :mod:`waltz.common.zk.memory`. Here is what belongs to the process: watches and
listeners are called inside of it, late if the fault demands, and its session ends some time after the process did.
"""

import contextvars
import random
from collections.abc import Callable

from tests.simulation.loop import Process, running_process
from waltz.common.zk.client import ANY_VERSION, Listener, Stat, State, Watch
from waltz.common.zk.memory import MemoryZooKeeper, MemoryZooKeeperServer

OPERATION_TIMEOUT_S = 10.0
"""Deadline of one operation."""


class SimulatedEnsemble:
    """The ZooKeeper ensemble."""

    def __init__(self, random_source: random.Random, *, delay_factor: float = 1.0) -> None:
        """``delay_factor``: how slow it is in ordinary times."""
        self.delay_factor = delay_factor
        self.slowness_s = 0.0
        """Added to every operation, on average."""
        self.watch_delay_s = 0.0
        """Added to every watch, on average."""
        self.deafness_s: dict[str, float] = {}
        """Added to every operation and every watch of a host, on average."""
        self._random = random_source
        self.server = MemoryZooKeeperServer(self.latency_s)
        self.context = contextvars.Context()

    def latency_s(self) -> float:
        """One way of one operation."""
        draw = self._random.random()
        delay_s = (0.0005 + 0.002 * draw) * self.delay_factor
        if draw > 0.99:
            delay_s += 0.05 * self._random.random()
        process = running_process()
        slowness_s = self.slowness_s + (self.deafness_s.get(process.host, 0.0) if process is not None else 0.0)
        if slowness_s:
            delay_s += 2 * slowness_s * self._random.random()
        return delay_s

    def watch_latency_s(self, host: str) -> float:
        """From a change to the watch."""
        late_s = self.watch_delay_s + self.deafness_s.get(host, 0.0)
        return self._random.random() * (0.002 * self.delay_factor + 2 * late_s)

    async def connect(self, process: Process, session_timeout_s: float) -> "ProcessZooKeeper":
        """A new session of a process; to be called inside of it."""
        return ProcessZooKeeper(self, _Client(self.server), process, session_timeout_s)


class _Client(MemoryZooKeeper):
    """Watches are called by the face, not in the context of whoever made the change: that may be dead by then."""

    def __init__(self, server: MemoryZooKeeperServer) -> None:
        super().__init__(server, OPERATION_TIMEOUT_S)
        self.fire: Callable[[Watch], None]

    def call_watches(self, watches: dict[Watch, None]) -> None:
        """See the base class."""
        for watch in watches:
            self.fire(watch)


class ProcessZooKeeper:
    """Implements :class:`waltz.common.zk.client.ZooKeeper` for one process."""

    def __init__(self, ensemble: SimulatedEnsemble, inner: _Client, process: Process, session_timeout_s: float) -> None:
        self.session_timeout_s = session_timeout_s
        self._ensemble = ensemble
        self._inner = inner
        self._process = process
        self._listeners: list[Listener] = []
        self._state = inner.state
        self._last_told_s = 0.0
        self._number = process.own(self)
        inner.fire = self._fire
        inner.add_listener(self._changed)

    # The client interface

    @property
    def state(self) -> State:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return self._state

    @property
    def session_id(self) -> int | None:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return self._inner.session_id

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return await self._inner.get(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return await self._inner.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See :class:`~waltz.common.zk.client.ZooKeeper`; in an order that is the same in every run."""
        return sorted(await self._inner.children(path, watch))

    async def sync(self, path: str) -> None:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        await self._inner.sync(path)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_path: bool = False,
    ) -> str:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return await self._inner.create(path, data, ephemeral=ephemeral, sequential=sequential, make_path=make_path)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return await self._inner.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        await self._inner.delete(path, version)

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    async def close(self) -> None:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        self._process.disown(self._number)
        self._listeners.clear()
        await self._inner.close()

    # What faults call

    def disconnect(self) -> None:
        """Lose the connection to the ensemble; the session expires after its time if there is no other connection."""
        self._ensemble.server.disconnect(self._inner)
        session_id = self._inner.session_id
        self._process.loop.call_later(
            self.session_timeout_s, self._expire_if_away, session_id, context=self._ensemble.context
        )

    def _expire_if_away(self, session_id: int | None) -> None:
        if session_id is not None and session_id == self._inner.session_id and self._inner.state is State.SUSPENDED:
            self._ensemble.server.end_session(session_id)

    def reconnect(self) -> None:
        """Let it connect again."""
        if self._process.alive:
            self._ensemble.server.reconnect(self._inner)

    def expire(self) -> None:
        """Have the ensemble end the session."""
        if self._inner.session_id is not None:
            self._ensemble.server.expire(self._inner)

    def lose_answer(self, operation: str) -> None:
        """The next operation of that kind takes effect, and nobody learns it."""
        self._inner.lose_answer(operation)

    def lose_request(self, operation: str) -> None:
        """The next operation of that kind is lost with its connection."""
        self._inner.lose_request(operation)

    # The process

    def process_died(self, *, power_loss: bool) -> None:
        """The ensemble hears nothing any more: the session expires when its time is over."""
        self._listeners.clear()
        server, session_id = self._ensemble.server, self._inner.session_id
        server.disconnect(self._inner)
        if session_id is not None:
            self._process.loop.call_later(
                self.session_timeout_s, server.end_session, session_id, context=self._ensemble.context
            )

    def _fire(self, watch: Watch) -> None:
        """Call a watch inside the process; watches of one client keep their order."""
        loop = self._process.loop
        self._last_told_s = max(self._last_told_s, loop.time() + self._ensemble.watch_latency_s(self._process.host))
        loop.call_at(self._last_told_s, self._call, watch, context=self._process.context)

    def _call(self, watch: Watch) -> None:
        if not self._inner.closed:
            watch()

    def _changed(self, state: State) -> None:
        self._process.call_soon(self._tell, state)

    def _tell(self, state: State) -> None:
        self._state = state
        for listener in tuple(self._listeners):
            listener(state)
