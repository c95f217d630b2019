"""A storage node killed under load, again and again: everything it acknowledged is there when it comes back."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.storage_processes import KEY, TIMEOUT_S, StorageProcess
from waltz.common.checksum import checksum
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.records import Record, encode_records
from waltz.storage.disk.draining import drain
from waltz.storage.disk.files.files import OsFiles
from waltz.storage.remote.client import StorageClient

pytestmark = pytest.mark.integration

KILLS = (5, pytest.param(15, marks=pytest.mark.deep))
PARTITIONS = {"each syncs its own file": 3, "journal": 8, "a journal on each of two disks": 8}
MOVED = 4
"""Number of partitions of a node that moves them between its disks."""
IN_FLIGHT = 6
SIZES_BYTES = ((0, 10, 128, 1000), (0, 128, 1000, 8000))
"""Sizes of payloads of even and odd partitions: with large payloads a group is written while the one before is being
synced."""


class Writer:
    """Appends to one partition, and remembers the sent records and the number of acknowledged ones."""

    def __init__(self, partition_id: int, choices: random.Random) -> None:
        self.partition_id = partition_id
        self.sent: list[Record] = []
        self.acknowledged = 0
        """Number of records that are durable."""
        self.acknowledged_since_start = 0
        self._choices = choices
        self._client: StorageClient | None = None
        self._session_id = 0

    async def resume(self, client: StorageClient, session_id: int, *, whole: bool = False) -> None:
        """Check what the node has, open a session and go on behind it."""
        self._client, self._session_id = client, session_id
        await client.last_session_info(session_id, self.partition_id, timeout_s=TIMEOUT_S)
        maximum = await client.max_transaction_id(session_id, self.partition_id, timeout_s=TIMEOUT_S)
        assert maximum >= self.acknowledged - 1, "acknowledged records are gone"
        assert maximum < len(self.sent), "there are records that nobody sent"
        del self.sent[maximum + 1 :]
        await self.compare(0 if whole else max(0, self.acknowledged - 500))
        self.acknowledged = len(self.sent)
        self.acknowledged_since_start = 0
        await client.set_low_water_mark(session_id, self.partition_id, maximum, timeout_s=TIMEOUT_S)
        for _ in range(IN_FLIGHT):
            self._send()

    async def compare(self, first: int) -> None:
        """Read all records from ``first`` on, and compare them with the sent ones."""
        assert self._client is not None
        while first < len(self.sent):
            found = await self._client.records(self._session_id, self.partition_id, first, 10_000, timeout_s=TIMEOUT_S)
            assert found == self.sent[first : first + len(found)]
            assert found
            first += len(found)

    def _send(self) -> None:
        assert self._client is not None
        first = len(self.sent)
        batch = []
        for transaction_id in range(first, first + self._choices.randint(1, 100)):
            data = self._choices.randbytes(self._choices.choice(SIZES_BYTES[self.partition_id % 2]))
            req_id = ReqId.of(1, self._session_id, self.partition_id, transaction_id)
            batch.append(Record(transaction_id, req_id, 7, data, checksum(data)))
        self.sent += batch
        end = len(self.sent)

        def done(error: Exception | None) -> None:
            if error is None:
                self.acknowledged = end
                self.acknowledged_since_start += len(batch)
                self._send()

        self._client.append_encoded(self._session_id, self.partition_id, encode_records(batch), len(batch), done)


def is_guarded(directory: Path) -> bool:
    """Whether a node of the original refuses to start: it compares the key in the control file with its cluster's."""
    return (directory / "waltz-storage.ctl").read_bytes()[12:28] != KEY.bytes


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("durability", PARTITIONS)
@pytest.mark.timeout(300)
async def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, durability: str, kills: int) -> None:
    """Of the starts of a node that keeps a journal every fourth one is without it.

    A control file that is not guarded lets a node of the original start: then the journals have nothing.
    """
    choices = random.Random(kills)
    partitions = PARTITIONS[durability]
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    further = [second] if "disks" in durability else []
    writers = [Writer(partition_id, choices) for partition_id in range(partitions)]
    for number in range(kills):
        node = await asyncio.to_thread(
            StorageProcess,
            first,
            partitions=partitions,
            threshold_bytes=choices.choice([100_000, 3_000_000, 50_000_000]),
            journal="journal" in durability and number % 4 < 3,
            further=further,
        )
        if number == 0:
            admin = await node.admin()
            await admin.set_assigned(range(partitions), True)
            await admin.close()
        client = await node.client()
        for writer in writers:
            await writer.resume(client, number)
        # Under load until every partition has acknowledged something; when it dies after that is left to chance.
        enough = choices.randint(1, 2000)
        async with asyncio.timeout(TIMEOUT_S):
            while min(writer.acknowledged_since_start for writer in writers) < enough:
                await asyncio.sleep(0.001)
        await asyncio.to_thread(node.kill)
        await client.close()
        assert is_guarded(first) == ("journal" in durability and number % 4 < 3)
        if further and number % 2:
            with contextlib.closing(OsFiles()) as files:
                assert (drain(files, str(first)) is not None) == (number % 4 < 3)
            assert not is_guarded(first)
    node = await asyncio.to_thread(StorageProcess, first, partitions=partitions, further=further)
    client = await node.client()
    for writer in writers:
        await writer.resume(client, kills)
        await client.truncate(kills + 1, writer.partition_id, len(writer.sent), timeout_s=TIMEOUT_S)
    await client.close()
    await asyncio.to_thread(node.stop)


async def test_an_orderly_stop_under_load_loses_nothing(tmp_path: Path) -> None:
    """Whether the next start keeps a journal or not."""
    choices = random.Random(6)
    writer = Writer(0, choices)
    for number in range(3):
        node = await asyncio.to_thread(StorageProcess, tmp_path, partitions=1, journal=number % 2 == 0)
        if number == 0:
            admin = await node.admin()
            await admin.set_assigned([0], True)
            await admin.close()
        client = await node.client()
        await writer.resume(client, number)
        async with asyncio.timeout(TIMEOUT_S):
            while writer.acknowledged_since_start < 500:
                await asyncio.sleep(0.001)
        await asyncio.to_thread(node.stop)
        assert (tmp_path / "waltz-storage.clean").exists()
        await client.close()


def moves_of(directories: Sequence[Path], step: str) -> list[Path]:
    """Directories of partitions with the ending of a step of a move."""
    return [path for directory in directories for path in directory.glob(f"[0-9]{step}")]


async def move_about(node: StorageProcess, directories: Sequence[Path], choices: random.Random) -> None:
    """Move all partitions between the disks until the node dies."""
    admin = await node.admin()
    with contextlib.suppress(WaltzError):
        while True:
            directory = str(choices.choice(directories))
            await admin.move_to_disk(choices.randrange(MOVED), directory, 1 << 40)
    await admin.close()


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.deep)])
@pytest.mark.parametrize("journal", [False, True], ids=["no journal", "journal"])
@pytest.mark.timeout(300)
async def test_nothing_acknowledged_is_lost_by_kill_9_while_partitions_move(
    tmp_path: Path, journal: bool, rounds: int
) -> None:
    """Partitions move between the disks under load; the node is killed when a step of a move is seen."""
    choices = random.Random(rounds)
    directories = [tmp_path / name for name in ("first", "second", "third")]
    for directory in directories:
        directory.mkdir()
    writers = [Writer(partition_id, choices) for partition_id in range(MOVED)]
    for number, step in enumerate([".moving", ".moved", ".moving", ".moved"] * rounds):
        node = await asyncio.to_thread(
            StorageProcess,
            directories[0],
            partitions=MOVED,
            threshold_bytes=300_000,
            journal=journal,
            further=directories[1:],
        )
        assert not moves_of(directories, ".mov*")
        if number == 0:
            admin = await node.admin()
            await admin.set_assigned(range(MOVED), True)
            await admin.close()
        client = await node.client()
        for writer in writers:
            await writer.resume(client, number)
        moving = asyncio.create_task(move_about(node, directories, choices))
        async with asyncio.timeout(TIMEOUT_S):
            while min(writer.acknowledged_since_start for writer in writers) < 200 or not moves_of(directories, step):
                await asyncio.sleep(0)
                assert not moving.done()
        node.kill()
        await moving
        await client.close()
    node = await asyncio.to_thread(
        StorageProcess, directories[0], partitions=MOVED, journal=journal, further=directories[1:]
    )
    client = await node.client()
    for writer in writers:
        await writer.resume(client, 4 * rounds, whole=True)
        await client.truncate(4 * rounds + 1, writer.partition_id, len(writer.sent), timeout_s=TIMEOUT_S)
    copies = sorted(path.name for directory in directories for path in directory.glob("[0-9]") if not path.is_symlink())
    assert copies == [str(partition_id) for partition_id in range(MOVED)]
    await client.close()
    await asyncio.to_thread(node.stop)
