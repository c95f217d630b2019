"""A view of a ZooKeeper client that ends with the session it was made in."""

from collections.abc import Callable

from waltz.common.zk.client import (
    ANY_VERSION,
    ConnectionLossError,
    Listener,
    SessionExpiredError,
    Stat,
    State,
    Watch,
    ZooKeeper,
)


class SessionZooKeeper:
    """The same client, refusing to work in another session; implements :class:`waltz.common.zk.client.ZooKeeper`.

    For work that relies on an ephemeral node: once that node may be gone nothing more is read or written. Calls fail
    while the connection is suspended, since it could come back in a new session.
    """

    def __init__(self, zookeeper: ZooKeeper, session_id: int) -> None:
        self._zookeeper = zookeeper
        self._session_id = session_id

    @property
    def state(self) -> State:
        """``LOST`` for good once the session has ended."""
        return self._zookeeper.state if self._zookeeper.session_id == self._session_id else State.LOST

    @property
    def session_id(self) -> int | None:
        """``None`` for good once the session has ended."""
        return self._session_id if self._zookeeper.session_id == self._session_id else None

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        self._check(path)
        result = await self._zookeeper.get(path, watch)
        self._check(path)
        return result

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._check(path)
        result = await self._zookeeper.exists(path, watch)
        self._check(path)
        return result

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._check(path)
        result = await self._zookeeper.children(path, watch)
        self._check(path)
        return result

    async def sync(self, path: str) -> None:
        self._check(path)
        await self._zookeeper.sync(path)
        self._check(path)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_path: bool = False,
    ) -> str:
        self._check(path)
        return await self._zookeeper.create(path, data, ephemeral=ephemeral, sequential=sequential, make_path=make_path)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        self._check(path)
        return await self._zookeeper.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._check(path)
        await self._zookeeper.delete(path, version)

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        return self._zookeeper.add_listener(listener)

    async def close(self) -> None:
        """Nothing: the session belongs to the client that this is a view of."""

    def _check(self, path: str) -> None:
        if self._zookeeper.session_id != self._session_id:
            raise SessionExpiredError(f"{path}: the session in which this work began has ended")
        if self._zookeeper.state is not State.CONNECTED:
            raise ConnectionLossError(f"{path}: the connection is lost")
