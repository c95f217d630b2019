"""The account of the memory that the partitions of a server share. Pure.

Every account may use a fixed part of the *free* memory, like queues in the shared buffers of network switches (dynamic
thresholds). A single account gets a large part. Many greedy accounts get equal parts, and always leave free memory, so
that a modest account always finds room. No account has to know of the others.

With a limit of M, and the d-th part of the free memory for each account, n greedy accounts use M / (n + d) each.
"""

MIN_SHARE_BYTES = 64 << 10
"""The bytes that an account may always use, so that small requests find room even if large ones took more than was
free."""

DEFAULT_LIMIT_BYTES = 1 << 30


class MemoryBudget:
    """The limit of all accounts together, and the used bytes."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Unused bytes of the budget; 0 when it is exceeded."""
        return max(self.limit_bytes - self.used_bytes, 0)

    def account(self, divisor: int) -> "MemoryAccount":
        """A new account that may use one ``divisor``-th of the free bytes."""
        return MemoryAccount(self, divisor)


class MemoryAccount:
    """The bytes of one user of the budget. The user asks before it takes more, and counts all bytes that it has
    taken."""

    __slots__ = ("_budget", "_divisor", "used_bytes")

    def __init__(self, budget: MemoryBudget, divisor: int) -> None:
        self._budget = budget
        self._divisor = divisor
        self.used_bytes = 0

    @property
    def share_bytes(self) -> int:
        """The bytes that the account may use at present."""
        return max(self._budget.free_bytes // self._divisor, MIN_SHARE_BYTES)

    @property
    def exceeded(self) -> bool:
        """Whether the account uses more than its share."""
        return self.used_bytes > MIN_SHARE_BYTES and self.used_bytes > self.share_bytes

    def admits(self, size_bytes: int) -> bool:
        """Whether the account may use ``size_bytes`` more."""
        return self.used_bytes + size_bytes <= self.share_bytes

    def add(self, size_bytes: int) -> None:
        """Add ``size_bytes`` to the account."""
        self.used_bytes += size_bytes
        self._budget.used_bytes += size_bytes

    def set(self, used_bytes: int) -> None:
        """Set the account to ``used_bytes``."""
        self._budget.used_bytes += used_bytes - self.used_bytes
        self.used_bytes = used_bytes
