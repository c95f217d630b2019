"""The ZooKeeper of a simulated cluster, as one process sees it.

The tree and its sessions are those of :mod:`tests.memory_zookeeper`, and each session reads from a follower of its own
(:mod:`tests.simulation.followers`). Here is what belongs to the process: watches and listeners are called inside of it,
late if the fault demands, and its session ends some time after the process did.
"""

import asyncio
import contextlib
import contextvars
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from tests.memory_zookeeper import MemoryZooKeeper
from tests.simulation.followers import Follower, Leader
from tests.simulation.loop import Process, SimulatedLoop, running_process
from waltz.common.zk.client import ANY_VERSION, ConnectionLossError, Listener, Stat, State, Watch, ZooKeeperError

_T = TypeVar("_T")

OPERATION_TIMEOUT_S = 10.0
"""Deadline of one operation."""


class Operation(NamedTuple):
    """A kind of operation: who calls it, what it is, and of which node."""

    host: str
    name: str
    path: str


class SimulatedEnsemble:
    """The ZooKeeper ensemble."""

    def __init__(
        self, loop: SimulatedLoop, random_source: random.Random, *, delay_factor: float = 1.0, lag_s: float = 0.0
    ) -> None:
        """``delay_factor``: how slow it is in ordinary times; ``lag_s``: how far followers are behind then, at most."""
        self.loop = loop
        self.delay_factor = delay_factor
        self.lag_s = lag_s
        self.lags_s: dict[str, float] = {}
        """How far the followers are behind that hosts read from, at most, instead."""
        self.slowness_s = 0.0
        """Added to every operation, on average."""
        self.watch_delay_s = 0.0
        """Added to every watch, on average."""
        self.deafness_s: dict[str, float] = {}
        """Added to every operation and every watch of a host, on average."""
        self.operations: Counter[Operation] = Counter()
        """Numbers of attempted operations."""
        self.read_bytes: Counter[str] = Counter()
        """Bytes of the values that hosts have read."""
        self._random = random_source
        self.server = Leader(self.latency_s)
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
        follower = Follower(self.server, self.loop, self.context, lambda: self._lag_s(process.host))
        return ProcessZooKeeper(self, _Client(self, follower, process.host), process, session_timeout_s)

    def landing_s(self) -> float:
        """How long after its author has given it up a write still happens."""
        return self._random.choice((0.001, 0.01, 0.1, 1.0, 3.0)) * self._random.random()

    def _lag_s(self, host: str) -> float:
        most_s = self.lags_s.get(host, self.lag_s)
        return most_s * (0.3 + 0.7 * self._random.random()) if most_s else 0.0


class _Client(MemoryZooKeeper):
    """Reads from its follower, and writes to the leader.

    Watches are called by the face, not in the context of whoever made the change: that may be dead by then.
    """

    def __init__(self, ensemble: SimulatedEnsemble, follower: Follower, host: str) -> None:
        super().__init__(ensemble.server, OPERATION_TIMEOUT_S)
        self.fire: Callable[[Watch], None]
        self.follower = follower
        self.late: defaultdict[str, int] = defaultdict(int)
        """How many of the next writes of each kind happen after they were given up."""
        self.before_write: Callable[[], None] | None = None
        self._ensemble = ensemble
        self.host = host

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        """See the base class."""
        found = await self._read("get", path, lambda: self.follower.get(path, self, watch))
        self._ensemble.read_bytes[self.host] += len(found[0] or b"")
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """See the base class."""
        return await self._read("exists", path, lambda: self.follower.exists(path, self, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See the base class."""
        return await self._read("children", path, lambda: self.follower.children(path, self, watch))

    async def sync(self, path: str) -> None:
        """See the base class."""
        await self._read("sync", path, lambda: self._decided(lambda: self._server.sync(path)))

    def begin_session(self) -> None:
        """See the base class; a session is known to its follower, and so is what came before it."""
        super().begin_session()
        self.follower.catch_up()

    async def _write(self, operation: str, path: str, apply: Callable[[], _T]) -> _T:
        if self.before_write is not None:
            self.before_write()
        return await super()._write(operation, path, lambda: self._decided(apply))

    def _decided(self, apply: Callable[[], _T]) -> _T:
        """Have the leader decide; the answer comes behind everything that it has decided before."""
        try:
            return apply()
        finally:
            self.follower.catch_up()

    async def _attempt(self, operation: str, path: str, apply: Callable[[], _T]) -> _T:
        self._ensemble.operations[Operation(self.host, operation, path)] += 1
        if not self.late[operation] or self.state is not State.CONNECTED:
            return await super()._attempt(operation, path, apply)
        self.late[operation] -= 1
        await asyncio.sleep(self._server.latency_s())
        ensemble = self._ensemble
        ensemble.loop.call_later(ensemble.landing_s(), self._land, apply, self.session_id, context=ensemble.context)
        self._server.disconnect(self)
        self._server.reconnect(self)
        raise ConnectionLossError(f"{operation} {path}: the connection broke before the answer")

    def _land(self, apply: Callable[[], object], session_id: int | None) -> None:
        """The ensemble takes a write up that its author has given up, unless the session has ended."""
        if session_id is not None and session_id == self.session_id and not self.closed:
            with contextlib.suppress(ZooKeeperError):
                apply()

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
        self._inner.follower.leave()

    # What faults call

    def disconnect(self) -> None:
        """Lose the connection to the ensemble; the session expires after its time if there is no other connection.

        The process finds that out by its own clock, which may be fast or slow.
        """
        self._ensemble.server.disconnect(self._inner)
        session_id, loop, context = self._inner.session_id, self._process.loop, self._ensemble.context
        loop.call_later(self.session_timeout_s, self._expire_if_away, session_id, context=context)
        own_s = self.session_timeout_s / self._process.clock_rate
        loop.call_later(own_s, self._give_up_if_away, session_id, context=context)

    def _expire_if_away(self, session_id: int | None) -> None:
        is_present = session_id == self._inner.session_id and self._inner.state is not State.SUSPENDED
        if session_id is not None and not is_present:
            self._ensemble.server.end_session(session_id)

    def _give_up_if_away(self, session_id: int | None) -> None:
        if session_id is not None and session_id == self._inner.session_id and self._inner.state is State.SUSPENDED:
            self._inner.session_is_over()

    def reconnect(self) -> None:
        """Let it connect again."""
        if self._process.alive:
            self._ensemble.server.reconnect(self._inner)

    def expire(self) -> None:
        """Have the ensemble end the session."""
        if self._inner.session_id is None:
            return
        if self._inner.state is State.CONNECTED:
            self._ensemble.server.expire(self._inner)
        else:  # before the time that its own clock gives it
            self._ensemble.server.end_session(self._inner.session_id)

    def lose_answer(self, operation: str) -> None:
        """The next operation of that kind takes effect, and nobody learns it."""
        self._inner.lose_answer(operation)

    def lose_request(self, operation: str) -> None:
        """The next operation of that kind is lost with its connection."""
        self._inner.lose_request(operation)

    def before_writes(self, call: Callable[[], None]) -> None:
        """Have ``call`` called before each write."""
        self._inner.before_write = call

    def land_late(self, operation: str) -> None:
        """The next operation of that kind happens some time after its author was told that its connection is lost."""
        self._inner.late[operation] += 1

    # The process

    def process_died(self, *, power_loss: bool) -> None:
        """The ensemble hears nothing any more: the session expires when its time is over."""
        self._listeners.clear()
        self._inner.follower.leave()
        server, session_id = self._ensemble.server, self._inner.session_id
        server.disconnect(self._inner)
        if session_id is not None:
            self._process.loop.call_later(
                self.session_timeout_s, server.end_session, session_id, context=self._ensemble.context
            )

    def _fire(self, watch: Watch) -> None:
        """Call a watch inside the process; watches of one client keep their order."""
        loop = self._process.loop
        self._last_told_s = max(self._last_told_s, loop.now_s + self._ensemble.watch_latency_s(self._process.host))
        loop.schedule_at(self._last_told_s, self._call, (watch,), self._process.context, self._process)

    def _call(self, watch: Watch) -> None:
        if not self._inner.closed:
            watch()

    def _changed(self, state: State) -> None:
        self._process.call_soon(self._tell, state)

    def _tell(self, state: State) -> None:
        self._state = state
        for listener in tuple(self._listeners):
            listener(state)
