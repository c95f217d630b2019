"""What a mirror has sent, and the target has not committed: bounded, whatever the round trip is. Pure."""

from collections import deque
from typing import NamedTuple


class WindowLimit(NamedTuple):
    """The most that is in flight for one partition. A single transaction may be larger."""

    transactions: int
    size_bytes: int


class Window:
    """The transactions in flight, whose ids follow each other."""

    def __init__(self, committed_id: int, limit: WindowLimit) -> None:
        """``committed_id`` is the end of the target's log."""
        self.committed_id = committed_id
        """The last transaction that is known to be committed in the target."""
        self.size_bytes = 0
        """The data in flight."""
        self._limit = limit
        self._sizes: deque[int] = deque()

    @property
    def next_id(self) -> int:
        """The id of the next transaction to send."""
        return self.committed_id + len(self._sizes) + 1

    @property
    def transactions(self) -> int:
        """The number of transactions in flight."""
        return len(self._sizes)

    def admits(self, size_bytes: int) -> bool:
        """Whether a transaction with so much data may be sent now."""
        return not self._sizes or (
            len(self._sizes) < self._limit.transactions and self.size_bytes + size_bytes <= self._limit.size_bytes
        )

    def sent(self, size_bytes: int) -> None:
        """The next transaction was sent."""
        self._sizes.append(size_bytes)
        self.size_bytes += size_bytes

    def committed(self, transaction_id: int) -> tuple[int, int]:
        """Everything up to a transaction is committed. Returns how many transactions and bytes of these were in flight.

        Raises ``ValueError`` for a transaction that was never sent: somebody else has written it.
        """
        if transaction_id >= self.next_id:
            raise ValueError(
                f"transaction {transaction_id} is committed, and nothing was sent behind {self.next_id - 1}"
            )
        count = max(transaction_id - self.committed_id, 0)
        size_bytes = sum(self._sizes.popleft() for _ in range(count))
        self.size_bytes -= size_bytes
        self.committed_id += count
        return count, size_bytes
