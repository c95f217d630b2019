"""The interfaces for applications: the callbacks of a client, and the context of each transaction.

Every method may be plain or ``async``. Plain methods cost least, since nothing is scheduled for them. All run on the
loop of the client, so none may block. A method must not await a call that needs the feed of its own partition (a
submission to the same partition, which may wait for a place, a flush, a change of the partitions): it has to start a
task for that.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from waltz.client.builder import TransactionBuilder
from waltz.client.errors import NotGuaranteedError
from waltz.client.retry_policy import RetryPolicy
from waltz.client.transaction import Transaction


class TransactionContext(ABC):
    """One transaction to be appended, perhaps in several attempts.

    Examples:
        ```python
        class Deposit(waltz.TransactionContext):
            def partition_id(self, partition_count: int) -> int:
                return waltz.partition_for("alice", partition_count)

            def execute(self, builder: waltz.TransactionBuilder) -> bool:
                builder.set_transaction_data("alice gets 100", waltz.StringSerializer())
                return True

            async def on_completion(self, committed: bool) -> None:
                print("committed" if committed else "given up")


        await client.submit(Deposit())
        ```
    """

    __slots__ = ()

    retry_policy: RetryPolicy | None = None
    """Number and delays of retries; ``None`` is the client's policy, which never gives up."""

    consistency: str | None = None
    """The level of consistency, such as ``leader_all``; ``None`` is what the properties of the partition demand."""
    guarantee_timeout_s: float = 30.0
    """Time from the commit to :meth:`on_guarantee` at the latest."""

    @abstractmethod
    def partition_id(self, partition_count: int) -> int:
        """The partition (0 to ``partition_count`` - 1) of the transaction."""

    @abstractmethod
    def execute(self, builder: TransactionBuilder) -> bool | Awaitable[bool]:
        """Fill in the transaction from the application's present state; ``False`` gives up without an append.

        Called again for each attempt. An exception ends the transaction: it goes to :meth:`on_exception` and is raised
        by ``submit`` (at the first attempt).
        """

    def on_completion(self, committed: bool) -> Awaitable[None] | None:
        """``True``: committed, about to be applied. ``False``: :meth:`execute`, or the retry policy, gave up."""
        return None

    def on_acknowledgement(self, transaction_id: int) -> Awaitable[None] | None:
        """At a level below the quorum: the storages that the level asks for have the transaction. :meth:`on_completion`
        follows at the commit or, if the transaction is lost, :meth:`on_exception` with
        :class:`~waltz.client.errors.AckRetracted`: it is not attempted again. A commit that comes first is not preceded
        by this call.
        """
        return None

    def on_guarantee(self, transaction_id: int, error: NotGuaranteedError | None) -> Awaitable[None] | None:
        """After :meth:`on_completion`, at a level that asks for more than the commit: all storages have the transaction
        or, with an error, that is not known in time. The feed goes on meanwhile.
        """
        return None

    def on_application(self) -> Awaitable[None] | None:
        """The transaction was applied by ``apply_transaction``, and the client's high-water mark includes it."""
        return None

    def on_exception(self, error: Exception) -> Awaitable[None] | None:
        """The transaction ended with an error; there will be no other attempt.

        After :class:`~waltz.client.errors.ClientClosedError` it may or may not be committed. If :meth:`on_completion`
        was called before, it is committed, and the client was closed, or has left the partition, before it was applied.
        """
        return None

    def on_lock_failure(self) -> Awaitable[None] | None:
        """One of the locks had changed; :meth:`execute` is called again after the change has been applied."""
        return None

    def on_lock_conflict(self, transaction_id: int) -> Awaitable[None] | None:
        """The same with the place of the change: at the latest ``transaction_id`` (-1 if the server does not know it).

        By default it calls :meth:`on_lock_failure`.
        """
        return self.on_lock_failure()


class WaltzClientCallbacks(ABC):
    """The callbacks of a client.

    Examples:
        ```python
        class Balances(waltz.WaltzClientCallbacks):
            def __init__(self) -> None:
                self.applied: dict[int, int] = {}

            def client_high_water_mark(self, partition_id: int) -> int:
                return self.applied.get(partition_id, -1)

            async def apply_transaction(self, transaction: waltz.Transaction) -> None:
                print(await transaction.data(waltz.StringSerializer()))
                self.applied[transaction.partition_id] = transaction.transaction_id

            def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
                print(f"transaction {transaction_id} cannot be applied: {error}")


        async with waltz.open_client(Balances(), cluster) as client:
            await client.transact(0, lambda basis: b"applied by Balances")
        ```
    """

    __slots__ = ()

    @abstractmethod
    def client_high_water_mark(self, partition_id: int) -> int | Awaitable[int]:
        """Id of the last transaction that the application has applied, -1 for none.

        Called when the client joins the partition.
        """

    @abstractmethod
    def apply_transaction(self, transaction: Transaction) -> Awaitable[None] | None:
        """Apply a committed transaction, whoever appended it.

        Called strictly in order within a partition, one at a time, without gaps. When it raises an error, the error
        goes to :meth:`uncaught_exception`, and the same transaction is applied again, after a growing delay.
        """

    @abstractmethod
    def uncaught_exception(
        self, partition_id: int, transaction_id: int, error: BaseException
    ) -> Awaitable[None] | None:
        """A callback raised ``error`` while this transaction was being applied."""
