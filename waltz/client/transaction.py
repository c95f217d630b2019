"""Committed transactions, as applications receive them."""

from typing import Protocol, TypeVar

from waltz.common.ids import ReqId
from waltz.common.serializers import Deserializer

T = TypeVar("T")

DATA_TIMEOUT_S = 60.0
"""Default time limit of a read of a transaction's data."""


class DataSource(Protocol):
    """The source of the data of committed transactions."""

    async def read(self, transaction_id: int, timeout_s: float) -> bytes:
        """The data; raises ``WaltzError`` when it cannot be read in time."""
        ...

    async def read_batch(self, first: "Transaction", max_count: int, timeout_s: float) -> "list[Transaction]":
        """``first`` and the waiting transactions after it, with their data; raises ``WaltzError`` like :meth:`read`."""
        ...


class Transaction:
    """A committed transaction. Its data is fetched at each request.

    The data of a transaction that this client appended itself is known without asking a server.

    Examples:
        ```python
        async def apply_transaction(transaction: waltz.Transaction) -> None:  # as a callback does it
            data = await transaction.data(waltz.JsonSerializer())
            print(transaction.partition_id, transaction.transaction_id, transaction.header, data)
        ```
    """

    __slots__ = ("_data", "_source", "header", "req_id", "transaction_id")

    def __init__(
        self, req_id: bytes, transaction_id: int, header: int, data: bytes | None, source: DataSource | None
    ) -> None:
        """``source`` may be left out if the data is given."""
        self.req_id = req_id
        """The 16 bytes of the request id of the append."""
        self.transaction_id = transaction_id
        self.header = header
        self._data = data
        self._source = source

    def __repr__(self) -> str:
        return f"Transaction({self.transaction_id}, header={self.header}, {ReqId(self.req_id)})"

    @property
    def partition_id(self) -> int:
        """The partition of the transaction."""
        return ReqId(self.req_id).partition_id

    async def data(self, serializer: Deserializer[T], *, timeout_s: float = DATA_TIMEOUT_S) -> T:
        """The data as an object; raises like :meth:`data_bytes`, and the errors of ``serializer``."""
        return serializer.deserialize(await self.data_bytes(timeout_s=timeout_s))

    async def data_bytes(self, *, timeout_s: float = DATA_TIMEOUT_S) -> bytes:
        """The data. Nothing is kept: each call fetches again (except for transactions of this client).

        After errors of the server the request is repeated, with growing delays.

        Raises:
            DeadlineExceededError: ``timeout_s`` has passed.
            DataChecksumError: Servers send damaged data.
            ClientClosedError: The client is closed.
        """
        if self._data is not None:
            return self._data
        assert self._source is not None
        return await self._source.read(self.transaction_id, timeout_s)

    async def batch(self, max_count: int, *, timeout_s: float = DATA_TIMEOUT_S) -> "list[Transaction]":
        """This transaction and those after it that wait to be applied, with their data: at most ``max_count``.

        For applications that apply many transactions in the call of ``apply_transaction`` for the first of them; the
        callback is still called for each of the others. There may be fewer than wait, without own transactions whose
        commit this client has not seen yet: those are applied one by one. Raises as :meth:`data_bytes`.
        """
        if max_count <= 1 or self._source is None:
            return [await self._with_data(timeout_s)]
        return await self._source.read_batch(self, max_count, timeout_s)

    async def _with_data(self, timeout_s: float) -> "Transaction":
        data = await self.data_bytes(timeout_s=timeout_s)
        return Transaction(self.req_id, self.transaction_id, self.header, data, self._source)
