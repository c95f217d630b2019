"""Faults of disks: what each of them does to a storage, and how it ends."""

import asyncio
import contextlib
import errno
import random
from collections.abc import Iterator

from tests.simulation.cluster import StorageHost
from tests.simulation.disk import CALLS, SimulatedDisk, Trouble
from tests.simulation.faults import operate
from tests.simulation.loop import Process
from tests.simulation.target import Fault, Target


@contextlib.contextmanager
def in_trouble(disk: SimulatedDisk, trouble: Trouble) -> Iterator[None]:
    """Have calls fail for a while."""
    disk.troubles.append(trouble)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # everything may have healed meanwhile
            disk.troubles.remove(trouble)


def _restart(storage: StorageHost) -> None:
    """An operator ends the node, even if it is stopped or hangs, and starts it again."""
    if storage.running:
        storage.crash(power_loss=False)
        storage.start_in(0.2)


async def crash_while_writing(target: Target, fault: Fault) -> None:
    """A loss of power in the middle of one of the next writes, syncs and changes of directories."""
    storage = target.storage(fault)
    target.say(fault, storage.name, "will lose power while it writes")
    storage.disk.operations_until_crash = 1 + fault.other % 7
    await asyncio.sleep(fault.duration_s / 2)
    storage.disk.operations_until_crash = None
    if not storage.running:
        storage.start_in(fault.duration_s / 2)


async def crash_between_calls(target: Target, fault: Fault) -> None:
    """A loss of power between the next call of one kind, for one kind of file, and whatever call comes then."""
    storage = target.storage(fault)
    draw = random.Random(fault.other)
    kind, suffix = draw.choice(_CHANGING), draw.choice((".seg", ".idx", ".ctl", ".fence", ""))
    target.say(fault, storage.name, f"will lose power behind a call of kind {kind} for a file *{suffix}")
    storage.disk.crash_behind = lambda called, path: called == kind and _is_about(path, suffix)
    await asyncio.sleep(fault.duration_s)
    storage.disk.crash_behind = None
    if not storage.running:
        storage.start_in(0.3)


_CHANGING = ("write", "sync", "shrink", "create", "rename", "remove", "sync-directory")


async def slow_disk(target: Target, fault: Fault) -> None:
    """Every write and sync takes long."""
    storage = target.storage(fault)
    factor = (10.0, 100.0, 1000.0)[fault.other % 3]
    target.say(fault, storage.name, f"has a disk {factor:g} times slower")
    storage.disk.slowness = factor
    await asyncio.sleep(fault.duration_s)
    storage.disk.slowness = 1.0


async def full_disk(target: Target, fault: Fault) -> None:
    """No space is left for a while; then an operator restarts the node, or has what is out of service opened anew."""
    storage = target.storage(fault)
    target.say(fault, storage.name, "has no space left on its disk")
    with in_trouble(storage.disk, Trouble(_NEEDS_ROOM, errno.ENOSPC)):
        await asyncio.sleep(fault.duration_s)
    if fault.other % 2 or not await _open_anew(target, storage):
        _restart(storage)


_NEEDS_ROOM = frozenset(("write", "grow", "create", "make-directory"))


async def _open_anew(target: Target, storage: StorageHost) -> bool:
    """What an operator does who does not want to restart the node: assign again what is out of service."""
    if not storage.running or storage.paused or storage.node is None:
        return False
    partition_ids = list(storage.node.manager.out_of_service())

    async def work(process: Process) -> None:
        async with target.cluster.admin(storage) as admin:
            await admin.set_assigned(partition_ids, True)

    return await operate(target, work)


async def failing_write(target: Target, fault: Fault) -> None:
    """A write fails; an operator restarts the node."""
    await _failing(target, fault, "write", 1)


async def failing_sync(target: Target, fault: Fault) -> None:
    """A sync fails; an operator restarts the node."""
    await _failing(target, fault, "sync", 1)


async def failing_call(target: Target, fault: Fault) -> None:
    """Calls of one kind fail, perhaps just a few, perhaps just those for one kind of file; an operator restarts the
    node."""
    draw = random.Random(fault.other)
    suffix = draw.choice(("", "", ".ctl", ".fence", ".seg", ".idx"))
    await _failing(target, fault, draw.choice(CALLS), draw.choice((1, 2, 5, None)), suffix)


async def _failing(target: Target, fault: Fault, kind: str, times: int | None, suffix: str = "") -> None:
    storage = target.storage(fault)
    calls = "every call" if times is None else f"the next {times}"
    target.say(fault, storage.name, f"will fail {calls} of kind {kind} for files *{suffix}")
    trouble = Trouble(frozenset((kind,)), errno.EIO, lambda path: _is_about(path, suffix), times)
    with in_trouble(storage.disk, trouble):
        await asyncio.sleep(fault.duration_s)
    _restart(storage)


def _is_about(path: str, suffix: str) -> bool:
    """Whether a file, or the new one that is to replace it, has this suffix."""
    return path.removesuffix(".new").endswith(suffix)


async def hung_disk(target: Target, fault: Fault) -> None:
    """Syncs, or writes as well, do not return until an operator restarts the node, or cuts its power."""
    storage = target.storage(fault)
    kinds = ("sync", "sync-directory") if fault.other % 2 else ("sync", "sync-directory", "write", "create", "rename")
    target.say(fault, storage.name, f"has a disk that hangs: {', '.join(kinds)}")
    with in_trouble(storage.disk, Trouble(frozenset(kinds), None)):
        await asyncio.sleep(fault.duration_s)
    if fault.other % 3 == 0 and storage.running:
        storage.crash(power_loss=True)
        storage.start_in(0.5)
    else:
        _restart(storage)
