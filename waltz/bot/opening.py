"""The partition of a bot, and its clients."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from waltz.asynchronous import Client, connect
from waltz.client.engine.environment import Driver
from waltz.common.config.schemas import ClientConfig
from waltz.common.errors import WaltzError
from waltz.table.codecs import Codec, check_available
from waltz.table.errors import CodecUnavailableError
from waltz.table.face.configured import configure, properties_of
from waltz.table.face.table import Table
from waltz.table.stores.registry import canonical

SPACES = ("random", "canary", "bank")
"""Prefixes of the bots' keys."""

PROPERTIES: dict[str, object] = {
    "format": "table",
    "tombstoneTimestampAgeInMillis": 3_600_000,
    "tombstoneTimestampIntervalMillis": 600_000,
}
"""Properties of a bot's table; the codec is Amza's. Tombstones are removed after an hour."""


class Place(NamedTuple):
    """The partition of a bot, and the files of its clients."""

    config: ClientConfig | Driver
    partition_id: int
    clients: int
    store: str
    directory: Path | None
    """The directory of the stores of all clients."""
    write_sessions: bool


class Opened(NamedTuple):
    """The clients and tables of a bot."""

    clients: list[Client]
    tables: list[Table]


@asynccontextmanager
async def open_place(place: Place) -> AsyncIterator[Opened]:
    """Connect the clients, make an empty partition a table, and open the table for each client.

    Raises ``WaltzError`` when the partition has other data, or its rows expire.
    """
    if place.directory is not None and canonical(place.store) == "memory":
        raise WaltzError(f"a directory is of no use to the store {place.store}; choose another store")
    config = place.config
    if place.write_sessions and isinstance(config, ClientConfig):
        config = config.model_copy(update={"session_fallback": "plain"})
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connect(config, session_write=place.write_sessions))
            for _ in range(place.clients)
        ]
        await _prepare(clients[0], place.partition_id)
        tables: list[Table] = []
        for number, client in enumerate(clients):
            directory = None if place.directory is None else place.directory / f"client-{number}"
            table = client.table(place.partition_id, store=place.store, directory=directory)
            tables.append(await stack.enter_async_context(table))
        await _check_own(tables[0], place.partition_id)
        yield Opened(clients, tables)


async def _prepare(client: Client, partition_id: int) -> None:
    properties = await properties_of(client, partition_id)
    if properties.format != "table":
        last = await client.high_water_mark(partition_id)
        if last >= 0:
            raise WaltzError(
                f"partition {partition_id} is no table and holds {last + 1:,} transactions; a bot needs a partition of "
                "its own: an empty one, or the one in which it was before"
            )
        properties = await configure(client, partition_id, PROPERTIES | {"rowType": _row_type()})
    if properties.ttl_timestamp_age_ms or properties.ttl_version_age_ms:
        raise WaltzError(
            f"rows of partition {partition_id} have a time to live, and a bot would miss those that expire; take "
            "ttlTimestampAgeInMillis and ttlVersionAgeInMillis back"
        )


def _row_type() -> str:
    """The codec of Amza's bot, unless its library is missing."""
    try:
        check_available(Codec.SNAPPY)
    except CodecUnavailableError:
        return "zlib"
    return "snappy_primary"


async def _check_own(table: Table, partition_id: int) -> None:
    await table.refresh(strict=False)
    async for prefix, key in table.scan_keys():
        if prefix or key.split(b"/")[0].decode("utf-8", "replace") not in SPACES:
            raise WaltzError(
                f"partition {partition_id} holds a row that is not of a bot, with the prefix {prefix!r} and the key "
                f"{key!r}; a bot needs a partition of its own"
            )
