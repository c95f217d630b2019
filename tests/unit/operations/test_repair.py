"""Repair of damaged partitions: of files by themselves, and of a node from the others of its cluster."""

import errno
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.smoke.proxy import Proxy
from tests.unit.common.cluster import fakes
from tests.unit.common.cluster.fakes import FakeStorage
from tests.unit.relay import relay
from tests.unit.storage.crash_files import CrashFiles, CrashNow
from tests.unit.storage.log_testing import DIRECTORY, KEY, PARTITION, append, open_log, read_all, record
from tests.unit.storage.node_support import (
    PARTITION_COUNT,
    ROOT,
    TIMEOUT_S,
    RunningNode,
    make_config,
    records,
    running_node,
)
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.ids import UNKNOWN_END, Endpoint
from waltz.common.metrics.registry import Registry
from waltz.common.records import Record
from waltz.common.wire.frames import STORAGE_ADMIN
from waltz.common.zk.znodes import (
    UNRESOLVED,
    ConnectionMetadata,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaId,
    ReplicaState,
    StoreParams,
)
from waltz.operations import repair
from waltz.operations import storages as operations
from waltz.operations.repair import Repair, Repaired, Roles
from waltz.storage.disk.files.files import OsFiles
from waltz.storage.disk.journal.replay import mark_lost
from waltz.storage.disk.salvage import STAGED_NAME, Salvage, Staged
from waltz.storage.errors import CorruptionError, StorageError
from waltz.storage.node.node import StorageNode
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient
from waltz.storage.remote.errors import RemoteStorageError

ITEMS = [record(i, bytes([i]) * 60) for i in range(21)]


def seg(first: int, suffix: str = ".seg") -> str:
    return f"{DIRECTORY}/{first:019d}{suffix}"


@pytest.fixture
def files() -> CrashFiles:
    """Three segments of seven records of 100 bytes."""
    files = CrashFiles()
    log = open_log(files, threshold=800)
    append(log, ITEMS)
    log.close()
    return files


def flip(files: CrashFiles, path: str, offset: int) -> None:
    content = bytearray(files.contents(path))
    content[offset] ^= 4
    files.overwrite(path, bytes(content))


def salvage(files: CrashFiles) -> Salvage:
    return Salvage(files, DIRECTORY, KEY, PARTITION)


def stage(files: CrashFiles, items: Sequence[Record]) -> Staged:
    staged = Staged(files, DIRECTORY)
    staged.add(items)
    return staged


def _flip_record(transaction_id: int) -> Callable[[CrashFiles], None]:
    first = transaction_id // 7 * 7
    return lambda files: flip(files, seg(first), 128 + 100 * (transaction_id - first) + 41)


def _flip_two_records(files: CrashFiles) -> None:
    _flip_record(8)(files)
    _flip_record(11)(files)
    files.overwrite(seg(7, ".idx"), b"")


def _empty(*firsts: int) -> Callable[[CrashFiles], None]:
    def damage(files: CrashFiles) -> None:
        for first in firsts:
            files.overwrite(seg(first), b"")

    return damage


def _flip_records(*transaction_ids: int) -> Callable[[CrashFiles], None]:
    def damage(files: CrashFiles) -> None:
        for transaction_id in transaction_ids:
            _flip_record(transaction_id)(files)

    return damage


def _cut_and_empty(files: CrashFiles) -> None:
    files.overwrite(seg(7), files.contents(seg(7))[: 128 + 550])
    _empty(14)(files)


DAMAGE: dict[str, tuple[Callable[[CrashFiles], None], list[tuple[int, int]]]] = {
    "first record": (_flip_record(0), [(0, 0)]),
    "record in the middle": (_flip_record(9), [(9, 9)]),
    "last record of a segment": (_flip_record(13), [(13, 13)]),
    "last record": (_flip_record(20), [(20, 20)]),
    "header": (lambda files: flip(files, seg(7), 20), []),
    "first id in the header": (lambda files: flip(files, seg(7), 33), []),
    "header of nothing but zeros": (
        lambda files: files.overwrite(seg(7), bytes(128) + files.contents(seg(7))[128:]),
        [],
    ),
    "data file gone": (lambda files: files.remove(seg(7)), [(7, 13)]),
    "data file empty": (lambda files: files.overwrite(seg(7), b""), [(7, 13)]),
    "data file cut": (lambda files: files.overwrite(seg(7), files.contents(seg(7))[:330]), [(9, 13)]),
    "last data file gone": (lambda files: files.remove(seg(14)), [(14, 20)]),
    "index gone": (lambda files: files.remove(seg(7, ".idx")), []),
    "index of another partition": (lambda files: flip(files, seg(7, ".idx"), 31), []),
    "records on both sides of a border": (_flip_records(13, 14), [(13, 13), (14, 14)]),
    "records on both sides of two borders": (_flip_records(5, 6, *range(7, 14), 14), [(5, 6), (7, 13), (14, 14)]),
    "two data files empty": (_empty(7, 14), [(7, 13), (14, 20)]),
    "all data files empty": (_empty(0, 7, 14), [(0, 6), (7, 13), (14, 20)]),
    "end of one data file and the next one": (_cut_and_empty, [(12, 13), (14, 20)]),
    "two records without an index": (_flip_two_records, [(8, 8), (11, 11)]),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_files_are_made_whole(files: CrashFiles, kind: str) -> None:
    damage, missing = DAMAGE[kind]
    damage(files)
    damaged = {name: files.contents(f"{DIRECTORY}/{name}") for name in files.list_directory(DIRECTORY)}
    known = {seg(first) for first in (0, 7, 14)} if "record" in kind else set()
    found = salvage(files).survey(20, 20, known)
    assert list(found.missing) == missing
    assert found.last_transaction_id == 20
    staged = stage(files, [ITEMS[i] for first, last in missing for i in range(first, last + 1)])
    salvage(files).rebuild(found, staged, 20, found.reported)
    staged.close()
    files.crash(random.Random(4))
    log = open_log(files, low_water_mark=20, threshold=800)
    assert read_all(log) == ITEMS
    assert log.damage.ranges == ()
    for name in files.list_directory(DIRECTORY):
        if name.endswith(".quarantined-1"):
            assert files.contents(f"{DIRECTORY}/{name}") == damaged[name.removesuffix(".quarantined-1")]
        else:
            assert name.endswith((".seg", ".idx"))


def test_what_is_whole_is_not_touched(files: CrashFiles) -> None:
    found = salvage(files).survey(20, 20)
    assert found.missing == ()
    files.operations.clear()
    salvage(files).rebuild(found, None, 20, found.reported)
    assert files.operations == []


def test_a_record_that_nobody_brought_fails_the_repair_before_anything_changes(files: CrashFiles) -> None:
    for transaction_id in (8, 9, 17):
        _flip_record(transaction_id)(files)
    found = salvage(files).survey(20, 20, {seg(7), seg(14)})
    assert found.missing == ((8, 9), (17, 17))
    staged = stage(files, [ITEMS[8]])
    files.operations.clear()
    with pytest.raises(StorageError, match="transaction 9 is missing"):
        salvage(files).rebuild(found, staged, 20, found.reported)
    assert "write" not in files.operations


def test_what_was_never_committed_is_cut(files: CrashFiles) -> None:
    _flip_record(9)(files)
    found = salvage(files).survey(5, 20, {seg(7)})
    salvage(files).rebuild(found, None, 8, found.reported)
    log = open_log(files, threshold=800)
    assert read_all(log) == ITEMS[:9]
    assert f"{14:019d}.seg.quarantined-1" in files.list_directory(DIRECTORY)


def test_a_log_without_any_file(files: CrashFiles) -> None:
    for first in (0, 7, 14):
        files.remove(seg(first))
        files.remove(seg(first, ".idx"))
    found = salvage(files).survey(12, -1)
    assert found.missing == ((0, 12),)
    staged = stage(files, ITEMS[:5])
    staged.add(ITEMS[5:13])
    salvage(files).rebuild(found, staged, 12, found.reported)
    assert read_all(open_log(files, low_water_mark=12)) == ITEMS[:13]


def test_records_that_nobody_brought_are_cut_out_of_a_run_over_a_border(files: CrashFiles) -> None:
    _flip_records(13, 14, 16)(files)
    found = salvage(files).survey(5, 20, {seg(7), seg(14)})
    salvage(files).rebuild(found, stage(files, ITEMS[13:15]), 15, found.reported)
    assert read_all(open_log(files, threshold=800)) == ITEMS[:16]


def test_a_log_is_cut_inside_a_run_that_was_brought(files: CrashFiles) -> None:
    _empty(7, 14)(files)
    found = salvage(files).survey(5, 20, set())
    salvage(files).rebuild(found, stage(files, ITEMS[7:16]), 15, found.reported)
    assert read_all(open_log(files, threshold=800)) == ITEMS[:16]


def test_staged_records_ascend(files: CrashFiles) -> None:
    staged = stage(files, [ITEMS[3], ITEMS[4], ITEMS[9]])
    assert [(run.first, run.last) for run in staged.runs] == [(3, 4), (9, 9)]
    with pytest.raises(StorageError, match="out of order"):
        staged.add([ITEMS[8]])
    staged.close()


def test_files_that_cannot_be_placed(files: CrashFiles) -> None:
    files.rename(seg(7), f"{DIRECTORY}/some.seg")
    flip(files, f"{DIRECTORY}/some.seg", 33)
    with pytest.raises(CorruptionError, match="neither header nor name"):
        salvage(files).survey(20, 20)


@pytest.mark.parametrize("after", range(0, 40, 2))
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_during_the_repair_loses_nothing(after: int, power: bool) -> None:
    files = CrashFiles()
    log = open_log(files, threshold=800)
    append(log, ITEMS)
    log.close()
    _flip_record(9)(files)
    files.fail(CrashNow(), after=after)
    with suppress(CrashNow):
        salvage(files).rebuild(salvage(files).survey(20, 20, {seg(7)}), stage(files, [ITEMS[9]]), 20, None)
    if power:
        files.crash(random.Random(after))
    else:
        files.restart()
    log = open_log(files, low_water_mark=20, threshold=800)
    assert log.max_transaction_id == 20
    assert log.read(0, 9) == ITEMS[:9]
    assert log.read(10, 30) == ITEMS[10:]
    log.close()
    salvage(files).rebuild(salvage(files).survey(20, 20, {seg(7)}), stage(files, [ITEMS[9]]), 20, None)
    assert read_all(open_log(files, low_water_mark=20)) == ITEMS


def test_a_full_disk_during_the_repair_loses_nothing(files: CrashFiles) -> None:
    _flip_record(9)(files)
    found = salvage(files).survey(20, 20, {seg(7)})
    staged = stage(files, [ITEMS[9]])
    files.fail(OSError(errno.ENOSPC, "injected"), operation="write", after=1)
    with pytest.raises(OSError, match="injected"):
        salvage(files).rebuild(found, staged, 20, found.reported)
    log = open_log(files, low_water_mark=20, threshold=800)
    assert log.read(10, 30) == ITEMS[10:]


# A node and the others of its cluster


def storage_name(node: RunningNode) -> str:
    return f"127.0.0.1:{node.node.port}"


class Cluster:
    """Nodes that hold partition 0, and what ZooKeeper would say of them."""

    def __init__(self, nodes: list[RunningNode], zookeeper_server: MemoryZooKeeperServer) -> None:
        self.nodes = nodes
        self.server = zookeeper_server
        self.lines: list[str] = []
        self.admin_ports = [node.node.admin_port for node in nodes]
        """Where they are reached."""

    async def describe(self, *, members: Sequence[int]) -> None:
        names = [storage_name(node) for node in self.nodes]
        states = {}
        for number, name in enumerate(names):
            replica = ReplicaId(0, name)
            closing = UNRESOLVED if number in members else 3
            states[replica] = ReplicaState(replica, 1, closing)
        zookeeper = await self.server.connect()
        values = {
            "assignment": ReplicaAssignments(dict.fromkeys(names, (0,))).encode(),
            "connection": ConnectionMetadata(dict(zip(names, self.admin_ports, strict=True))).encode(),
            "partition/0": PartitionMetadata(0, 1, states).encode(),
        }
        for path, value in values.items():
            if await zookeeper.exists(f"{ROOT}/store/{path}") is None:
                await zookeeper.create(f"{ROOT}/store/{path}", value, make_path=True)
            else:
                await zookeeper.set(f"{ROOT}/store/{path}", value)
        await zookeeper.close()

    async def repair(self, mark: int | None, number: int = 0) -> Repaired:
        zookeeper = await self.server.connect()
        try:
            node = Endpoint("127.0.0.1", self.admin_ports[number])
            return await Repair(ClusterHandle(zookeeper, ROOT, None), node, 0, self.lines.append).run(mark)
        finally:
            await zookeeper.close()


LOG = records(0, 40)


@asynccontextmanager
async def cluster(
    directory: Path, damage: Callable[[Path], None], *, lengths: Sequence[int] = (40, 40, 40)
) -> AsyncIterator[Cluster]:
    """Three nodes with the same records, of which the first is damaged and started again."""
    server = MemoryZooKeeperServer()
    zookeeper = await server.connect()
    await zookeeper.create(f"{ROOT}/store", StoreParams(KEY, PARTITION_COUNT).encode(), make_path=True)
    await zookeeper.close()
    for number, length in enumerate(lengths):
        path = directory / str(number)
        path.mkdir()
        async with running_node(path, assign=(0,), segment_size_threshold_bytes=400) as node:
            client = await node.client()
            await client.append(1, 0, LOG[: min(20, length)], timeout_s=TIMEOUT_S)
            await client.set_low_water_mark(1, 0, 19, timeout_s=TIMEOUT_S)
            await client.append(1, 0, LOG[20:length], timeout_s=TIMEOUT_S)
    damage(directory / "0" / "0")
    nodes: list[RunningNode] = []
    files = OsFiles()
    opened: list[StorageNode] = []
    try:
        for number in range(len(lengths)):
            connected = await server.connect()
            config = make_config(directory / str(number))
            node_started = await StorageNode.start(config, files=files, zookeeper=connected, metrics=Registry())
            await connected.close()
            opened.append(node_started)
            nodes.append(RunningNode(node_started, None, Registry(), config))  # type: ignore[arg-type]  # not observed
        made = Cluster(nodes, server)
        await made.describe(members=(0, 1, 2))
        yield made
    finally:
        for each in nodes:
            await each.close_clients()
        for each_node in opened:
            await each_node.close()
        files.close()


def _flip(name: str, offset: int) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        content = bytearray((directory / name).read_bytes())
        content[offset] ^= 1
        (directory / name).write_bytes(content)

    return damage


def _flip_all(*names: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for name in names:
            _flip(name, 128 + 50)(directory)

    return damage


def _in_doubt(directory: Path) -> None:
    """The last record has a flipped bit, and neither the index nor an orderly stop knows that there was one."""
    _flip(f"{35:019d}.seg", -1)(directory)
    index = directory / f"{35:019d}.idx"
    index.write_bytes(index.read_bytes()[:128])
    (directory.parent / "waltz-storage.clean").unlink()


def _remove(*names: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for name in names:
            (directory / name).unlink()

    return damage


@pytest.mark.parametrize(
    ("damage", "restored"),
    [
        (_flip(f"{7:019d}.seg", 128 + 50), 1),
        (_flip(f"{35:019d}.seg", -1), 1),
        (_in_doubt, 1),
        (_remove(f"{7:019d}.seg"), 7),
        (_flip(f"{7:019d}.seg", 13), 0),
        (_flip(f"{7:019d}.seg", 1), 0),
        (_flip(f"{7:019d}.idx", 30), 0),
    ],
)
async def test_a_node_is_repaired_from_the_others(
    tmp_path: Path, damage: Callable[[Path], None], restored: int
) -> None:
    async with cluster(tmp_path, damage) as made:
        node = made.nodes[0].node
        if 0 in node.manager.partitions:
            await node.manager.scrubber.scan(node.manager.partitions[0])
        assert not node.health()[0]
        done = await made.repair(39)
        assert done.restored == restored
        assert node.health()[0], node.health()
        assert await (await made.nodes[0].admin()).records(0, 0, 100) == LOG
        client = await made.nodes[0].client()
        await client.append(1, 0, records(40, 3), timeout_s=TIMEOUT_S)
        assert (await made.repair(39)).missing == ()
        kept = list((tmp_path / "0" / "0").glob("*.quarantined-1"))
        assert len(kept) == 1


def _keep_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = OsFiles.remove

    def remove_others(files: OsFiles, path: str) -> None:
        if path.endswith(STAGED_NAME):
            raise OSError(errno.EIO, "planted")
        remove(files, path)

    monkeypatch.setattr(OsFiles, "remove", remove_others)


async def test_what_was_staged_and_cannot_be_removed_keeps_no_partition_out_of_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, _flip(f"{7:019d}.seg", 128 + 50)) as made:
        await made.nodes[0].node.manager.scrubber.scan(made.nodes[0].node.manager.partitions[0])
        with monkeypatch.context() as failing:
            _keep_staged(failing)
            assert (await made.repair(39)).restored == 1
        assert "records that were staged for a repair could not be removed" in caplog.text
        assert made.nodes[0].node.health()[0]
        assert await (await made.nodes[0].admin()).records(0, 0, 100) == LOG
        assert (await made.repair(39)).missing == ()


async def test_what_was_staged_and_cannot_be_removed_keeps_no_node_from_closing_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path, assign=[0]) as running:
        await running.node.manager.stage(0, records(0, 1))
        _keep_staged(monkeypatch)
        await running.node.close()
        assert (tmp_path / "waltz-storage.clean").exists()


async def test_only_members_of_the_current_session_give_records(tmp_path: Path) -> None:
    async with cluster(tmp_path, _flip(f"{7:019d}.seg", 128 + 50), lengths=(40, 5, 40)) as made:
        await made.nodes[0].node.manager.scrubber.scan(made.nodes[0].node.manager.partitions[0])
        await made.describe(members=(1,))
        with pytest.raises(WaltzError, match="no replica in the current store session gives transaction 8"):
            await made.repair(39)
        assert not made.nodes[0].node.health()[0]
        await made.describe(members=(0, 1, 2))
        assert (await made.repair(39)).restored == 1
        assert any("does not give transaction 8: it does not hold transaction 8" in line for line in made.lines)
        assert await (await made.nodes[0].admin()).records(0, 0, 100) == LOG


async def test_without_a_server_the_marks_of_the_session_bound_the_repair(tmp_path: Path) -> None:
    async with cluster(tmp_path, _flip(f"{7:019d}.seg", 128 + 50)) as made:
        await made.nodes[0].node.manager.scrubber.scan(made.nodes[0].node.manager.partitions[0])
        assert (await made.repair(None)).restored == 1
        assert made.nodes[0].node.health()[0]


async def test_who_gives_records_is_judged_after_the_marks_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule S6, without a server: a session that has begun since may have told the mark, and left a replica behind."""
    async with cluster(tmp_path, _flip(f"{7:019d}.seg", 128 + 50)) as made:
        _, member = sorted((1, 2), key=lambda number: storage_name(made.nodes[number]))  # as sources are tried
        await made.nodes[0].node.manager.scrubber.scan(made.nodes[0].node.manager.partitions[0])
        ask = Repair._mark_of_session

        async def leave_one_behind(repair: Repair, roles: Roles) -> int:
            mark = await ask(repair, roles)
            await made.describe(members=(0, member))
            return mark

        monkeypatch.setattr(Repair, "_mark_of_session", leave_one_behind)
        assert (await made.repair(None)).restored == 1
        assert made.lines == [f"transactions 8 to 8 come from {storage_name(made.nodes[member])}"]


async def test_what_is_not_known_to_be_committed_stays_as_it_is_while_the_node_takes_part(tmp_path: Path) -> None:
    async with cluster(tmp_path, _flip(f"{28:019d}.seg", 128 + 50)) as made:
        await made.nodes[0].node.manager.scrubber.scan(made.nodes[0].node.manager.partitions[0])
        with pytest.raises(WaltzError, match="transactions 29 to 29 are damaged and not known to be committed"):
            await made.repair(None)
        assert made.nodes[0].node.manager.partitions[0].max_transaction_id == 39
        await made.describe(members=(1, 2))
        done = await made.repair(25)
        assert done.uncommitted == ((29, 29),)
        assert made.nodes[0].node.health()[0]
        assert await (await made.nodes[0].admin()).records(0, 0, 100) == LOG[:29]


async def test_a_log_that_was_lost_in_part_is_whole_only_with_all_that_is_committed(tmp_path: Path) -> None:
    """Nobody knows where the log ended: without its last ten records it looks like a log without damage."""

    def lose(directory: Path) -> None:
        mark_lost(OsFiles(), str(directory), "a group of the journal is damaged")

    async with cluster(tmp_path, lose, lengths=(30, 40, 40)) as made:
        assert "a group of the journal is damaged" in made.nodes[0].node.manager.out_of_service()[0]
        # The node may have acknowledged more than is known to be committed, and has a vote in the next recovery.
        with pytest.raises(WaltzError, match="transactions 40 and later are damaged and not known to be committed"):
            await made.repair(39)
        await made.describe(members=(1, 2))
        assert await made.repair(39) == Repaired(((30, UNKNOWN_END),), 10, ())
        assert made.nodes[0].node.health()[0]
        assert await (await made.nodes[0].admin()).records(0, 0, 100) == LOG


async def test_a_last_record_in_doubt_is_cut_where_it_was_never_committed(tmp_path: Path) -> None:
    async with cluster(tmp_path, _in_doubt) as made:
        assert "transaction 39" in made.nodes[0].node.manager.out_of_service()[0]
        with pytest.raises(WaltzError, match="transactions 39 to 39 are damaged and not known to be committed"):
            await made.repair(38)
        await made.describe(members=(1, 2))
        assert (await made.repair(38)).uncommitted == ((39, 39),)
        assert made.nodes[0].node.health()[0]
        assert await (await made.nodes[0].admin()).records(0, 0, 100) == LOG[:39]


async def test_a_repair_fails_if_the_partition_cannot_be_opened_after_it(tmp_path: Path) -> None:
    def damage(directory: Path) -> None:
        fence = directory.parent / "waltz-storage.fence"
        content = fence.read_bytes()
        fence.write_bytes(content[:128] + bytes(32) + content[160:])

    async with cluster(tmp_path, damage) as made:
        with pytest.raises(WaltzError, match="it cannot be opened: .*the session fence is damaged"):
            await made.repair(39)
        assert 0 in made.nodes[0].node.manager.out_of_service()


async def test_what_was_acknowledged_while_it_was_repaired_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition acknowledges on while its records are fetched, and the last of the new ones is damaged as well."""
    async with cluster(tmp_path, _flip(f"{7:019d}.seg", 128 + 50)) as made:
        manager = made.nodes[0].node.manager
        await manager.scrubber.scan(manager.partitions[0])
        restore = Repair._restore

        async def restored_late(self: Repair, *arguments: Any) -> int:
            for node in made.nodes:
                client = await node.client()
                await client.append(1, 0, records(40, 12), timeout_s=TIMEOUT_S)
            last = max((tmp_path / "0" / "0").glob("*.seg"))
            content = last.read_bytes()
            _flip(last.name, len(content) - 1)(last.parent)
            return await restore(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Repair, "_restore", restored_late)
            with pytest.raises(WaltzError, match="transaction 51 is damaged now.* repeat the repair"):
                await made.repair(39)
        assert "transaction 51" in manager.out_of_service()[0]
        assert await made.repair(51) == Repaired(((8, 8), (51, 51)), 2, ())
        assert await (await made.nodes[0].admin()).records(0, 0, 100) == [*LOG, *records(40, 12)]


async def test_what_a_survey_did_not_report_is_not_cut(tmp_path: Path) -> None:
    async with cluster(tmp_path, _flip(f"{28:019d}.seg", 128 + 50)) as made:
        admin, manager = await made.nodes[0].admin(), made.nodes[0].node.manager
        await manager.scrubber.scan(manager.partitions[0])
        with pytest.raises(WaltzError, match="transaction 29 is damaged now.* repeat the repair"):
            await admin.repair_commit(0, 25)
        assert (await admin.repair_survey(0))[:2] == (((29, 29),), 39)
        with pytest.raises(WaltzError, match="transaction 29 is missing"):
            await admin.repair_commit(0, 29)
        assert manager.partitions[0].max_transaction_id == 39


async def test_a_node_that_was_let_in_meanwhile_is_judged_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(tmp_path, _flip_all(f"{7:019d}.seg", f"{28:019d}.seg")) as made:
        manager = made.nodes[0].node.manager
        await manager.scrubber.scan(manager.partitions[0])
        await made.describe(members=(1, 2))
        restore = Repair._restore

        async def restored(self: Repair, *arguments: Any) -> int:
            await made.describe(members=(0, 1, 2))
            return await restore(self, *arguments)

        monkeypatch.setattr(Repair, "_restore", restored)
        with pytest.raises(WaltzError, match="transactions 29 to 29 are damaged and not known to be committed"):
            await made.repair(25)
        assert manager.partitions[0].max_transaction_id == 39


async def test_a_partition_that_is_not_there_is_not_repaired(tmp_path: Path) -> None:
    async with cluster(tmp_path, lambda _directory: None) as made:
        with pytest.raises(WaltzError, match="has no replica whose admin port is"):
            zookeeper = await made.server.connect()
            await Repair(ClusterHandle(zookeeper, ROOT, None), Endpoint("127.0.0.1", 1), 0, made.lines.append).run(3)
        admin = await made.nodes[0].admin()
        for call in (admin.repair_survey(1), admin.repair_records(1, []), admin.repair_commit(1, 5)):
            with pytest.raises(WaltzError, match="Partition:1 is not assigned"):
                await call


async def test_an_unfinished_repair_leaves_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, _flip(f"{7:019d}.seg", 128 + 50)) as made:
        admin = await made.nodes[0].admin()
        await made.nodes[0].node.manager.scrubber.scan(made.nodes[0].node.manager.partitions[0])
        await admin.repair_records(0, [LOG[30]])
        assert (tmp_path / "0" / "0" / "repair.staged").exists()
        with pytest.raises(WaltzError, match="transaction 8 is missing"):
            await admin.repair_commit(0, 39)
        assert not (tmp_path / "0" / "0" / "repair.staged").exists()
        assert (await admin.repair_survey(0))[0] in ((), ((8, 8),))
        await admin.repair_records(0, [LOG[8]])
    assert not (tmp_path / "0" / "0" / "repair.staged").exists()


@asynccontextmanager
async def repair_over_lines(
    directory: Path, monkeypatch: pytest.MonkeyPatch, lose: Callable[[int, Proxy, list[Proxy]], None]
) -> AsyncIterator[Cluster]:
    """A node that misses seven records, which come one by one.

    ``lose`` is told of each fetch its number, beginning with 1, the line to its source, and the lines to all nodes.
    """
    monkeypatch.setattr(operations, "TIMEOUT_S", 2.0)
    monkeypatch.setattr(repair, "FETCH_RECORDS", 1)
    fetch, fetches = Repair._fetch, 0
    async with cluster(directory, _remove(f"{7:019d}.seg")) as made, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(relay(port)) for port in made.admin_ports]
        made.admin_ports = [line.port for line in lines]
        await made.describe(members=(0, 1, 2))

        async def fetch_over_line(self: Repair, source: StorageAdminClient, first: int, count: int) -> list[Record]:
            nonlocal fetches
            fetches += 1
            lose(fetches, lines[made.admin_ports.index(source.endpoint.port)], lines)
            return await fetch(self, source, first, count)

        monkeypatch.setattr(Repair, "_fetch", fetch_over_line)
        yield made


async def test_a_source_whose_line_goes_dead_is_left_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(number: int, source: Proxy, lines: list[Proxy]) -> None:
        if number == 3:
            source.cut()

    async with repair_over_lines(tmp_path, monkeypatch, lose) as made:
        assert (await made.repair(39)).restored == 7
        (left,) = (line for line in made.lines if "does not give transaction" in line)
        assert "transaction 9: storage admin" in left
        assert left.endswith("did not answer RecordListRequest within 2 s")
        assert await (await made.nodes[0].admin()).records(0, 0, 100) == LOG


async def test_a_repair_ends_when_the_line_to_the_node_goes_dead_and_no_source_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(number: int, source: Proxy, lines: list[Proxy]) -> None:
        if number == 3:
            lines[0].cut()

    async with repair_over_lines(tmp_path, monkeypatch, lose) as made:
        text = f"storage admin 127.0.0.1:{made.admin_ports[0]} did not answer RepairRecordsRequest within 2 s"
        with pytest.raises(DeadlineExceededError, match=text):
            await made.repair(39)
        assert made.lines == []


async def test_a_node_of_the_original_says_that_it_cannot_be_repaired() -> None:
    original = FakeStorage({0: []}, STORAGE_ADMIN._replace(versions=(0,)))
    await original.start()
    try:
        endpoint = Endpoint("127.0.0.1", original.admin_port)
        client = await StorageAdminClient.connect(
            endpoint, cluster_key=fakes.KEY, partition_count=1, tls=None, timeout_s=TIMEOUT_S
        )
        with pytest.raises(WaltzError, match="is a node of the original, which cannot be repaired over the network"):
            await client.repair_survey(0)
        await client.close()
    finally:
        await original.stop()


async def test_the_times_of_restored_records_are_copied(tmp_path: Path) -> None:
    """A segment was lost together with its times; the last restored record is as late as it may have been."""
    async with cluster(tmp_path, _remove(f"{7:019d}.seg")) as made:
        for number in (1, 2):
            times = [(4, 400), (11, 1100), (25, 2500), (39, 3900)]
            made.nodes[number].node.manager.partitions[0].log.times.enter(times)
        assert (await made.repair(39)).restored == 7
        found = made.nodes[0].node.manager.partitions[0].log.times.entries(0, 100)
        assert [tuple(entry) for entry in found] == [(11, 1100), (13, 2500)]


async def test_a_repair_succeeds_although_times_cannot_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def enter_times(*_: object, **__: object) -> None:
        raise RemoteStorageError("busy")

    monkeypatch.setattr(StorageClient, "enter_times", enter_times)
    async with cluster(tmp_path, _remove(f"{7:019d}.seg")) as made:
        for number in (1, 2):
            made.nodes[number].node.manager.partitions[0].log.times.enter([(11, 1100)])
        assert (await made.repair(39)).restored == 7
        assert "the times of its transactions were not copied: " in made.lines[-1]
