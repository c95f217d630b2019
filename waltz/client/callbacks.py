"""The face of the original: a client that takes contexts, calls back, and applies every transaction."""

import asyncio
import inspect
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from waltz.client.arguments import check_integer, check_seconds
from waltz.client.builder import TransactionBuilder
from waltz.client.configuration import ClientSettings, Token
from waltz.client.context import TransactionContext, WaltzClientCallbacks
from waltz.client.decisions import Basis, DecidedSubmission, check_attempts, serialized_decide, transact_applied
from waltz.client.engine.engine import Engine
from waltz.client.engine.environment import Config, Environment, ZooKeeperCluster, environment_of
from waltz.client.engine.links.links import Connector
from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.partition.feed import Applier
from waltz.client.engine.submission import AppendFields, Submission, tell_failure
from waltz.client.engine.tasks import Closing, take_all
from waltz.client.errors import ClientClosedError, InvalidOperationError, NotGuaranteedError, PartitionNotFoundError
from waltz.client.events import OnEvent
from waltz.client.opening import Opening
from waltz.client.options import ClientOptions
from waltz.client.partition_calls import PartitionCalls
from waltz.client.retry_policy import RetryPolicy
from waltz.common.config.schemas import ClientConfig
from waltz.common.consistency import Consistency, level_of_append, waits_for_all
from waltz.common.ids import Endpoint
from waltz.common.keys import partition_for
from waltz.common.metrics.registry import Registry
from waltz.common.net.channel import connect
from waltz.common.serializers import Serializer
from waltz.common.zk.client import ZooKeeper

T = TypeVar("T")

TRANSACT_TIMEOUT_S = 30.0
_AT_THE_COMMIT: Final = Consistency.LEADER_QUORUM

_new_tuple = tuple.__new__  # what a named tuple's own constructor calls, at half of its price


class ContextSubmission(Submission):
    """A context of the application that was submitted."""

    __slots__ = ("_context", "_serializer", "appends", "level")

    appends: PartitionAppends
    """The appends of its partition, as soon as that is known."""

    def __init__(self, context: TransactionContext, serializer: Serializer[Any] | None = None) -> None:
        self._context = context
        self._serializer = serializer
        self.level: Consistency | None = None

    @property
    def retry_policy(self) -> RetryPolicy | None:
        return self._context.retry_policy

    def build(self, high_water_mark: int) -> AppendFields | Awaitable[AppendFields | None] | None:
        builder = TransactionBuilder(high_water_mark, self._serializer)
        accepted = self._context.execute(builder)
        if accepted is True and builder.data is not None:  # builder.fields without the call
            return _new_tuple(
                AppendFields,
                (
                    builder.data,
                    builder.header,
                    builder.client_high_water_mark,
                    builder.write_lock_array,
                    builder.read_lock_array,
                    builder.append_lock_array,
                ),
            )
        return None if accepted is False else self._build_later(builder, accepted)

    async def _build_later(self, builder: TransactionBuilder, accepted: bool | Awaitable[bool]) -> AppendFields | None:
        if inspect.isawaitable(accepted):
            accepted = await accepted
        if not isinstance(accepted, bool):
            raise TypeError(f"execute must return True or False, not {accepted!r}")
        return builder.fields() if accepted else None

    def committed(self, transaction_id: int) -> Awaitable[None] | None:
        if self.sent_level is not _AT_THE_COMMIT and waits_for_all(self.sent_level):
            self._await_level(transaction_id)
        return self._context.on_completion(True)

    def _await_level(self, transaction_id: int) -> None:
        appends, context, guarantees = self.appends, self._context, self.appends.guarantees
        timeout_s = context.guarantee_timeout_s

        def told(error: NotGuaranteedError | None) -> None:
            timer.cancel()
            appends.tell(context.on_guarantee, transaction_id, error)

        def late() -> None:
            guarantees.forget(transaction_id)
            told(NotGuaranteedError(appends.partition_id, transaction_id, f"{timeout_s:g} s have passed"))

        timer = asyncio.get_running_loop().call_later(timeout_s, late)
        guarantees.wait(transaction_id, told)

    def applied(self, transaction_id: int) -> Awaitable[None] | None:
        return self._context.on_application()

    def withdrawn(self) -> Awaitable[None] | None:
        return self._context.on_completion(False)

    def refused(self, transaction_id: int) -> Awaitable[None] | None:
        return self._context.on_lock_conflict(transaction_id)

    def failed(self, error: Exception) -> Awaitable[None] | None:
        return self._context.on_exception(error)


class EarlyContextSubmission(ContextSubmission):
    """A context with a level of its own, which may be below the quorum."""

    __slots__ = ("acknowledged_id",)

    def __init__(self, context: TransactionContext, serializer: Serializer[Any] | None = None) -> None:
        super().__init__(context, serializer)
        self.acknowledged_id: int | None = None

    def acknowledged(self, transaction_id: int, storage_count: int) -> Awaitable[None] | None:
        self.acknowledged_id = transaction_id
        return self._context.on_acknowledgement(transaction_id)


class WaltzClient(PartitionCalls):
    """Appends transactions and applies all committed ones, in order; see :mod:`waltz.client.context` for its callbacks.

    Made by :meth:`open`; to be closed, or used as an asynchronous context manager. It lives on the loop on which it was
    opened; a call on another loop raises ``InvalidOperationError`` before it has any effect.

    Examples:
        ```python
        await client.submit(context)  # what becomes of it is told to the context
        transaction_id = await client.transact(0, lambda basis: waltz.Append(b"paid", write_locks=[lock]))
        print("transaction", transaction_id, "is among those applied:", client.client_high_water_mark(0))
        ```
    """

    _closed = True

    def __init__(self, callbacks: WaltzClientCallbacks, environment: Environment, engine: Engine) -> None:
        self.serializer: Serializer[Any] | None = None
        """What makes bytes of values that contexts give without a serializer, and of those that are decided on."""
        self._callbacks = callbacks
        self._environment = environment
        self._auto_mount = environment.config.auto_mount
        self._engine = engine
        self._partitions = engine.partitions
        self._loop = asyncio.get_running_loop()
        self._thread_id = get_ident()
        self._closed = False
        self._closing = Closing()

    @classmethod
    async def open(
        cls,
        callbacks: WaltzClientCallbacks,
        config: ClientConfig,
        *,
        zookeeper: ZooKeeper | None = None,
        options: ClientOptions | None = None,
        connector: Connector = connect,
    ) -> Self:
        """Join the cluster of ``config`` and, with ``client.autoMount``, take part in all partitions.

        ``zookeeper`` is used if given, and left open by :meth:`close`; ``connector`` makes the connections to servers.

        Raises:
            ConfigError: The configuration cannot be used.
            ZooKeeperError: ZooKeeper cannot be reached, or refused a request.
            WaltzError: There is no such cluster.

        Raises what the callback for the high-water mark raises, too.
        """
        cluster = ZooKeeperCluster(config, zookeeper)
        return await cls.open_in(Environment(config, cluster, connector, options or ClientOptions()), callbacks)

    @classmethod
    async def open_in(cls, environment: Environment, callbacks: WaltzClientCallbacks) -> Self:
        """Like :meth:`open`, in a given environment. Its cluster is closed with the client."""
        try:
            applier = Applier(callbacks.apply_transaction, callbacks.uncaught_exception)
            client = cls(callbacks, environment, await Engine.open(environment, applier))
        except BaseException:
            await environment.cluster.close()
            raise
        try:
            if client._auto_mount:
                await client._take_part_in(range(client.partition_count))
        except BaseException:
            await client.close()
            raise
        return client

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if not self._closed:
            warn(f"unclosed {self!r}", ResourceWarning, source=self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> int:
        """Id of this client in the cluster; no other client ever has it."""
        return self._engine.client_id

    @property
    def cluster_name(self) -> str:
        """Name of the cluster."""
        return self._engine.cluster_name

    @property
    def partition_count(self) -> int:
        """Number of partitions of the cluster."""
        return len(self._engine.partitions)

    def partition_for(self, key: object) -> int:
        """The partition of a key; see :func:`waltz.partition_for` for the types of keys."""
        return partition_for(key, self.partition_count)

    @property
    def metrics(self) -> Registry:
        """The metrics of the client; see :mod:`waltz.telemetry`. May be read by any thread."""
        return self._engine.metrics.registry

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that this client takes part in."""
        return self._engine.active

    async def set_partitions(self, partition_ids: Collection[int]) -> None:
        """Take part in these partitions and no others; unknown ones are ignored.

        Returns when all submissions to the partitions left are decided, which needs their servers.

        Raises:
            InvalidOperationError: ``client.autoMount`` is set.
            ClientTimeoutError: They are not decided within 60 s; the call may be repeated.

        Raises what the callback for the high-water mark raises, too.
        """
        self._engine.check_loop()
        if self._auto_mount:
            raise InvalidOperationError("failed to set partitions: client.autoMount is on, all partitions are mounted")
        await self._take_part_in(partition_ids)

    def _own_engine(self) -> Engine:
        self._engine.check_loop()
        return self._engine

    async def _take_part_in(self, partition_ids: Collection[int]) -> None:
        await self._engine.set_partitions(partition_ids, self._read_high_water_mark)

    async def _read_high_water_mark(self, partition_id: int) -> int:
        high_water_mark = self._callbacks.client_high_water_mark(partition_id)
        return high_water_mark if isinstance(high_water_mark, int) else await high_water_mark

    async def submit(self, context: TransactionContext) -> None:
        """Append a transaction; returns when its first attempt is sent, or ``execute`` has returned ``False``.

        Waits for the mount of the partition (10 s) and for a place among ``client.maxConcurrentTransactions``. The
        callbacks of ``context`` get the outcome; errors go to its ``on_exception`` before they are raised.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            PartitionInactiveError: The client takes no part in it.
            ClientAheadError: The log does not have the mark of the application.
            ClientTimeoutError: The partition was not mounted in time.
            ClientClosedError: The client is closed.
            TransactionTooLargeError: The data is too long, or there are too many locks.
            ConsistencyRefusedError: The server is too old for the level of consistency.
            ProtocolError: The server's version does not support such locks.
            ValueError: The level is none.

        Raises the errors of the context, too.
        """
        # Asking for the running loop costs a system call, which this avoids in all but exotic cases.
        if get_ident() != self._thread_id or not self._loop.is_running():
            self._engine.check_loop()
        kind = ContextSubmission if context.consistency is None else EarlyContextSubmission
        submission = kind(context, self.serializer)
        partitions = self._partitions
        try:
            partition_id = context.partition_id(len(partitions))
            if self._closed:
                raise ClientClosedError
            if not 0 <= partition_id < len(partitions):
                raise PartitionNotFoundError(partition_id, len(partitions))
            appends = partitions[partition_id].appends
            submission.appends = appends
            if context.consistency is not None:
                submission.level = level_of_append(context.consistency)
        except Exception as error:
            await tell_failure(submission, error)
            raise
        rest = appends.submit(submission)
        if rest is not None:
            await rest

    async def transact(
        self,
        partition_id: int,
        decide: Callable[[Basis], object],
        *,
        timeout_s: float = TRANSACT_TIMEOUT_S,
        max_attempts: int | None = None,
    ) -> int | None:
        """Decide on the applied state and append the decision; returns when the transaction has been applied.

        ``decide`` is called again when the append got lost, and when one of its locks was changed meanwhile, as soon as
        the change has been applied. A callback of the same partition must not await this. When the call is cancelled, a
        note on the ``CancelledError`` tells whether anything was sent.

        Args:
            partition_id: The partition, from 0.
            decide: Called with a :class:`~waltz.client.decisions.Basis`; returns an ``Append``, bytes, or ``None``. If
                the client was opened with a serializer, it returns values for it instead of bytes. May be asynchronous.
            timeout_s: Limit of the whole call in seconds.
            max_attempts: Maximum number of decisions.

        Returns:
            The id of the transaction; ``None`` if ``decide`` returned ``None``.

        Raises:
            LockConflict: After ``max_attempts``.
            NotAppendedError: The deadline has passed, or the client was closed; the transaction is not in the log.
            OutcomeUnknownError: As before, but the transaction may be in the log.
            PartitionNotFoundError: The cluster has no such partition.
            TransactionTooLargeError: The data is too long, or there are too many locks.

        Raises the errors of ``decide``, too.
        """
        self._engine.check_loop()
        check_integer(partition_id, "partition_id")
        check_seconds(timeout_s, "timeout_s")
        check_attempts(max_attempts)
        submission = DecidedSubmission(
            partition_id,
            self._engine.partition(partition_id).appends,
            decide if self.serializer is None else serialized_decide(decide, self.serializer),
            now_s=self._loop.time(),
            timeout_s=timeout_s,
            max_attempts=max_attempts,
        )
        return await transact_applied(submission)

    async def flush_transactions(self, *, timeout_s: float | None = None) -> None:
        """Return when every append sent so far is decided (and, if committed, about to be applied).

        Raises:
            PartitionInactiveError: A partition is inactive.
            ClientTimeoutError: A partition is not mounted, or an outcome not known, in time; by default within 60 s.
            ClientAheadError: The log of a partition does not have the mark of the application.
            ClientClosedError: The client is closed.
        """
        await self._own_engine().flush(self._environment.options.flush_timeout_s if timeout_s is None else timeout_s)

    def has_pending_transactions(self) -> bool:
        """Whether any submission is undecided, waits for another attempt, or is being executed."""
        return self._engine.has_pending

    def client_high_water_mark(self, partition_id: int) -> int:
        """Id of the last transaction that this client has applied; raises :class:`PartitionNotFoundError`."""
        if not 0 <= partition_id < self.partition_count:
            raise PartitionNotFoundError(partition_id, self.partition_count)
        return self._engine.partitions[partition_id].feed.applied

    # Write sessions

    def write_session(self, partition_id: int) -> int | None:
        """Number of the write session of the client's appends to a partition.

        ``None`` while no appends are sent (before the mount of the partition, and when the session is over), and
        without write sessions.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            ClientClosedError: The client is closed.
        """
        return self._engine.sessions.number(partition_id)

    async def last_transaction_id(
        self, partition_id: int, *, fence: bool = False, if_session: int | None = None
    ) -> int:
        """Id of the last transaction of a partition after all appends that this client has sent; -1 if there is none.

        Without write sessions (``client.enableSessionWrite``) ``fence`` has no effect but a warning in the log.

        Args:
            partition_id: The partition, from 0.
            fence: First begin a new write session, in which this client continues: no append of an older session is
                ever after the transaction. All transactions before it have then been applied, and all sent appends are
                decided; so a callback of the same partition must not await this.
            if_session: Begin the session only if this is the number of the present one.

        Raises:
            SessionFencedError: The present session is not ``if_session``.
            SessionNotSupportedError: The server does not support write sessions.
            DeadlineExceededError: ``client.sessionTimeout`` has passed; the new session may have begun.
            InvalidOperationError: A session of :meth:`exclusive` is open.
            PartitionNotFoundError: The cluster has no such partition.
            PartitionInactiveError: The client takes no part in it.
            ClientAheadError: The log does not have the mark of the application.
            ClientClosedError: The client is closed.
        """
        return await self._own_engine().sessions.last_transaction_id(partition_id, fence=fence, if_session=if_session)

    # Administration; errors as in RpcClient

    async def check_server_connections(self, endpoints: Iterable[Endpoint]) -> dict[Endpoint, dict[str, bool]]:
        """For each server, the storages (``host:port``) that it reaches; servers that do not answer are left out."""
        return await self._own_engine().rpc.check_server_connections(endpoints)

    async def server_partition_assignments(self, endpoint: Endpoint) -> list[int]:
        """The partitions that a server owns."""
        return await self._own_engine().rpc.server_partition_assignments(endpoint)

    async def server_partition_health(self, endpoint: Endpoint) -> dict[int, bool]:
        """Each partition of a server, and whether it is healthy."""
        return await self._own_engine().rpc.server_partition_health(endpoint)

    async def add_preferred_partitions(self, endpoint: Endpoint, partition_ids: Sequence[int]) -> bool:
        """Make a server prefer these partitions; returns whether the server agreed."""
        return await self._own_engine().rpc.add_preferred_partitions(endpoint, partition_ids)

    async def remove_preferred_partitions(self, endpoint: Endpoint, partition_ids: Sequence[int]) -> bool:
        """Take the preference back; returns whether the server agreed."""
        return await self._own_engine().rpc.remove_preferred_partitions(endpoint, partition_ids)

    async def close(self) -> None:
        """Leave the cluster and close everything; may be called twice.

        Undecided appends end with ``ClientClosedError`` (they may or may not be committed). A transaction that is being
        applied gets a few seconds, then its callback is cancelled. Once begun, closing continues even if this call is
        cancelled; another call waits for its end.
        """
        if self._closing.over:
            return
        self._engine.check_loop()
        caller = asyncio.current_task()
        if self._closed and self._engine.runs(caller):
            return  # the call that began it waits for this callback
        self._closed = True
        await self._closing.run(lambda: self._close(caller))

    async def _close(self, caller: asyncio.Task[Any] | None) -> None:
        await take_all(lambda: self._engine.close_for(caller), self._environment.cluster.close)


def open_client(
    callbacks: WaltzClientCallbacks,
    config: Config = None,
    *,
    session_write: bool | None = None,
    exclusive_session: bool | None = None,
    zookeeper: ZooKeeper | None = None,
    options: ClientOptions | None = None,
    serializer: Serializer[T] | None = None,
    on_event: OnEvent | None = None,
    token: Token | None = None,
    **settings: Unpack[ClientSettings],
) -> Opening[WaltzClient]:
    """Open a client that calls ``callbacks`` back, with ``await`` or ``async with``.

    ``serializer`` is for values that ``builder.set_transaction_data`` gets without one, and for the values of
    ``transact``. The other arguments are those of :func:`waltz.connect`. Raises, once it is awaited, ``ConfigError``,
    ``TypeError`` for unknown arguments, and the errors of ``WaltzClient.open``.

    Examples:
        ```python
        async with waltz.open_client(callbacks, cluster) as client:
            await client.submit(context)
            await client.flush_transactions()
        ```
    """

    async def opened() -> WaltzClient:
        environment = environment_of(config, zookeeper, options, settings, on_event, token)
        client = await WaltzClient.open_in(environment.with_sessions(session_write, exclusive_session), callbacks)
        client.serializer = serializer
        return client

    return Opening(opened())
