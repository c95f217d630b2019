"""Elections: one of several clients leads a partition, until it resigns, dies, or is cut off.

Two things make a leader, and each does what the other cannot:

* an ephemeral node in ZooKeeper (``ext/election/<partition>``) says whether there is a leader that lives, and who;
* an exclusive write session makes the log itself refuse the appends of everybody else. Its number is the term.

A candidate whose node is gone without its knowledge must not depose its successor: the candidate asks for the number of
the present session *before* it makes sure of its node, and begins its own session only in place of that one.
"""

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from waltz.client.engine.engine import Engine
from waltz.client.engine.environment import Directory
from waltz.client.errors import SessionFencedError
from waltz.common.errors import DeadlineExceededError
from waltz.common.quiet_log import OutageLog
from waltz.common.zk.client import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    State,
    Watch,
    ZooKeeper,
)
from waltz.common.zk.mutex import mutex
from waltz.common.zk.paths import ClusterPaths

logger = logging.getLogger(__name__)

RETRY_S = 0.5

_PASSES = (ConnectionLossError, SessionExpiredError, DeadlineExceededError, SessionFencedError)
"""What ends one attempt of a candidate, but not its campaign."""

_UNKNOWN: Final = object()


class Leader(NamedTuple):
    """Who leads a partition, as ZooKeeper says it.

    Examples:
        ```python
        async with waltz.connect(cluster) as client:
            async for leader in client.election(0).observe():
                print("nobody leads" if leader is None else f"{leader.name} leads in term {leader.term}")
                break
        ```
    """

    name: str
    """The name that the leader has given itself."""
    term: int
    """Number of the leadership; larger than the terms of all earlier leaders of the partition."""


@dataclass(frozen=True)
class Leadership:
    """The time in which this client leads a partition; made by :meth:`Election.campaign`.

    Examples:
        ```python
        async with waltz.connect(cluster, session_write=True) as client:
            async with client.election(0).campaign() as leadership:
                while not leadership.over:
                    await client.append(0, b"in term %d" % leadership.term)
                    break
        ```
    """

    partition_id: int
    term: int
    """Number of the leadership; larger than the terms of all earlier leaders. Each append carries it: it is the number
    of the write session."""
    transaction_id: int
    """The last transaction before the leadership, -1 if there is none: no append of an earlier leader is ever after
    it."""
    _is_over: Callable[[], bool] = field(repr=False, compare=False)

    @property
    def over(self) -> bool:
        """Whether this client knows that it leads no longer: its ZooKeeper session has ended, or another client has
        begun a write session. A leader may be deposed before it knows; its appends are refused from then on."""
        return self._is_over()


class Election:
    """The election of the leader of one partition; made by ``client.election``.

    Examples:
        ```python
        async with waltz.connect(cluster, session_write=True) as client:
            election = client.election(0, "worker 7")
            async with election.campaign() as leadership:  # waits while another client leads
                print("term", leadership.term, "begins behind transaction", leadership.transaction_id)
                await client.append(0, b"nobody else can write")
                async for leader in election.observe():
                    assert leader == ("worker 7", leadership.term)
                    break
        ```
    """

    def __init__(
        self,
        partition_id: int,
        name: str,
        engine: Engine,
        directory: Directory,
        join: Callable[[int], Awaitable[object]],
    ) -> None:
        """``join`` makes the client a member of the partition. Raises ``PartitionNotFoundError`` and ``TypeError``."""
        engine.partition(partition_id)
        if not isinstance(name, str):
            raise TypeError(f"the name of a candidate is a text, not {name!r}")
        self.partition_id = partition_id
        self.name = name
        self._engine = engine
        self._zookeeper = directory.nodes
        self._path = ClusterPaths.of(directory.root).election(partition_id)
        self._join = join
        self._campaign_troubles = OutageLog(logger, asyncio.get_running_loop().time)
        self._observation_troubles = OutageLog(logger, asyncio.get_running_loop().time)

    @asynccontextmanager
    async def campaign(self) -> AsyncIterator[Leadership]:
        """Wait until this client leads, and lead until the block is left: ``async with election.campaign() as
        leadership:``.

        Leaving the block resigns: another candidate can lead at once. A leader that is cut off from ZooKeeper for
        longer than its session lasts may be replaced; a leader whose partition moves to another server is deposed. In
        both cases its appends end with ``SessionFencedError``, and it has to campaign again. While ZooKeeper or the
        owner of the partition is away the campaign waits, and leaving the block may take a minute.

        Raises:
            InvalidOperationError: The client has no write sessions, or a session of ``exclusive`` is open.
            PartitionInactiveError: A client with callbacks takes no part in the partition.
            SessionNotSupportedError: The server does not support write sessions.
            NotAuthorizedError: The client lacks a right at the partition.
            ZooKeeperError: ZooKeeper refused a request.
            ClientClosedError: The client is closed.
        """
        async with AsyncExitStack() as leading:
            async with self._engine.while_open():
                leadership = await self._until_elected(leading)
            yield leadership

    async def _until_elected(self, leading: AsyncExitStack) -> Leadership:
        while True:
            try:
                async with AsyncExitStack() as attempt:
                    await self._join(self.partition_id)
                    leadership = await self._elected(attempt)
                    self._campaign_troubles.over()
                    leading.push_async_exit(attempt.pop_all())
                    return leadership
            except _PASSES as error:
                self._campaign_troubles.failed(f"{self.name} cannot lead partition {self.partition_id} yet: {error}")
            await asyncio.sleep(RETRY_S)  # outside of the attempt: a candidate without a server lets others lead

    async def _elected(self, attempt: AsyncExitStack) -> Leadership:
        sessions, path = self._engine.sessions, self._path
        token = uuid.uuid4().hex.encode()
        with suppress(NodeExistsError):
            await self._zookeeper.create(path.rpartition("/")[0], None, make_path=True)
        attempt.push_async_callback(self._forget, token)
        node = await attempt.enter_async_context(mutex(self._zookeeper, path, token=token, timeout_s=None))
        present = await sessions.present(self.partition_id)
        await _check_held(node, path, token)
        begun = await attempt.enter_async_context(sessions.exclusive(self.partition_id, if_session=present))
        announcement = {"name": self.name, "term": begun.number, "token": token.decode()}
        await node.set(path, json.dumps(announcement).encode())
        return Leadership(
            self.partition_id,
            begun.number,
            begun.transaction_id,
            lambda: (
                self._engine.closed or node.state is State.LOST or not sessions.holds(self.partition_id, begun.number)
            ),
        )

    async def _forget(self, token: bytes) -> None:
        """Make sure that the node goes: after an outage in which it could not be deleted the session may live on, and
        nobody could ever lead."""
        if not await self._is_gone(token) and not self._engine.closed:
            self._engine.spawn(
                self._until_gone(token), f"leaving the election of partition {self.partition_id} behind an outage"
            )

    async def _until_gone(self, token: bytes) -> None:
        gone = False
        while not gone:
            await asyncio.sleep(RETRY_S)
            gone = await self._is_gone(token)

    async def _is_gone(self, token: bytes) -> bool:
        """Whether the node is gone, or goes with a former session; deletes it. False if that is not known."""
        zookeeper = self._zookeeper
        try:
            await zookeeper.sync(self._path.rpartition("/")[0])  # a creation whose answer was lost has ended by then
            data, stat = await zookeeper.get(self._path)
            if token in (data or b"") and stat.owner == zookeeper.session_id:
                await zookeeper.delete(self._path, stat.version)
        except (ConnectionLossError, SessionExpiredError):
            return False
        except NoNodeError:
            pass
        return True

    async def observe(self) -> AsyncGenerator[Leader | None, None]:
        """The leader at first, and then at each change; ``None`` while there is none. Without an end.

        Changes that follow each other fast may be left out. Who sees a leader may see a former one: only appends are
        fenced. Needs no write sessions. While ZooKeeper is away nothing changes.

        Raises ``ZooKeeperError`` when ZooKeeper refuses a request, and ``ClientClosedError``.
        """
        known: object = _UNKNOWN
        while True:
            changed = asyncio.Event()
            async with self._engine.while_open():
                leader = await self._leader(changed.set)
            if leader != known:
                known = leader
                yield leader
            async with self._engine.while_open():
                await changed.wait()

    async def _leader(self, watch: Watch) -> Leader | None:
        while True:
            try:
                leader = None
                if await self._zookeeper.exists(self._path, watch) is not None:
                    with suppress(NoNodeError):
                        leader = leader_of((await self._zookeeper.get(self._path))[0])
                self._observation_troubles.over()
                return leader
            except (ConnectionLossError, SessionExpiredError) as error:
                self._observation_troubles.failed(f"the leader of partition {self.partition_id} is not known: {error}")
                await asyncio.sleep(RETRY_S)


def leader_of(data: bytes | None) -> Leader | None:
    """Who leads, from the data of the node; ``None`` for a candidate whose term has not begun."""
    try:
        announcement = json.loads(data or b"")
        return Leader(str(announcement["name"]), int(announcement["term"]))
    except (ValueError, KeyError, TypeError):
        return None


async def _check_held(node: ZooKeeper, path: str, token: bytes) -> None:
    """Raise ``SessionExpiredError`` if the node is gone by now, even if this client has not been told yet."""
    try:
        await node.sync(path)
        data, _ = await node.get(path)
    except NoNodeError:
        data = None
    if data != token:
        raise SessionExpiredError(f"{path}: the node of this candidate is gone")
