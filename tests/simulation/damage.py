"""Media that decay, and the operator who repairs what a storage reports as damaged.

What is damaged is durable and was acknowledged. The storage has to refuse it, or to find it and go on without it; never
may it pass it on, cut it off, or vote as if it had never had it.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable

from tests.simulation.cluster import ADMIN_PORT, DIRECTORY, ROOT, StorageHost
from tests.simulation.faults import operate
from tests.simulation.loop import Process
from tests.simulation.target import Fault, Target
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import read_committed_marks
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.operations.repair import Repair, Roles
from waltz.storage.disk.files.slot_file import HEADER_SIZE_BYTES
from waltz.storage.disk.segment.segment_format import encode_record
from waltz.storage.remote.admin_client import StorageAdminClient

BEGIN_ANEW_AFTER = 5
"""Number of failed repairs after which an operator has the partition begin anew on the node."""

REPAIR_PAUSE_S = 1.0
MARK_TIMEOUT_S = 3.0
SCAN_TIMEOUT_S = 20.0
SLOW_REPAIR_S = 0.5


async def bit_rot(target: Target, fault: Fault) -> None:
    """A sector of a segment or an index cannot be read, or a bit of a record that was acknowledged, of an index, of the
    control file or of the fence file is another one. Then perhaps a storage loses power. An operator repairs it."""
    async with target.world.disk_course:
        await finish_repairs(target)  # one that was cancelled
        draw = random.Random(fault.other)
        partition_id = fault.victim % target.world.options.partitions
        replicas = target.cluster.replicas[partition_id]
        storage = draw.choice(replicas)
        where = damage_file(target, draw, storage, partition_id, draw.choice(_KINDS))
        if where is None:
            return
        target.say(fault, storage.name, f"has a damaged {where}")
        victim = draw.choice([storage, storage, draw.choice(replicas), None])
        if "file" in where:
            victim = storage  # it reads them when it starts, and never again
        if victim is not None:
            await asyncio.sleep(draw.choice((0.0, 0.1, 1.0)))
            victim.crash(power_loss=True)
            victim.start_in(0.5 * draw.random())
        await asyncio.sleep(min(fault.duration_s, 4.0))
        await finish_repairs(target)


async def rot_during_repair(target: Target, fault: Fault) -> None:
    """A record decays, and while it is repaired another one, which was acknowledged meanwhile."""
    async with target.world.disk_course:
        await finish_repairs(target)
        draw = random.Random(fault.other)
        partition_id = fault.victim % target.world.options.partitions
        storage = draw.choice(target.cluster.replicas[partition_id])
        if damage_file(target, draw, storage, partition_id, "record", newest=40) is None:
            return
        target.say(fault, storage.name, "has a damaged record, and will have another one when that is repaired")

        def decay() -> None:
            where = damage_file(target, draw, storage, partition_id, "record", newest=4)
            target.world.trace.line("FAULT", f"{storage.name} decays further: {where}")

        if await scan(storage, partition_id):
            await _repair(target, storage, partition_id, decay)
        await finish_repairs(target)


_KINDS = ("record", "record", "record", "index", "sector", "control file", "fence file")


def damage_file(
    target: Target, draw: random.Random, storage: StorageHost, partition_id: int, kind: str, newest: int = 40
) -> str | None:
    """What was damaged, a record among the newest; None if there was nothing to be damaged."""
    disk, checks = storage.disk, target.world.storage_checks
    directory = f"{DIRECTORY}/{partition_id}"
    if kind == "record":
        known = checks.acknowledged_by(storage.name, partition_id)
        if len(known) < 2:
            return None
        # The last one cannot be told from a write that was interrupted before it was acknowledged.
        transaction_id = draw.choice(sorted(known)[-newest:-1])
        encoded = encode_record(known[transaction_id])
        found = disk.flip_bit(
            lambda path: path.startswith(f"{directory}/") and path.endswith(".seg"), within=encoded, draw=draw
        )
    elif kind == "index":
        found = disk.flip_bit(
            lambda path: path.startswith(f"{directory}/") and path.endswith(".idx"), after=HEADER_SIZE_BYTES, draw=draw
        )
    elif kind == "sector":
        found = disk.lose_sector(lambda path: path.startswith(f"{directory}/") and path.endswith((".seg", ".idx")))
    else:
        suffix = ".ctl" if kind == "control file" else ".fence"
        found = disk.flip_bit(lambda path: path.endswith(suffix), after=HEADER_SIZE_BYTES, draw=draw)
    if found is None:
        return None
    shared = kind in ("control file", "fence file")
    if shared:
        checks.notes_decayed(storage.name)
    for each in range(target.world.options.partitions):
        if each == partition_id or shared:
            checks.damaged(storage.name, each)
    return f"{kind}: {found}"


async def finish_repairs(target: Target) -> None:
    """Repair all that is damaged, however long it takes."""
    checks, failed = target.world.storage_checks, 0
    while checks.to_be_repaired:
        name, partition_id = min(checks.to_be_repaired)
        storage = next(each for each in target.cluster.storages if each.name == name)
        served = _is_served(storage, partition_id)
        if storage not in target.cluster.replicas[partition_id]:
            checks.forget(name, partition_id)
        elif await scan(storage, partition_id) and await _repair(target, storage, partition_id):
            failed = 0
            if served:  # of a log that cannot be opened only the damage that prevents that is found
                checks.repaired(name, partition_id)
        else:
            failed += 1
            await asyncio.sleep(REPAIR_PAUSE_S)
        if failed > BEGIN_ANEW_AFTER and not _is_served(storage, partition_id):
            await _begin_anew(target, storage, partition_id)


async def scan(storage: StorageHost, partition_id: int) -> bool:
    """What a node does once a week: look at every record; whether it came to its end."""
    process, node = storage.process, storage.node
    if process is None or not storage.running or storage.paused or node is None:
        return False
    partition = node.manager.partitions.get(partition_id)
    if partition is None:
        return partition_id in node.manager.out_of_service()
    task = process.run(node.manager.scrubber.scan(partition))
    done, _ = await asyncio.wait([task], timeout=SCAN_TIMEOUT_S)
    return bool(done)


class _SlowRepair(Repair):
    """A repair that is slow with the records that it has read, so that another fault meets it."""

    meanwhile: Callable[[], None] | None = None

    async def _restore(self, client: StorageAdminClient, roles: Roles, first: int, last: int) -> int:
        restored = await super()._restore(client, roles, first, last)
        if self.meanwhile is not None:
            await asyncio.sleep(SLOW_REPAIR_S)
            self.meanwhile()
        return restored


async def _repair(
    target: Target, storage: StorageHost, partition_id: int, meanwhile: Callable[[], None] | None = None
) -> bool:
    """``waltz storage repair``; whether it ended without an error."""
    world = target.world

    async def work(process: Process) -> None:
        zookeeper = await world.ensemble.connect(process, 30.0)
        try:
            cluster = ClusterHandle(zookeeper, ROOT, None)
            deadline_s = world.loop.now_s + MARK_TIMEOUT_S
            try:
                marks = await read_committed_marks(cluster, [partition_id], deadline_s=deadline_s)
            except WaltzError:
                marks = {}
            node = Endpoint(storage.name, ADMIN_PORT)
            repair = _SlowRepair(cluster, node, partition_id, lambda line: world.trace.line("operator", line))
            repair.meanwhile = meanwhile
            done = await repair.run(marks.get(partition_id))
            world.trace.line("operator", f"has repaired partition {partition_id} of {storage.name}: {done}")
        finally:
            await zookeeper.close()

    return await operate(target, work)


def _is_served(storage: StorageHost, partition_id: int) -> bool:
    return storage.running and storage.node is not None and partition_id in storage.node.manager.partitions


async def _begin_anew(target: Target, storage: StorageHost, partition_id: int) -> None:
    """The documented steps for a partition that cannot be repaired."""
    target.world.trace.line("operator", f"has partition {partition_id} of {storage.name} begin anew")

    async def work(process: Process) -> None:
        async with target.cluster.admin(storage) as admin:
            with contextlib.suppress(WaltzError):  # it may be as far as that already
                await admin.set_assigned([partition_id], False, delete_files=True)
            await admin.set_assigned([partition_id], True)
            await admin.set_available([partition_id], True)

    await operate(target, work)
