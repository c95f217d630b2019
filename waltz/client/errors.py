"""Errors of the client library; the texts are those of the original."""

from collections.abc import Collection

from waltz.common.errors import WaltzError
from waltz.common.partition_ids import named_partitions


class ClientError(WaltzError):
    """Root of the errors on the client's side.

    Examples:
        ```python
        try:
            await client.append(client.partition_count, b"hello")
        except waltz.ClientError as error:
            print("not the fault of a server:", error)
        ```
    """


class ClientClosedError(ClientError):
    """The client was closed; whether what was in flight is committed is unknown.

    Examples:
        ```python
        await client.close()
        try:
            await client.append(0, b"too late")
        except waltz.ClientClosedError:
            print("nothing was sent")
        ```
    """

    def __init__(self) -> None:
        super().__init__("the client is closed")


class PartitionInactiveError(ClientError):
    """The client does not take part in the partition (now); see ``WaltzClient.set_partitions``.

    Examples:
        ```python
        async with waltz.open_client(callbacks, cluster, auto_mount=False) as client:
            await client.set_partitions([1])
            try:
                await client.submit(context)  # to partition 0
            except waltz.PartitionInactiveError as error:
                print("not one of", client.partitions, "but", error.partition_id)
        ```
    """

    def __init__(self, partition_id: int) -> None:
        super().__init__(f"partition inactive: partitionId={partition_id}")
        self.partition_id = partition_id


class PartitionNotFoundError(ClientError):
    """The cluster has no such partition.

    Examples:
        ```python
        try:
            await client.append(99, b"hello")
        except waltz.PartitionNotFoundError as error:
            print(f"there are partitions 0 to {client.partition_count - 1}, but not {error.partition_id}")
        ```
    """

    def __init__(self, partition_id: int, partition_count: int | None = None) -> None:
        """``partition_count`` is the number of partitions of the cluster, where that is the reason."""
        message = f"partition not found: partitionId={partition_id}"
        if partition_count is not None:
            known = "partition 0" if partition_count == 1 else f"partitions 0 to {partition_count - 1}"
            message = f"{message}; the cluster has {known}"
        super().__init__(message)
        self.partition_id = partition_id


class ClientTimeoutError(ClientError):
    """The partition was not mounted in time; its server may be down, or none may own it at the moment.

    Examples:
        ```python
        await client.submit(context)
        try:
            await client.flush_transactions(timeout_s=0.1)
        except waltz.ClientTimeoutError as error:
            print("not everything is decided yet:", error)
        ```
    """


class ClientAheadError(ClientError):
    """The application claims to have seen transactions that the log lacks.

    Either they were read from another cluster, or the cluster was made anew.

    Examples:
        ```python
        try:
            async for transaction in client.feed(0, after=1_000_000):
                print(transaction.data)
        except waltz.ClientAheadError as error:
            print("not the log that was read before:", error)
        ```
    """

    def __init__(self, partition_id: int, transaction_id: int | None = None, last_id: int | None = None) -> None:
        text = f"client is ahead of store for partition: {partition_id}"
        if transaction_id is not None:
            text += f": there is no transaction {transaction_id}, the last one is {last_id}; is this the right cluster?"
        super().__init__(text)
        self.partition_id = partition_id


class OtherLogError(ClientError):
    """The log has another transaction at the application's position: the application's state is not of this log.

    The log was restored from a backup, and has grown since; or state of another cluster was copied here.

    Examples:
        ```python
        (record,) = await client.feed_batches(0, after=-1, until=0).next_batch()
        async with client.feed_batches(0, after=1).expect(record.req_id) as feed:
            try:
                await feed.next_batch()
            except waltz.OtherLogError as error:
                print("another transaction than", record.transaction_id, "is before the feed:", error)
        ```
    """

    def __init__(self, partition_id: int, transaction_id: int) -> None:
        super().__init__(
            f"transaction {transaction_id} of partition {partition_id} is another one than the last that was applied "
            "before: the log was put back from a backup, or this is state of another log. Put back a copy of the state "
            "that is as old as the backup; or remove the state with its positions and marks, and read from the start"
        )
        self.partition_id = partition_id
        self.transaction_id = transaction_id


class PositionsError(ClientError):
    """The stored positions of a consumer cannot be used: they are damaged, of another cluster, or in use.

    Examples:
        ```python
        positions = waltz.FilePositions(f"{directory}/mails.positions")
        copy = waltz.FilePositions(f"{directory}/mails.positions")
        try:
            async with client.consume(positions), client.consume(copy):
                print("not reached")
        except waltz.PositionsError as error:
            print("in use:", error)
        ```
    """


class PositionConflictError(PositionsError):
    """Another instance has moved the stored positions in these partitions, and has taken them over.

    The other instance repeats all work since the last known position. If the effects are in the database transaction
    that moves the position, roll it back: the other instance has had them.

    Examples:
        ```python
        positions = waltz.SqlitePositions(f"{directory}/mails.sqlite", "mails")
        async with client.consume(positions, [0]) as one, client.consume(positions, [0]) as other:
            for consumer in (one, other):
                await anext(consumer)
            await one.commit()
            await one.next_batch()
            await one.commit()
            try:
                await other.commit()
            except waltz.PositionConflictError as error:
                print("somebody else has taken over", error.partition_ids)
        ```
    """

    def __init__(self, partition_ids: Collection[int], where: str) -> None:
        self.partition_ids = sorted(partition_ids)
        which = named_partitions(self.partition_ids)
        super().__init__(f"the positions in {where} of {which} were moved by another consumer")


class TransactionTooLargeError(ClientError):
    """The data of a transaction exceeds ``client.maxTransactionSize``, or the server's limit.

    Examples:
        ```python
        async with waltz.connect(cluster, max_transaction_size_bytes=1000) as client:
            try:
                await client.append(0, bytes(1001))
            except waltz.TransactionTooLargeError as error:
                print("nothing was sent:", error)
        ```
    """


class AppendError(ClientError):
    """An append of the plain face failed; ``outcome_known`` is false if it can still be in the log.

    Examples:
        ```python
        try:
            await client.append(0, b"paid", write_locks=[lock], high_water_mark=-1)
        except waltz.AppendError as error:
            print("not in the log" if error.outcome_known else "look it up before you append again")
        ```
    """

    outcome_known: bool


class NotAppendedError(AppendError):
    """The transaction is not in the log and never will be.

    Examples:
        ```python
        try:
            await client.append(0, b"paid", timeout_s=0.1)
        except waltz.NotAppendedError as error:
            print("it can safely be appended again:", error)
        ```
    """

    outcome_known = True


class LockConflict(NotAppendedError):  # the name says what happened
    """One of the locks has changed since the high-water mark of the append; it is not in the log.

    ``transaction_id`` is the committed transaction of the change, or a later one (-1 if the server does not know it).
    Different locks with the same hash conflict, too. Read the feed up to the transaction, and decide again.

    Examples:
        ```python
        try:
            await client.append(0, b"paid", write_locks=[lock], high_water_mark=-1)
        except waltz.LockConflict as conflict:
            print("read up to transaction", conflict.transaction_id, "and decide again")
        ```
    """

    def __init__(self, partition_id: int, transaction_id: int, high_water_mark: int | None = None) -> None:
        what = f"transaction {transaction_id}" if transaction_id >= 0 else "a transaction that is not known"
        text = f"a lock was changed by {what} of partition {partition_id}"
        if high_water_mark is not None:
            text += f", after transaction {high_water_mark}, on which the append was based"
        if transaction_id >= 0:
            text += f"; read the feed up to transaction {transaction_id} and decide again"
        super().__init__(text)
        self.partition_id = partition_id
        self.transaction_id = transaction_id


class ConsistencyRefusedError(NotAppendedError):
    """An append or a read was refused because of its level of consistency. Nothing is in the log.

    The partition demands another level, a storage that the level needs is known to be away, or the server is too old.
    ``level`` is the level of the append or read.

    Examples:
        ```python
        try:
            await client.append(0, b"paid", consistency="quorum")  # which is less than leader_quorum
        except waltz.ConsistencyRefusedError as error:
            print(error.level, "does not go:", error)
        ```
    """

    def __init__(self, partition_id: int, level: str, reason: str, *, effect: str = "nothing was appended") -> None:
        super().__init__(f"partition {partition_id}: {reason}; {effect}")
        self.partition_id = partition_id
        self.level = level


class SessionFencedError(NotAppendedError):
    """The client's write session of the partition is over: another client has begun a newer one. Nothing was appended.

    Find out first what became of appends of unknown outcome; see ``last_transaction_id(..., fence=True)``, which begins
    a new session, and ``renew_session``, which continues in the present one. ``write_session`` is the number of the
    session that is over; it is -1 for a client that appends without one, when another client holds an exclusive
    session. ``reason`` is the event without advice.

    Examples:
        ```python
        async with waltz.connect(cluster, session_write=True) as client:
            await client.append(0, b"in my session")
            await other.last_transaction_id(0, fence=True)  # somebody else takes over
            try:
                await client.append(0, b"too late")
            except waltz.SessionFencedError as error:
                print("stop: session", error.write_session, "is over")
        ```
    """

    def __init__(self, partition_id: int, write_session: int, reason: str | None = None) -> None:
        if reason is None:
            reason = (
                "another client holds an exclusive write session"
                if write_session < 0
                else f"write session {write_session} is over, a newer one has begun"
            )
        super().__init__(
            f"partition {partition_id}: {reason}; nothing was appended. To take the partition over, call "
            "last_transaction_id(..., fence=True); to share the newer session, renew_session(...)"
        )
        self.partition_id = partition_id
        self.write_session = write_session
        self.reason = reason


class SessionNotSupportedError(NotAppendedError):
    """The server of the partition does not support write sessions, in which the client is configured to append.

    Examples:
        ```python
        async with waltz.connect(cluster, session_write=True) as client:
            try:
                await client.append(0, b"hello")
            except waltz.SessionNotSupportedError as error:
                print(error)  # it says which setting lets appends go without a session
        ```
    """

    def __init__(self, partition_id: int) -> None:
        super().__init__(
            f"the server of partition {partition_id} knows no write sessions; nothing was appended. Upgrade it, or "
            "move the partition to a server that does (by preferred partitions); to let appends go without a session "
            "there, set client.sessionFallback: plain"
        )
        self.partition_id = partition_id


class OutcomeUnknownError(AppendError):
    """The append was sent and its outcome is unknown: it may be in the log already, get there later, or never.

    Examples:
        ```python
        try:
            await client.append(0, b"order 4711", timeout_s=0.1)
        except waltz.OutcomeUnknownError as error:
            print("look for order 4711 in the log before it is appended again:", error)
        ```
    """

    outcome_known = False


class AckRetracted(NotAppendedError):  # the name that Amza's users know
    """An append that was acknowledged before its commit, at a level below the quorum, is not in the log.

    The storages that had it were lost or away when another store session went on without it. No other client has seen
    it. The library does not send it again: what the application has done after the acknowledgement may have to be
    undone first.

    Examples:
        ```python
        acknowledgement = await client.append(0, b"clicked", consistency="leader")
        try:
            print("committed:", await acknowledgement.committed())
        except waltz.AckRetracted as error:
            print("lost, although it was acknowledged:", error.transaction_id)
        ```
    """

    def __init__(self, partition_id: int, transaction_id: int) -> None:
        super().__init__(
            f"partition {partition_id}: the append that was acknowledged as transaction {transaction_id} before its "
            "commit is not in the log: the storages that had it were not among those with which the partition goes on. "
            "Append it again if that is still right"
        )
        self.partition_id = partition_id
        self.transaction_id = transaction_id


class NotGuaranteedError(AppendError):
    """The transaction is committed, and it is not known that all storages have it, as its level of consistency asks.

    It stays in the log at ``transaction_id``, and the storages that lack it will get it: do not append it again.

    Examples:
        ```python
        try:
            await client.append(0, b"paid", consistency="leader_all", timeout_s=0.5)
        except waltz.NotGuaranteedError as error:
            print("transaction", error.transaction_id, "is committed, on a quorum at least:", error)
        ```
    """

    outcome_known = False

    def __init__(self, partition_id: int, transaction_id: int, reason: str) -> None:
        super().__init__(
            f"{reason}: transaction {transaction_id} of partition {partition_id} is committed, and it is not known that"
            " all storages have it; do not append it again"
        )
        self.partition_id = partition_id
        self.transaction_id = transaction_id


class AppendManyError(AppendError):
    """Some of the transactions of ``append_many`` are not known as committed, or not at the level of the append.

    ``outcomes`` has one entry for each of them, in order: its id, or its :class:`AppendError` (or other error).
    ``not_appended``, ``unknown``, ``not_guaranteed`` and ``other`` count the errors: known not to be in the log,
    perhaps in the log, committed below the level of the append, and errors that are no :class:`AppendError` (a
    transaction too large for the server, for example: not in the log).

    Examples:
        ```python
        try:
            await client.append_many(0, [b"remark", waltz.Append(b"paid", write_locks=[lock])], high_water_mark=-1)
        except waltz.AppendManyError as error:
            print(error.not_appended, "not appended,", error.unknown, "unknown:", error.outcomes)
        ```
    """

    def __init__(self, outcomes: "list[int | Exception]") -> None:
        errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        self.outcomes = outcomes
        self.not_appended = sum(isinstance(error, AppendError) and error.outcome_known for error in errors)
        self.not_guaranteed = sum(isinstance(error, NotGuaranteedError) for error in errors)
        unknown = sum(isinstance(error, AppendError) and not error.outcome_known for error in errors)
        self.unknown = unknown - self.not_guaranteed
        self.other = len(errors) - self.not_appended - self.unknown - self.not_guaranteed
        self.outcome_known = self.unknown == 0
        counts = (
            (self.not_appended, "not appended"),
            (self.unknown, "of unknown outcome, perhaps committed"),
            (self.not_guaranteed, "committed, and perhaps not on all storages"),
            (self.other, "failed otherwise"),
        )
        text = "; ".join(f"{count} {what}" for count, what in counts if count)
        super().__init__(
            f"{len(errors)} of {len(outcomes)} transactions were not acknowledged ({text}); "
            f"the first error: {errors[0]}"
        )


class ConfirmedMarkNotSupportedError(ClientError):
    """The server of the partition does not support confirmed high-water marks, which the call demands.

    Examples:
        ```python
        try:
            print(await client.high_water_mark(0, confirmed=True))
        except waltz.ConfirmedMarkNotSupportedError as error:
            print(error, await client.high_water_mark(0))
        ```
    """

    def __init__(self, partition_id: int) -> None:
        super().__init__(
            f"the server of partition {partition_id} is too old to confirm its high-water mark, which fresh reads rest "
            "on. Upgrade it, or move the partition to a server that can (by preferred partitions)"
        )
        self.partition_id = partition_id


class TimesNotSupportedError(ClientError):
    """Nobody knows the times of a partition's commits: the server is too old for the question, or the storages are.

    Examples:
        ```python
        from datetime import datetime, timedelta, timezone

        an_hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
        try:
            print(await client.offset_at(0, an_hour_ago))
        except waltz.TimesNotSupportedError as error:
            print(error)
        ```
    """

    def __init__(self, partition_id: int, *, storages: bool) -> None:
        super().__init__(
            f"no storage of partition {partition_id} keeps times of commits: all of them are the original's. Give the"
            " partition a storage of Waltz for Python, and times are known from then on"
            if storages
            else f"the server of partition {partition_id} is too old to tell times of commits. Upgrade it, or move the "
            "partition to a server that can (by preferred partitions)"
        )
        self.partition_id = partition_id


class BulkReadsNotSupportedError(ClientError):
    """The server's version of the protocol has no bulk reads; transactions are read one by one."""


class InvalidOperationError(WaltzError):
    """The call is not possible with this client's configuration or arguments.

    Examples:
        ```python
        try:
            await client.set_partitions([0, 1])
        except waltz.InvalidOperationError as error:
            print(error)  # with client.autoMount a client takes part in all of them
        ```
    """


class ServerError(WaltzError):
    """A server could not fulfil a request.

    Examples:
        ```python
        async def apply_transaction(transaction: waltz.Transaction) -> None:  # as a callback does it
            try:
                print(await transaction.data_bytes(timeout_s=0.1))
            except waltz.DeadlineExceededError as error:
                print("a server's fault" if isinstance(error.__cause__, waltz.ServerError) else "no answer")
        ```
    """

    retry_after_s: float | None = None
    """If a quota is used up: the time after which the server wants appends again."""


class NotAuthorizedError(ServerError):
    """The client's principal lacks a right at the partition; nothing was executed, and nothing appended.

    The text names the principal, the right, the reason, and the command with which an operator gives the right.

    Examples:
        ```python
        try:
            await client.append(0, b"hello")
        except waltz.NotAuthorizedError as error:
            print("ask an operator for this:", error)
        ```
    """

    def __init__(self, text: str | None) -> None:
        super().__init__(text or "the client lacks a right; the server does not say which")


class TrimmedError(ClientError):
    """The wanted transactions of a partition were trimmed: they are not available any more, anywhere in the cluster.

    A reader that needs them has to begin at :attr:`first_available`, or with a state that has them: a snapshot of the
    table, the archive, a backup of its database.

    Examples:
        ```python
        async with client.feed(0, after=-1) as feed:
            try:
                print((await anext(feed)).data)
            except waltz.TrimmedError as error:
                print("begin there:", error.first_available)
        ```
    """

    def __init__(self, partition_id: int, first_available: int) -> None:
        super().__init__(f"partition {partition_id} is trimmed: its first available transaction is {first_available}")
        self.partition_id = partition_id
        """The partition."""
        self.first_available = first_available
        """The id of the first transaction that can be read."""


class RpcError(ServerError):
    """A server answered a request for transaction data with this error text.

    Examples:
        ```python
        async def apply_transaction(transaction: waltz.Transaction) -> None:  # as a callback does it
            try:
                print(await transaction.data_bytes(timeout_s=0.1))
            except waltz.DeadlineExceededError as error:
                if isinstance(error.__cause__, waltz.RpcError):
                    print("what the server said last:", error.__cause__)
        ```
    """


class DataChecksumError(WaltzError):
    """Data arrived with a wrong checksum again and again; the log or a cache of the server is damaged.

    Examples:
        ```python
        try:
            async for transaction in client.feed(0, after=-1):
                print(transaction.data)
        except waltz.DataChecksumError as error:
            print("damaged:", error)
        ```
    """
