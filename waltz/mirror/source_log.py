"""The log of one partition as a client of its cluster reads it."""

from collections.abc import AsyncGenerator, Sequence

from waltz.asynchronous import Client
from waltz.client.errors import ConfirmedMarkNotSupportedError, TrimmedError
from waltz.common.records import Record
from waltz.mirror.comparing import Difference, bisected, difference_of
from waltz.mirror.errors import DifferentLogsError, MirrorError
from waltz.mirror.target_link import TargetLink


class ClientLog:
    """A ``ReadsLog``, which a source is as well. Methods raise ``WaltzError`` when the cluster does not answer."""

    def __init__(self, client: Client, partition_id: int) -> None:
        self._client = client
        self._partition_id = partition_id

    async def batches(self, first: int, until: int) -> AsyncGenerator[Sequence[Record], None]:
        """The transactions of a range, in order."""
        if first > until:
            return
        async with self._client.feed_batches(self._partition_id, after=first - 1, until=until) as feed:
            async for records in feed:
                yield records

    async def following(self, last_id: int) -> AsyncGenerator[Sequence[Record], None]:
        """The transactions behind one, and those to come."""
        async with self._client.feed_batches(self._partition_id, after=last_id) as feed:
            async for records in feed:
                yield records

    async def record(self, transaction_id: int) -> Record:
        """One committed transaction."""
        async for records in self.batches(transaction_id, transaction_id):
            return records[0]
        raise AssertionError("a feed ends behind its last transaction")

    async def mark(self) -> tuple[int, bool]:
        """The last committed transaction, and whether that is certain: an owner that was replaced may tell an old
        one."""
        try:
            return await self._client.high_water_mark(self._partition_id, confirmed=True), True
        except ConfirmedMarkNotSupportedError:
            return await self._client.high_water_mark(self._partition_id), False


async def check_beginning(partition_id: int, source: ClientLog, target: TargetLink, last_id: int) -> None:
    """Make sure that the target, which ends with ``last_id``, can be a beginning of the source.

    The last transactions are compared. Raises ``DifferentLogsError`` with the first difference that a few reads find,
    and ``MirrorError`` when that is not known yet.
    """
    if last_id < 0:
        return
    mark, is_certain = await source.mark()
    if mark < last_id:
        text = (
            f"partition {partition_id}: the target has transactions up to {last_id}, and the source has them up to "
            f"{mark}"
        )
        if not is_certain:
            raise MirrorError(f"{text}, as an owner says that cannot confirm it")
        if mark < 0:
            raise DifferentLogsError(f"{text}: transaction 0 is in the target only")
        at_end = await _difference(source, target, mark)
        if at_end is None:
            raise DifferentLogsError(f"{text}: transaction {mark + 1} is in the target only")
        last_id = mark

    found = await _difference(source, target, last_id)
    if found is None:
        return

    try:
        first = await bisected(lambda transaction_id: _difference(source, target, transaction_id), found)
    except TrimmedError:  # where it begins cannot be found any more
        first = found
    raise DifferentLogsError(
        f"partition {partition_id}: the target is no beginning of the source. {first}; waltz mirror verify compares all"
    )


async def _difference(source: ClientLog, target: TargetLink, transaction_id: int) -> Difference | None:
    return difference_of(await source.record(transaction_id), await target.record(transaction_id))
