"""What the plain face needs of a partition that its client follows."""

from typing import Protocol

from waltz.client.engine.submission import Submission
from waltz.common.errors import WaltzError


class JoinedPartition(Protocol):
    """A partition that is followed; see :class:`~waltz.client.engine.appends.PartitionAppends`."""

    @property
    def obstacle(self) -> WaltzError | None:
        """What keeps appends from being sent at present, as far as that is known."""
        ...

    @property
    def high_water_mark(self) -> int:
        """Id of the last transaction that is known to be committed."""
        ...

    def append_now(
        self,
        submission: Submission,
        data: bytes,
        header: int,
        client_high_water_mark: int,
        write_locks: tuple[int, ...],
        read_locks: tuple[int, ...],
        append_locks: tuple[int, ...],
    ) -> bool:
        """Send at once if that is possible."""
        ...

    async def submit_attempt(self, submission: Submission) -> None:
        """Wait until it can be sent, then have it built and sent."""
        ...
