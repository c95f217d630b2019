"""No acknowledgement leaves a node before the sync that covers it: seen where answers enter the connection.

The node is a real one with sockets; its files are in memory and know what of them is durable.
"""

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.unit.storage.crash_files import CrashFile, CrashFiles, Directory, Node
from tests.unit.storage.node_support import (
    KEY,
    TIMEOUT_S,
    RawPeer,
    make_config,
    make_zookeeper,
    records,
)
from waltz.common.ids import Endpoint
from waltz.common.metrics.registry import Registry
from waltz.common.wire import storage as wire
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.node.data_port import DataConnection
from waltz.storage.node.node import StorageNode

T = TypeVar("T")

APPENDS = 120


class SlowFiles(CrashFiles):
    """Every operation takes some turns of the loop, in which others go on."""

    def __init__(self, choices: random.Random) -> None:
        super().__init__()
        self._choices = choices

    async def run(self, function: Callable[[], T]) -> T:
        for _ in range(self._choices.randint(0, 8)):
            await asyncio.sleep(0)
        result = function()
        for _ in range(self._choices.randint(0, 8)):
            await asyncio.sleep(0)
        return result


def durable_copy(files: CrashFiles) -> CrashFiles:
    """What would be there if the power failed now, without any luck."""
    copy = CrashFiles()
    for name, node in files.root.durable.items():
        if not isinstance(node, Directory):
            continue
        copy.make_directory(f"/{name}")
        for inner, file in node.durable.items():
            assert isinstance(file, Node)
            copy.open(f"/{name}/{inner}", create=True).close()
            copy.overwrite(f"/{name}/{inner}", bytes(file.durable))
    return copy


def durable_maximum(files: CrashFiles, partition_id: int) -> int:
    copy = durable_copy(files)
    if not copy.exists(f"/{partition_id}"):
        return -1
    log = PartitionLog.open(
        copy,
        f"/{partition_id}",
        KEY,
        partition_id,
        local_low_water_mark=-1,
        segment_size_threshold_bytes=1 << 30,
        segment_cache_capacity=5,
    )
    return log.max_transaction_id


async def append_and_watch(seed: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Append over two connections to two partitions; the acknowledgements that left too early."""
    choices = random.Random(seed)
    files = SlowFiles(choices)
    early: list[str] = []
    answer = DataConnection.answer

    def watched_answer(connection: DataConnection, frame: bytes) -> None:
        message = wire.decode(frame, 7, len(frame))
        if isinstance(message, wire.SuccessResponse) and message.seq_num >= 0:
            durable = durable_maximum(files, message.partition_id)
            if durable < message.seq_num:
                early.append(f"partition {message.partition_id}: {message.seq_num} acknowledged, {durable} durable")
        answer(connection, frame)

    monkeypatch.setattr(DataConnection, "answer", watched_answer)
    zookeeper = await (await make_zookeeper()).connect()
    config = make_config("/", segment_size_threshold_bytes=2000)  # type: ignore[arg-type]  # no path of this machine
    node = await StorageNode.start(config, files=files, zookeeper=zookeeper, metrics=Registry())
    await node.manager.assign([0, 1])
    try:
        peers = [await RawPeer.connect(Endpoint("127.0.0.1", node.port)) for _ in (0, 1)]
        for partition_id, peer in enumerate(peers):
            next_id = 0
            for _ in range(APPENDS):
                batch = records(next_id, choices.randint(1, 12), choices.randbytes(choices.randint(0, 90)))
                next_id += len(batch)
                peer.send(wire.encode(wire.AppendRequest(1, next_id - 1, partition_id, batch, False)))
        async with asyncio.timeout(TIMEOUT_S * 6):
            for peer in peers:
                for _ in range(APPENDS):
                    assert isinstance(await peer.answer(), wire.SuccessResponse)
        for peer in peers:
            await peer.close()
    finally:
        await node.close()
        await zookeeper.close()
    return early


@pytest.mark.parametrize("seed", range(3))
async def test_no_acknowledgement_leaves_before_its_sync(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await append_and_watch(seed, monkeypatch) == []


async def test_a_node_that_does_not_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CrashFile, "datasync", lambda _file: None)
    assert await append_and_watch(1, monkeypatch) != []
