"""What an append at a level below the quorum returns: an acknowledgement before the commit."""

import asyncio
from typing import Literal, Self

from waltz.client.arguments import APPEND_TIMEOUT_S, check_seconds
from waltz.common.errors import DeadlineExceededError

EarlyLevel = Literal["leader", "leader_plus_one", "write_one_read_all", "none"]
"""The levels below the quorum."""


class Acknowledgement(int):
    """The id at which storages below the quorum have an append. The commit follows, or the loss.

    Examples:
        ```python
        acknowledgement = await client.append(0, b"clicked", consistency="leader")
        print("on one disk, as transaction", acknowledgement)
        print("committed, as transaction", await acknowledgement.committed())
        ```
    """

    partition_id: int
    """The partition of the append."""
    _end: "asyncio.Future[int]"

    def __new__(cls, transaction_id: int, partition_id: int, end: "asyncio.Future[int]") -> Self:
        """``end`` has the id of the committed transaction, or the error of the append."""
        made = super().__new__(cls, transaction_id)
        made.partition_id = partition_id
        made._end = end
        return made

    def __repr__(self) -> str:
        return f"<Acknowledgement: transaction {int(self)} of partition {self.partition_id}>"

    @property
    def is_committed(self) -> bool:
        """Whether the transaction is known as committed."""
        return self._end.done() and not self._end.cancelled() and self._end.exception() is None

    async def committed(self, *, timeout_s: float = APPEND_TIMEOUT_S) -> int:
        """Wait until the transaction is committed. May be called again.

        Args:
            timeout_s: Limit of the wait in seconds.

        Returns:
            The id of the transaction.

        Raises:
            AckRetracted: The transaction is lost, and not in the log.
            OutcomeUnknownError: The client was closed, and the transaction may be in the log.
            DeadlineExceededError: Neither is known within ``timeout_s``.
        """
        check_seconds(timeout_s, "timeout_s")
        await asyncio.wait((self._end,), timeout=timeout_s)
        if not self._end.done():
            raise DeadlineExceededError(
                f"transaction {int(self)} of partition {self.partition_id} is acknowledged, and it is not known within "
                f"{timeout_s:g} s whether it is committed; committed() may be awaited again"
            )
        return self._end.result()
