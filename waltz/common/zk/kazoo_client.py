"""The asyncio face of kazoo.

kazoo runs threads of its own (one for the connection, one for watches, one for answers). Our code in them only hops to
the loop. A hop may come when the loop is closed already, at shut-down: then it has no effect.

This face relies on kazoo for three things: it reconnects for ever; after an expiry it asks for a new session; it fires
and drops every watch when the connection breaks.

kazoo reports the end of a session only when it is connected again. So this face asks the ensemble regularly, and
reports ``LOST`` itself after the session time-out without an answer. If the session turns out to be alive,
``CONNECTED`` follows with the same session.

kazoo reports a connection before the server has looked at the user, and gives up for ever when the server refuses to.
So with a user ``CONNECTED`` follows the first answer, and kazoo is started again.
"""

import asyncio
import contextlib
import logging
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id

from waltz.common.zk.client import (
    ANY_VERSION,
    BadVersionError,
    ConnectionLossError,
    Listener,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NotPermittedError,
    SessionExpiredError,
    Stat,
    State,
    Watch,
    ZooKeeperError,
    ZooKeeperUnreachableError,
)
from waltz.common.zk.configured import ProcessConfig, configured_login, configured_tls
from waltz.common.zk.kazoo_log import REFUSES_USERS, KazooLog, quiet_logger
from waltz.common.zk.protected import Login, create
from waltz.common.zk.protection import OPEN, Acl, AclEntry
from waltz.common.zk.session_clock import SessionClock
from waltz.common.zk.tls_handler import TlsHandler

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_MAX_OUTSTANDING = 128
"""Limit of open requests: kazoo wakes its connection thread by a byte per request over a socket pair, which blocks at a
few hundred."""

_RECONNECT_MAX_DELAY_S = 0.5
"""Well below any session time-out: a session must not expire while its client pauses between attempts.
(The original pauses up to 8 s, kazoo by default up to an hour.)"""

_ATTEMPTS_PER_SESSION = 3
"""kazoo, as the original, waits for the answer of a server for the session time-out divided by the number of servers. A
server that is just starting may never answer its first client, and the only server would be asked again too late."""

_CLOSE_TIMEOUT_S = 10.0
_GIVE_UP_TIMEOUT_S = 0.2
"""Time limit of the stop when there was no session to be ended."""
_REPEAT_DELAY_S = 0.05

_STATES = {
    KazooState.CONNECTED: State.CONNECTED,
    KazooState.SUSPENDED: State.SUSPENDED,
    KazooState.LOST: State.LOST,
}

_ERRORS: tuple[tuple[type[Exception], type[ZooKeeperError], str], ...] = (
    (kazoo_errors.NoNodeError, NoNodeError, "no such node"),
    (kazoo_errors.NodeExistsError, NodeExistsError, "the node exists already"),
    (kazoo_errors.BadVersionError, BadVersionError, "the node was changed by someone else"),
    (kazoo_errors.NotEmptyError, NotEmptyError, "the node has children"),
    (kazoo_errors.SessionExpiredError, SessionExpiredError, "the session has ended"),
    (kazoo_errors.ConnectionLoss, ConnectionLossError, "the connection broke before the answer"),
    (kazoo_errors.OperationTimeoutError, ConnectionLossError, "the server gave up on it"),
)


async def connect(
    connect_string: str,
    *,
    session_timeout_s: float,
    connect_timeout_s: float | None,
    operation_timeout_s: float | None = None,
    login: Login | None = None,
    tls: ssl.SSLContext | None = None,
) -> "KazooZooKeeper":
    """Connect to an ensemble and return once there is a session.

    ``connect_string`` is ``host:port,host:port...``, optionally with a ``/chroot`` at its end. The ensemble clamps
    ``session_timeout_s`` to its own limits. A ``connect_timeout_s`` of ``None`` waits for ever, as the daemons do.
    ``operation_timeout_s`` is the deadline of each later call, by default that of the session.
    ``login`` is the user of this process; ``tls`` is for ensembles whose connect string names TLS ports, and follows
    its files: each connection is made with their present content.

    Raises ``ZooKeeperUnreachableError`` when there is no session in time, ``NotPermittedError`` when a server takes no
    users.
    """
    return await KazooZooKeeper.open(
        connect_string,
        session_timeout_s=session_timeout_s,
        connect_timeout_s=connect_timeout_s,
        operation_timeout_s=session_timeout_s if operation_timeout_s is None else operation_timeout_s,
        login=login,
        tls=tls,
    )


async def connect_configured(config: ProcessConfig, *, connect_timeout_s: float | None) -> "KazooZooKeeper":
    """Connect to the ensemble of a cluster, see :func:`connect`.

    Raises ``ZooKeeperUnreachableError``, ``NotPermittedError``, and ``ConfigError`` for files of passwords and of TLS.
    """
    return await connect(
        config.zookeeper_connect_string,
        session_timeout_s=config.zookeeper_session_timeout_ms / 1000,
        connect_timeout_s=connect_timeout_s,
        login=configured_login(config),
        tls=configured_tls(config),
    )


class _AsyncResult(Protocol[_T]):
    """Result of kazoo's ``*_async`` calls."""

    def rawlink(self, callback: Callable[["_AsyncResult[_T]"], None]) -> None: ...

    def get_nowait(self) -> _T: ...


class _WatchHop:
    """A watch in kazoo's sets: equal for equal callables, so that repeated installations do not pile up."""

    __slots__ = ("_face", "_watch")

    def __init__(self, face: "KazooZooKeeper", watch: Watch) -> None:
        self._face = face
        self._watch = watch

    def __call__(self, event: WatchedEvent) -> None:
        self._face.hop(self._face.fire, self._watch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WatchHop) and self._watch == other._watch

    def __hash__(self) -> int:
        return hash(self._watch)


class KazooZooKeeper:
    """A client of a real ensemble; implements :class:`waltz.common.zk.client.ZooKeeper`. Made by :meth:`open`."""

    def __init__(
        self,
        connect_string: str,
        session_timeout_s: float,
        operation_timeout_s: float,
        login: Login | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._session_timeout_s = session_timeout_s
        self._operation_timeout_s = operation_timeout_s
        self._login = login
        self._state = State.LOST
        self._kazoo_state = State.LOST
        self._clock = SessionClock(session_timeout_s, time.monotonic())
        self._look_timer: asyncio.TimerHandle | None = None
        self._asking = False
        self._session_id: int | None = None
        self._connected = asyncio.Event()
        self._is_opening = True
        self._is_refused = False
        """Whether a server has refused the user while this client was opened."""
        self._start_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._starting = threading.Lock()
        self._listeners: list[Listener] = []
        self._slots = asyncio.Semaphore(_MAX_OUTSTANDING)
        self._outstanding: set[asyncio.Future[object]] = set()
        self._log = KazooLog(logger)
        self._client = KazooClient(
            hosts=_named_often_enough(connect_string),
            timeout=session_timeout_s,
            logger=quiet_logger(self._log),
            handler=None if tls is None else TlsHandler(tls),
            auth_data=None if login is None else [("digest", f"{login.user}:{login.password.get_secret_value()}")],
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=_RECONNECT_MAX_DELAY_S),
        )
        self._client.add_listener(self._kazoo_state_changed)

    @classmethod
    async def open(
        cls,
        connect_string: str,
        *,
        session_timeout_s: float,
        connect_timeout_s: float | None,
        operation_timeout_s: float,
        login: Login | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> "KazooZooKeeper":
        """Connect and wait for the session; parameters and errors as :func:`connect`."""
        try:
            zookeeper = cls(connect_string, session_timeout_s, operation_timeout_s, login, tls)
        except ValueError as error:
            raise ZooKeeperUnreachableError(f"not a ZooKeeper connect string: {connect_string!r} ({error})") from None
        try:
            zookeeper._client.start_async()
            async with asyncio.timeout(connect_timeout_s):
                await zookeeper._opened()
        except TimeoutError:
            await zookeeper._stop(_GIVE_UP_TIMEOUT_S)
            reasons = ", ".join(zookeeper._log.troubles)
            raise ZooKeeperUnreachableError(
                f"no ZooKeeper server answers at {connect_string} within {connect_timeout_s:g} s"
                f"{f' ({reasons})' if reasons else ''}; "
                "check the connect string and that ZooKeeper runs"
            ) from None
        except BaseException:
            await zookeeper.close()
            raise
        return zookeeper

    async def _opened(self) -> None:
        await self._connected.wait()
        self._is_opening = False
        if self._is_refused:
            assert self._login is not None
            raise NotPermittedError(f"ZooKeeper refuses user {self._login.user}: {REFUSES_USERS}")

    @property
    def state(self) -> State:
        self._look_at_clock()
        return self._state

    @property
    def session_id(self) -> int | None:
        self._look_at_clock()
        return self._session_id

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        hop = self._watch_hop(watch)
        data, stat = await self._read("get", path, lambda: self._client.get_async(path, hop))
        return data, _stat(stat)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        hop = self._watch_hop(watch)
        stat = await self._read("exists", path, lambda: self._client.exists_async(path, hop))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        hop = self._watch_hop(watch)
        names: list[str] = await self._read("children", path, lambda: self._client.get_children_async(path, hop))
        return names

    async def sync(self, path: str) -> None:

        # ZooKeeper's own sync does not ask a quorum: a deposed leader that has not noticed it answers, and so does a
        # member that it still leads. A transaction, even one without changes, needs the quorum of the present leader,
        # and the member of this session answers it after applying all earlier ones. Members that lag refuse a session
        # that has seen it, so a later connection does not go back either.
        def submit() -> _AsyncResult[list[object]]:
            transaction = self._client.transaction()
            transaction.check(path, ANY_VERSION)
            result: _AsyncResult[list[object]] = transaction.commit_async()
            return result

        for outcome in await self._read("sync", path, submit):
            if isinstance(outcome, Exception):
                raise self._translated("sync", path, outcome)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_path: bool = False,
    ) -> str:
        try:
            return await self._create(path, data, ephemeral, sequential)
        except NoNodeError:
            if not make_path:
                raise
        # Not kazoo's own makepath, which gives the ancestors empty data instead of null.
        with contextlib.suppress(NodeExistsError):
            await self.create(path.rpartition("/")[0], None, make_path=True)
        return await self._create(path, data, ephemeral, sequential)

    async def _create(self, path: str, data: bytes | None, ephemeral: bool, sequential: bool) -> str:
        if self._login is None:
            return await self.create_with(path, data, OPEN, ephemeral=ephemeral, sequential=sequential)
        return await create(self, self._login.root, path, data, ephemeral=ephemeral, sequential=sequential)

    async def create_with(
        self, path: str, data: bytes | None, acl: Acl, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node with this list; see :class:`waltz.common.zk.protected.AclNodes`."""

        def submit() -> _AsyncResult[str]:
            result: _AsyncResult[str] = self._client.create_async(
                path, data, acl=_kazoo_acl(acl), ephemeral=ephemeral, sequence=sequential
            )
            return result

        return await self._write("create", path, submit)

    async def acl(self, path: str) -> Acl:
        """The list of a node; hashes only for those who may change it."""
        entries, _ = await self._read("get the access control list of", path, lambda: self._client.get_acls_async(path))
        return frozenset(AclEntry(entry.id.scheme, entry.id.id, entry.perms) for entry in entries)

    async def set_acl(self, path: str, acl: Acl) -> None:
        """Replace the list of a node."""
        await self._write(
            "set the access control list of", path, lambda: self._client.set_acls_async(path, _kazoo_acl(acl))
        )

    @property
    def login(self) -> Login | None:
        """The user of this process."""
        return self._login

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        return _stat(await self._write("set", path, lambda: self._client.set_async(path, data, version)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write("delete", path, lambda: self._client.delete_async(path, version))

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)

        def remove() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return remove

    async def close(self) -> None:
        """Close the client; waits for kazoo's threads for a limited time."""
        if not await self._stop(_CLOSE_TIMEOUT_S):
            logger.warning("ZooKeeper: the connection is still not closed after %g s; left alone", _CLOSE_TIMEOUT_S)

    async def _stop(self, timeout_s: float) -> bool:
        """Stop kazoo's threads; returns whether they have ended in ``timeout_s``. If not, they end by themselves."""
        if self._closed:
            return True
        self._closed = True
        for timer in (self._look_timer, self._start_timer):
            if timer is not None:
                timer.cancel()
        self._listeners.clear()
        self._state, self._session_id = State.LOST, None
        self._connected.set()  # waiting calls end
        for future in self._outstanding:
            if not future.done():
                future.set_exception(SessionExpiredError("the client is closed"))
        stopped = asyncio.Event()

        def stop() -> None:
            # Not in the loop's executor, whose shut-down would wait for a silent server.
            try:
                with self._starting:
                    self._client.stop()
                    self._client.close()
            except Exception:
                logger.exception("ZooKeeper: the client did not stop in order")
            self.hop(stopped.set)

        threading.Thread(target=stop, name="zookeeper-close", daemon=True).start()
        try:
            async with asyncio.timeout(timeout_s):
                await stopped.wait()
        except TimeoutError:
            return False
        return True

    def hop(self, callback: Callable[..., None], *arguments: object) -> None:
        """For kazoo's threads: run ``callback`` on the loop, unless it is closed."""
        # RuntimeError: the loop is closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def fire(self, watch: Watch) -> None:
        """On the loop: a watch has fired."""
        if not self._closed:
            watch()

    def _kazoo_state_changed(self, kazoo_state: str) -> None:
        """Called in kazoo's connection thread, before any answer of the new session."""
        client_id: tuple[int, bytes] | None = self._client.client_id
        session_id = None if client_id is None else client_id[0]
        self.hop(self._kazoo_says, _STATES[kazoo_state], session_id, time.monotonic())
        if self._client.client_state == KeeperState.AUTH_FAILED:
            self.hop(self._user_refused)

    def _kazoo_says(self, state: State, session_id: int | None, said_s: float) -> None:
        self._kazoo_state = state
        if state is State.CONNECTED:
            self._clock = SessionClock(self._session_timeout_s, said_s)
            self._look_soon()
            if self._login is not None:
                self._ask(said_s)
                return
        if state is self._state or (state is State.SUSPENDED and self._state is State.LOST):
            return  # reported as lost by the clock before
        self._state_changed(state, session_id)

    def _user_refused(self) -> None:
        """On the loop: kazoo has given up."""
        if self._closed:
            return
        if self._is_opening:
            self._is_refused = True
            self._connected.set()
        else:
            self._start_timer = self._loop.call_later(_RECONNECT_MAX_DELAY_S, self._start_again)

    def _start_again(self) -> None:
        def start() -> None:
            try:
                with self._starting:
                    if not self._closed:
                        self._client.start_async()
            except Exception:
                logger.exception("ZooKeeper: the client did not start again")
                self.hop(self._user_refused)

        # Not on the loop: kazoo waits for the end of its threads first.
        threading.Thread(target=start, name="zookeeper-start", daemon=True).start()

    # The end of a session by the own clock

    def _look_soon(self) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._look_timer = self._loop.call_later(self._clock.next_look_s(time.monotonic()), self._look)

    def _look(self) -> None:
        self._look_timer = None
        self._look_at_clock()
        now_s = time.monotonic()
        if not self._asking and self._kazoo_state is State.CONNECTED and self._clock.is_to_ask(now_s):
            self._ask(now_s)
        self._look_soon()

    def _look_at_clock(self) -> None:
        """Check the clock; also at each read of the state, so that a process that stood still notices in time."""
        if self._state is not State.LOST and not self._closed and self._clock.is_over(time.monotonic()):
            logger.warning("ZooKeeper: nothing was heard of it for %g s, the session time-out", self._session_timeout_s)
            self._state_changed(State.LOST, None)

    def _ask(self, now_s: float) -> None:
        self._clock.asked(now_s)
        self._asking = True
        result = self._client.exists_async("/")
        result.rawlink(lambda result: self.hop(self._answered, result, now_s))

    def _answered(self, result: _AsyncResult[object], sent_s: float) -> None:
        self._asking = False
        try:
            result.get_nowait()
        except kazoo_errors.KazooException:
            return
        self._clock.answered(sent_s)
        client_id: tuple[int, bytes] | None = self._client.client_id
        alive = self._kazoo_state is State.CONNECTED and not self._clock.is_over(time.monotonic())
        if self._state is not State.CONNECTED and alive and client_id is not None:
            self._state_changed(State.CONNECTED, client_id[0])

    def _state_changed(self, state: State, session_id: int | None) -> None:
        if self._closed:
            return
        logger.info("ZooKeeper: %s", state.value)
        self._state = state
        if state is State.CONNECTED:
            self._log.connected()
            self._session_id = session_id
            self._connected.set()
        else:
            self._connected.clear()
            if state is State.LOST:
                self._session_id = None
        for listener in tuple(self._listeners):
            listener(state)

    def _watch_hop(self, watch: Watch | None) -> _WatchHop | None:
        return None if watch is None else _WatchHop(self, watch)

    async def _read(self, operation: str, path: str, submit: Callable[[], _AsyncResult[_T]]) -> _T:
        async with self._deadline(operation, path):
            while True:
                try:
                    return await self._attempt(operation, path, submit)
                except (ConnectionLossError, SessionExpiredError):
                    if self._closed:
                        raise
                    # Also waits for the hop of the new state, which may still be on its way.
                    await asyncio.sleep(_REPEAT_DELAY_S)

    async def _write(self, operation: str, path: str, submit: Callable[[], _AsyncResult[_T]]) -> _T:
        async with self._deadline(operation, path):
            return await self._attempt(operation, path, submit)

    @contextlib.asynccontextmanager
    async def _deadline(self, operation: str, path: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                yield
        except TimeoutError:
            raise ConnectionLossError(f"{operation} {path}: no answer within {self._operation_timeout_s:g} s") from None

    async def _attempt(self, operation: str, path: str, submit: Callable[[], _AsyncResult[_T]]) -> _T:
        # Waited for here, so that kazoo does not keep abandoned requests until it connects again.
        await self._connected.wait()
        async with self._slots:
            if self._closed:
                raise SessionExpiredError(f"{operation} {path}: the client is closed")
            future: asyncio.Future[object] = self._loop.create_future()
            self._outstanding.add(future)
            try:
                sent_s = time.monotonic()
                result = submit()
                result.rawlink(lambda _: self.hop(_wake, future))
                await future
                answer = result.get_nowait()
                self._clock.answered(sent_s)
                return answer
            except kazoo_errors.KazooException as error:
                raise self._translated(operation, path, error) from None
            finally:
                self._outstanding.discard(future)

    def _translated(self, operation: str, path: str, error: Exception) -> ZooKeeperError:
        if isinstance(error, kazoo_errors.NoAuthError):
            return NotPermittedError(f"{operation} {path}: {_not_permitted(self._login)}")
        for kazoo_class, our_class, text in _ERRORS:
            if isinstance(error, kazoo_class):
                return our_class(f"{operation} {path}: {text}")
        return ZooKeeperError(f"{operation} {path}: {type(error).__name__} {error}".rstrip())


def _not_permitted(login: Login | None) -> str:
    refused = "no permission: the access control list of the node refuses"
    if login is None:
        return f"{refused} this process, which has no zookeeper.user"
    return f"{refused} user {login.user}: its role may not do this, or zookeeper.user or its password is wrong"


def _kazoo_acl(acl: Acl) -> list[ACL]:
    return [ACL(permissions, Id(scheme, id_)) for scheme, id_, permissions in sorted(acl)]


def _wake(future: asyncio.Future[object]) -> None:
    if not future.done():
        future.set_result(None)


def _named_often_enough(connect_string: str) -> str:
    """A connect string of the same servers, repeated where there are fewer than the attempts of a session."""
    servers, slash, chroot = connect_string.partition("/")
    repetitions = -(-_ATTEMPTS_PER_SESSION // len(servers.split(",")))
    return ",".join([servers] * repetitions) + slash + chroot


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(
        version=stat.version,
        cversion=stat.cversion,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        children_count=stat.numChildren,
        mtime_ms=stat.mtime,
    )
