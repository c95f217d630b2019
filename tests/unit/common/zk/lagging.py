"""A client whose member of the ensemble lags: it reads what was true a while ago, until it is told to catch up."""

from collections.abc import Callable

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.zk.client import ANY_VERSION, Listener, NoNodeError, Stat, State, Watch


class LaggingZooKeeper:
    """Implements :class:`waltz.common.zk.client.ZooKeeper`. What it writes itself it sees, as ZooKeeper promises."""

    def __init__(self, server: MemoryZooKeeperServer, inner: MemoryZooKeeper) -> None:
        self._server = server
        self._inner = inner
        self._past: dict[str, bytes | None] | None = None
        self.before_read: Callable[[str], None] | None = None
        """Called with the path before each read."""

    def fall_behind(self) -> None:
        """From here on read what is true at this moment."""
        self._past = self._server.dump()

    @property
    def state(self) -> State:
        return self._inner.state

    @property
    def session_id(self) -> int | None:
        return self._inner.session_id

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        if self.before_read is not None:
            self.before_read(path)
        data, stat = await self._inner.get(path, watch)
        if self._past is None:
            return data, stat
        if path not in self._past:
            raise NoNodeError(f"{path} does not exist yet")
        return self._past[path], stat

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._inner.exists(path, watch)
        return stat if self._past is None or path in self._past else None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names = await self._inner.children(path, watch)
        return [name for name in names if self._past is None or f"{path}/{name}" in self._past]

    async def sync(self, path: str) -> None:
        await self._inner.sync(path)
        self._past = None

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_path: bool = False,
    ) -> str:
        self._past = None
        return await self._inner.create(path, data, ephemeral=ephemeral, sequential=sequential, make_path=make_path)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        self._past = None
        return await self._inner.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._past = None
        await self._inner.delete(path, version)

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        return self._inner.add_listener(listener)

    async def close(self) -> None:
        await self._inner.close()
