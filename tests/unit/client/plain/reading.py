"""How tests read a number of transactions and no more."""

from waltz.client.plain.merged import MergedFeed
from waltz.common.records import Record


async def all_of(feed: MergedFeed, count: int) -> list[Record]:
    """The next ``count`` transactions."""
    return [await anext(feed) for _ in range(count)]
