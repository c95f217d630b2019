"""What every ZooKeeper client here has to do; run on the one in memory and on the real one."""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

import pytest

from waltz.common.zk.client import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    State,
    ZooKeeper,
)

_numbers = itertools.count()


class Ensemble(ABC):
    """How the suite gets at clients and breaks them."""

    @abstractmethod
    async def connect(self) -> ZooKeeper:
        """A new client with a session of its own."""

    @abstractmethod
    async def expire(self, client: ZooKeeper) -> None:
        """Have the client's session expire and return when it is connected in a new one."""


class Flag:
    """A watch that counts and can be awaited."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._event.set()

    async def fired(self) -> None:
        async with asyncio.timeout(60):
            await self._event.wait()
        self._event.clear()


class ZooKeeperConformance:
    """The suite; subclasses in test modules give the ``ensemble`` fixture."""

    @pytest.fixture
    async def zk(self, ensemble: Ensemble) -> AsyncIterator[ZooKeeper]:
        client = await ensemble.connect()
        yield client
        await client.close()

    @pytest.fixture
    async def other(self, ensemble: Ensemble) -> AsyncIterator[ZooKeeper]:
        client = await ensemble.connect()
        yield client
        await client.close()

    @pytest.fixture
    async def root(self, zk: ZooKeeper) -> str:
        return await zk.create(f"/conformance/{next(_numbers)}", None, make_path=True)

    async def test_null_and_empty_data_differ(self, zk: ZooKeeper, root: str) -> None:
        for name, data in (("null", None), ("empty", b""), ("full", b"\0x")):
            path = await zk.create(f"{root}/{name}", data)
            assert path == f"{root}/{name}"
            assert (await zk.get(path))[0] == data
        for data in (b"", None, b"1", None):
            await zk.set(f"{root}/full", data)
            assert (await zk.get(f"{root}/full"))[0] == data

    async def test_make_path_gives_ancestors_null_data(self, zk: ZooKeeper, root: str) -> None:
        with pytest.raises(NoNodeError):
            await zk.create(f"{root}/a/b/c", b"1")
        await zk.create(f"{root}/a/b/c", b"1", make_path=True)
        await zk.create(f"{root}/a/b/d", b"2", make_path=True)
        assert (await zk.get(f"{root}/a"))[0] is None
        assert (await zk.get(f"{root}/a/b"))[0] is None
        with pytest.raises(NodeExistsError):
            await zk.create(f"{root}/a/b/c", b"3", make_path=True)
        assert (await zk.get(f"{root}/a/b/c"))[0] == b"1"

    async def test_stat(self, zk: ZooKeeper, root: str) -> None:
        _, fresh = await zk.get(root)
        assert fresh[:2] == (0, 0)
        assert (fresh.owner, fresh.data_length, fresh.children_count) == (0, 0, 0)
        await zk.create(f"{root}/a", b"abc")
        await zk.create(f"{root}/b", None, ephemeral=True)
        await zk.delete(f"{root}/a")
        stat = await zk.set(root, b"12345")
        assert (stat.version, stat.cversion, stat.data_length, stat.children_count) == (1, 3, 5, 1)
        assert stat.czxid == fresh.czxid == fresh.mzxid < stat.mzxid
        assert stat == (await zk.get(root))[1] == await zk.exists(root)
        owned = await zk.exists(f"{root}/b")
        assert owned is not None
        assert owned.owner == zk.session_id
        assert await zk.children(root) == ["b"]

    async def test_sequence_counts_every_creation(self, zk: ZooKeeper, root: str) -> None:
        assert await zk.create(f"{root}/s_", b"", ephemeral=True, sequential=True) == f"{root}/s_0000000000"
        assert await zk.create(f"{root}/s_", b"", ephemeral=True, sequential=True) == f"{root}/s_0000000001"
        await zk.delete(f"{root}/s_0000000001")
        await zk.create(f"{root}/plain", b"")
        assert await zk.create(f"{root}/s_", b"", sequential=True) == f"{root}/s_0000000003"

    async def test_errors(self, zk: ZooKeeper, root: str) -> None:
        for call in (
            zk.get(f"{root}/no"),
            zk.children(f"{root}/no"),
            zk.sync(f"{root}/no"),
            zk.set(f"{root}/no", b""),
            zk.delete(f"{root}/no"),
        ):
            with pytest.raises(NoNodeError):
                await call
        assert await zk.exists(f"{root}/no") is None
        await zk.create(f"{root}/a", b"0")
        with pytest.raises(NodeExistsError):
            await zk.create(f"{root}/a", b"1")
        with pytest.raises(NotEmptyError):
            await zk.delete(root)
        await zk.set(f"{root}/a", b"1", 0)
        with pytest.raises(BadVersionError):
            await zk.set(f"{root}/a", b"2", 0)
        with pytest.raises(BadVersionError):
            await zk.delete(f"{root}/a", 0)
        assert (await zk.get(f"{root}/a"))[0] == b"1"
        await zk.delete(f"{root}/a", 1)

    async def test_sync_changes_nothing_and_is_not_behind(self, zk: ZooKeeper, other: ZooKeeper, root: str) -> None:
        flag = Flag()
        _, before = await zk.get(root, flag)
        await zk.sync(root)
        assert (await zk.get(root))[1] == before
        assert flag.count == 0
        for number in range(20):
            await other.set(root, b"%d" % number)
            await zk.sync(root)
            assert (await zk.get(root))[0] == b"%d" % number

    async def test_data_watch_fires_once(self, zk: ZooKeeper, other: ZooKeeper, root: str) -> None:
        flag = Flag()
        await zk.get(root, flag)
        await zk.get(root, flag)  # the same callable: still one watch
        await other.set(root, b"1")
        await flag.fired()
        await other.set(root, b"2")
        data, stat = await zk.get(root)
        while stat.version < 2:
            data, stat = await zk.get(root)
        assert data == b"2"
        assert flag.count == 1

    async def test_exists_watch_sees_creation_and_deletion(self, zk: ZooKeeper, other: ZooKeeper, root: str) -> None:
        flag = Flag()
        assert await zk.exists(f"{root}/a", flag) is None
        await other.create(f"{root}/a", None)
        await flag.fired()
        assert await zk.exists(f"{root}/a", flag) is not None
        await other.delete(f"{root}/a")
        await flag.fired()
        assert flag.count == 2

    async def test_failed_get_leaves_no_watch(self, zk: ZooKeeper, root: str) -> None:
        flag = Flag()
        with pytest.raises(NoNodeError):
            await zk.get(f"{root}/a", flag)
        await zk.create(f"{root}/a", None)
        await zk.set(f"{root}/a", b"1")
        marker = Flag()
        await zk.get(f"{root}/a", marker)
        await zk.set(f"{root}/a", b"2")
        await marker.fired()  # what came before it would have fired by now
        assert flag.count == 0

    async def test_children_watch(self, zk: ZooKeeper, other: ZooKeeper, root: str) -> None:
        flag = Flag()
        assert await zk.children(root, flag) == []
        await other.set(root, b"no change of children")
        await other.create(f"{root}/a", None)
        await flag.fired()
        assert await zk.children(root, flag) == ["a"]
        await other.set(f"{root}/a", b"no change of the set")
        await other.delete(f"{root}/a")
        await flag.fired()
        assert flag.count == 2

    async def test_close_deletes_ephemerals_and_calls_nothing(
        self, ensemble: Ensemble, other: ZooKeeper, root: str
    ) -> None:
        closing = await ensemble.connect()
        called = Flag()
        closing.add_listener(lambda _: called())
        await closing.create(f"{root}/a", None, ephemeral=True)
        await closing.get(f"{root}/a", called)
        await closing.children(root, called)
        gone = Flag()
        assert await other.exists(f"{root}/a", gone) is not None
        await closing.close()
        await closing.close()
        await gone.fired()
        assert await other.exists(f"{root}/a") is None
        assert called.count == 0
        with pytest.raises(SessionExpiredError):
            await closing.get(root)
        with pytest.raises(SessionExpiredError):
            await closing.create(f"{root}/b", None)

    async def test_expiry(self, ensemble: Ensemble, zk: ZooKeeper, other: ZooKeeper, root: str) -> None:
        states: list[State] = []
        zk.add_listener(states.append)
        removed: list[State] = []
        zk.add_listener(removed.append)()
        old_session = zk.session_id
        await zk.create(f"{root}/a", b"", ephemeral=True)
        data_flag, children_flag, missing_flag = Flag(), Flag(), Flag()
        await zk.get(f"{root}/a", data_flag)
        await zk.children(root, children_flag)
        await zk.exists(f"{root}/no", missing_flag)
        gone = Flag()
        await other.exists(f"{root}/a", gone)
        await ensemble.expire(zk)
        for flag in (gone, data_flag, children_flag, missing_flag):
            await flag.fired()
        assert await zk.exists(f"{root}/a") is None
        # A client may take its session back before the ensemble has ended it.
        taken_back, ended = states[:-3], states[-3:]
        assert taken_back == [State.SUSPENDED, State.CONNECTED] * (len(taken_back) // 2), states
        assert ended == [State.SUSPENDED, State.LOST, State.CONNECTED], states
        assert removed == []
        assert zk.state is State.CONNECTED
        assert zk.session_id not in (None, old_session)
        await zk.create(f"{root}/a", b"", ephemeral=True)
        assert data_flag.count == children_flag.count == missing_flag.count == 1

    async def test_many_calls_at_once(self, zk: ZooKeeper, root: str) -> None:
        await asyncio.gather(*(zk.create(f"{root}/{number}", b"") for number in range(500)))
        assert len(await zk.children(root)) == 500
        await asyncio.gather(*(zk.delete(f"{root}/{number}") for number in range(500)))
        assert await zk.children(root) == []

    async def test_sets_at_once_are_each_their_own(self, zk: ZooKeeper, root: str) -> None:
        paths = [f"{root}/{number}" for number in range(250)]
        await asyncio.gather(*(zk.create(path, b"") for path in paths))
        stats = await asyncio.gather(*(zk.set(path, path.encode(), 0) for path in paths))
        assert [stat.version for stat in stats] == [1] * 250
        versions = [0 if number % 100 == 7 else 1 for number in range(250)]
        outcomes = await asyncio.gather(
            *(zk.set(path, b"again", version) for path, version in zip(paths, versions, strict=True)),
            zk.set(f"{root}/no", b""),
            return_exceptions=True,
        )
        assert isinstance(outcomes.pop(), NoNodeError)
        assert [isinstance(outcome, BadVersionError) for outcome in outcomes] == [version == 0 for version in versions]
        contents = [(await zk.get(path))[0] for path in paths]
        assert contents == [
            path.encode() if version == 0 else b"again" for path, version in zip(paths, versions, strict=True)
        ]

    async def test_sets_of_one_path_at_once_happen_in_order(self, zk: ZooKeeper, root: str) -> None:
        stats = await asyncio.gather(*(zk.set(root, b"%d" % number, number) for number in range(10)))
        assert [stat.version for stat in stats] == list(range(1, 11))
        assert (await zk.get(root))[0] == b"9"
