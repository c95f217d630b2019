"""What the client library raises; the texts are those of the original."""

from waltz.common.errors import WaltzError


class ClientError(WaltzError):
    """Root of the conditions on the client's side."""


class ClientClosedError(ClientError):
    """The client was closed; whether what was in flight is committed is unknown."""

    def __init__(self) -> None:
        super().__init__("the client is closed")


class PartitionInactiveError(ClientError):
    """The client does not take part in the partition (now); see ``WaltzClient.set_partitions``."""

    def __init__(self, partition_id: int) -> None:
        super().__init__(f"partition inactive: partitionId={partition_id}")
        self.partition_id = partition_id


class PartitionNotFoundError(ClientError):
    """The cluster has no such partition."""

    def __init__(self, partition_id: int) -> None:
        super().__init__(f"partition not found: partitionId={partition_id}")
        self.partition_id = partition_id


class ClientTimeoutError(ClientError):
    """The partition was not mounted in time; its server may be down, or none may own it at the moment."""


class ClientAheadError(ClientError):
    """The application claims to have applied transactions that the log does not have."""

    def __init__(self, partition_id: int) -> None:
        super().__init__(f"client is ahead of store for partition: {partition_id}")
        self.partition_id = partition_id


class TransactionTooLargeError(ClientError):
    """The data of a transaction exceeds ``client.maxTransactionSize``, or the server's limit."""


class AppendError(ClientError):
    """An append of the plain face did not end well; ``outcome_known`` says whether it can still be in the log."""

    outcome_known: bool


class NotAppendedError(AppendError):
    """The transaction is not in the log and never will be."""

    outcome_known = True


class LockConflict(NotAppendedError):  # the name says what happened
    """One of the locks has changed since the high-water mark of the append; it is not in the log.

    ``transaction_id`` is the committed transaction at which it changed, at the latest. Locks that share a hash can
    conflict without a need. Read the feed up to it, and decide again.
    """

    def __init__(self, partition_id: int, transaction_id: int) -> None:
        super().__init__(f"a lock was changed by transaction {transaction_id} of partition {partition_id}")
        self.partition_id = partition_id
        self.transaction_id = transaction_id


class OutcomeUnknownError(AppendError):
    """The append was sent and its outcome is not known: it may be in the log already, get there later, or never."""

    outcome_known = False


class AppendManyError(AppendError):
    """Some of the transactions given to ``append_many`` were not seen to be committed.

    ``outcomes`` has one entry for each of them, in order: its id, or its :class:`AppendError` (or other error).
    """

    def __init__(self, outcomes: "list[int | Exception]") -> None:
        errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        super().__init__(f"{len(errors)} of {len(outcomes)} transactions were not appended; the first: {errors[0]}")
        self.outcomes = outcomes
        self.outcome_known = not any(isinstance(error, OutcomeUnknownError) for error in errors)


class BulkReadsNotSupportedError(ClientError):
    """The server's version of the protocol has no bulk reads; transactions are read one by one."""


class InvalidOperationError(WaltzError):
    """The call is not possible with this client's configuration or arguments."""


class ServerError(WaltzError):
    """A server could not do what it was asked for."""


class RpcError(ServerError):
    """A server answered a request for transaction data with this error text."""


class DataChecksumError(WaltzError):
    """Data arrived with a wrong checksum again and again; the log or a cache of the server is damaged."""
