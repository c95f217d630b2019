"""A small application; run by a Python that has the library installed, outside of the checkout."""

import asyncio
import sys

import waltz


async def main(configuration: str) -> None:
    """Append a transaction and read it."""
    async with waltz.connect(configuration) as client:
        transaction_id = await client.append(0, b"three umbrellas sold", header=1)
        async for transaction in client.feed(0, after=transaction_id - 1):
            assert (transaction.transaction_id, transaction.data) == (transaction_id, b"three umbrellas sold")
            break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
