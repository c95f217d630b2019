"""A partition that a bot may have, and those that it refuses."""

from pathlib import Path

import pytest

import waltz
from tests.unit.bot.places import opened
from waltz.bot.opening import PROPERTIES, SPACES, Place, open_place
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.errors import WaltzError
from waltz.table.codecs import Codec
from waltz.table.errors import CodecUnavailableError
from waltz.table.properties import PartitionProperties, changed

pytestmark = pytest.mark.timeout(60)


async def properties(driver: MockDriver) -> PartitionProperties:
    async with waltz.connect(driver) as client:
        return await waltz.table.properties_of(client, 0)


@pytest.mark.parametrize(("has_snappy", "row_type"), [(True, "snappy_primary"), (False, "zlib")])
async def test_an_empty_partition_becomes_a_table(
    has_snappy: bool, row_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(codec: Codec) -> None:
        assert codec is Codec.SNAPPY
        if not has_snappy:
            raise CodecUnavailableError("it is not installed")

    monkeypatch.setattr("waltz.bot.opening.check_available", check)
    monkeypatch.setattr("waltz.table.face.configured.check_available", lambda codec: None)
    driver = MockDriver()
    async with opened(driver) as (place, *_):
        assert len(place.clients) == len(place.tables) == 2
        assert await properties(driver) == changed(PartitionProperties(), PROPERTIES | {"rowType": row_type})


async def test_a_partition_of_bots_stays_as_it_is() -> None:
    driver = MockDriver()
    async with opened(driver) as (place, *_):
        for space in SPACES:
            await place.tables[0].put(f"{space}/x".encode(), b"of a former run")
        await waltz.table.configure(place.clients[0], 0, {"maxKeySizeInBytes": 100})
        before = await properties(driver)
    async with opened(driver):
        assert await properties(driver) == before


async def test_what_is_not_its_own_is_refused() -> None:
    partitions = MockServerPartition.create(1)
    partitions[0].add(b"an order")
    with pytest.raises(WaltzError, match="partition 0 is no table and holds 1 transactions; a bot needs a partition"):
        async with opened(MockDriver(partitions)):
            pass
    assert (await properties(MockDriver(partitions))).format == "raw"

    driver = MockDriver()
    async with waltz.connect(driver) as client:
        await waltz.table.configure(client, 0, {"format": "table"})
        async with client.table(0) as table:
            await table.put(b"randomly", b"v")
    with pytest.raises(WaltzError, match="a row that is not of a bot, with the prefix b'' and the key b'randomly'"):
        async with opened(driver):
            pass


async def test_rows_that_expire_are_refused() -> None:
    driver = MockDriver()
    async with waltz.connect(driver) as client:
        await waltz.table.configure(client, 0, {"format": "table", "ttlVersionAgeInMillis": 1})
    with pytest.raises(WaltzError, match="time to live, and a bot would miss those that expire"):
        async with opened(driver):
            pass


async def test_a_directory_for_a_store_in_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WaltzError, match="a directory is of no use to the store memory; choose another store"):
        async with open_place(Place(MockDriver(), 0, 2, "memory", tmp_path, False)):
            pass


async def test_each_client_has_a_directory_for_its_store(tmp_path: Path) -> None:
    async with open_place(Place(MockDriver(), 0, 2, "sqlite", tmp_path, False)):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["client-0", "client-1"]
