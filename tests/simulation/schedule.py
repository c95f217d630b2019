"""The schedule of faults, drawn from the seed beforehand, and their end."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tests.simulation import (
    consumers,
    coordinators,
    courses,
    damage,
    disk_courses,
    disk_faults,
    faults,
    isolated_side,
    isolation,
    line_faults,
    moving_course,
    progress_courses,
    recovery_course,
    repair_course,
    replacement_course,
)
from tests.simulation.target import Fault, Target


async def storm(target: Target, fault: Fault) -> None:
    """Many short faults in a short time."""
    draw = random.Random(fault.other)
    target.say(fault, "a storm", "begins")
    async with asyncio.TaskGroup() as group:
        for _ in range(draw.randint(6, 20)):
            kind = draw.choice(_STORM)
            duration_s = draw.choice((0.02, 0.1, 0.5, 2.0)) * draw.random()
            short = Fault(target.world.loop.now_s, kind, draw.randrange(1 << 16), draw.randrange(1 << 16), duration_s)
            group.create_task(FAULTS[kind][1](target, short))
            await asyncio.sleep(draw.choice((0.0, 0.01, 0.1, 0.7)) * draw.random())


_STORM = (
    "kill-storage",
    "kill-server",
    "power-off-storage",
    "crash-while-writing",
    "pause-server",
    "cut",
    "cut-one-way",
    "break-connections",
    "expire-session",
    "lose-answer",
    "prefer-partitions",
    "depose",
    "strand-minority",
    "flap",
)


FAULTS: dict[str, tuple[int, Callable[[Target, Fault], Coroutine[Any, Any, None]]]] = {
    "kill-storage": (3, faults.kill_storage),
    "kill-server": (4, faults.kill_server),
    "kill-client": (2, faults.kill_client),
    "power-off-storage": (3, faults.power_off_storage),
    "power-off-server": (2, faults.power_off_server),
    "power-off-all-storages": (1, faults.power_off_all_storages),
    "crash-while-writing": (3, disk_faults.crash_while_writing),
    "pause": (4, faults.pause),
    "pause-server": (3, faults.pause_server),
    "stop-in-order": (2, faults.stop_in_order),
    "cut": (4, faults.cut),
    "cut-one-way": (3, faults.cut_one_way),
    "isolate": (3, faults.isolate),
    "slow-link": (3, faults.slow_link),
    "break-connections": (4, faults.break_connections),
    "slow-disk": (2, disk_faults.slow_disk),
    "full-disk": (1, disk_faults.full_disk),
    "failing-write": (1, disk_faults.failing_write),
    "failing-sync": (1, disk_faults.failing_sync),
    "failing-call": (2, disk_faults.failing_call),
    "hung-disk": (2, disk_faults.hung_disk),
    "expire-session": (3, faults.expire_session),
    "disconnect-zookeeper": (3, faults.disconnect_zookeeper),
    "slow-zookeeper": (1, faults.slow_zookeeper),
    "slow-watches": (2, faults.slow_watches),
    "lose-answer": (2, faults.lose_answer),
    "prefer-partitions": (2, faults.prefer_partitions),
    "depose": (5, courses.depose),
    "flap": (6, courses.flap),
    "strand-minority": (5, courses.strand_minority),
    "rotate-minority": (3, courses.rotate_minority),
    "storm": (2, storm),
    "move-replica": (3, faults.move_replica),
    "blackhole": (3, line_faults.blackhole),
    "stall": (2, line_faults.stall),
    "lag-follower": (2, line_faults.lag_follower),
    "land-late": (2, line_faults.land_late),
}
"""The kinds of faults that seeds draw from, with their weights."""

TARGETED_FAULTS: dict[str, tuple[int, Callable[[Target, Fault], Coroutine[Any, Any, None]]]] = {
    "re-add-stranded": (1, courses.re_add_stranded),
    "boomerang": (1, courses.boomerang),
    "recover-twice": (1, courses.recover_twice),
    "crash-at-opening": (1, courses.crash_at_opening),
    "begin-in-the-dark": (1, courses.begin_in_the_dark),
    "stale-reader": (1, courses.stale_reader),
    "jump-clock": (3, faults.jump_clock),
    "move-to-idle-connections": (1, faults.move_to_idle_connections),
    "lag-without-source": (1, progress_courses.lag_without_source),
    "silent-quorum": (1, progress_courses.silent_quorum),
    "barred-beside-a-copy": (1, progress_courses.barred_beside_a_copy),
    "dead-partition": (1, isolation.dead_partition),
    "isolate-side": (1, isolated_side.isolate_side),
    "kill-consumer": (2, consumers.kill_consumer),
    "two-coordinators": (1, coordinators.two_coordinators),
    "bit-rot": (1, damage.bit_rot),
    "rot-during-repair": (1, damage.rot_during_repair),
    "crash-between-calls": (1, disk_faults.crash_between_calls),
    "roll-back-disk": (1, disk_courses.roll_back_disk),
    "roll-back-disk-within-session": (1, disk_courses.roll_back_disk_within_session),
    "restore-backup": (1, disk_courses.restore_backup),
    "exchange-disks": (1, disk_courses.exchange_disks),
    "recover-partition": (1, recovery_course.recover_partition),
    "move-by-tool": (1, moving_course.move_by_tool),
    "exchange-without-majority": (1, moving_course.exchange_without_majority),
    "take-back-at-once": (1, moving_course.take_back_at_once),
    "repair-by-tool": (1, repair_course.repair_by_tool),
    "replace-dead": (1, replacement_course.replace_dead),
}
"""Kinds that happen only where they are asked for: whole courses of events for one rule."""

ALL_FAULTS = FAULTS | TARGETED_FAULTS
"""Every kind of fault."""


def draw_faults(seed: int, count: int, duration_s: float, only: Sequence[str] = ()) -> list[Fault]:
    """The schedule of a seed, in order of time: single faults and bursts.

    Every seed has a selection of kinds of its own (``only`` replaces it): what comes often comes together.
    """
    draw = random.Random(f"{seed}/faults")
    kinds = list(only) or draw.sample(list(FAULTS), draw.choice((2, 4, 6, 10, len(FAULTS))))
    weights = [ALL_FAULTS[kind][0] for kind in kinds]
    drawn: list[Fault] = []
    while len(drawn) < count:
        at_s = draw.uniform(3.0, duration_s - 4.0)
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            kind = draw.choices(kinds, weights)[0]
            longest_s = duration_s - at_s
            fault_s = min(draw.choice((0.3, 1.0, 3.0, 8.0, 20.0)) * (0.5 + draw.random()), longest_s)
            drawn.append(Fault(at_s, kind, draw.randrange(1 << 16), draw.randrange(1 << 16), fault_s))
            at_s = min(at_s + draw.choice((0.0, 0.001, 0.01, 0.1, 1.0)) * draw.random(), duration_s - 2.0)
    return sorted(drawn)


def heal(target: Target) -> None:
    """End of all faults: everything runs, everything is connected, no disk fails."""
    world = target.world
    world.trace.line("FAULT", "everything heals")
    names = [host.name for host in target.hosts]
    for one in names:
        for other in names:
            condition = world.network.condition(one, other)
            condition.extra_delay_s, condition.bytes_per_s = 0.0, None
            if condition.cut:
                world.network.set_cut(one, other, False)
    world.ensemble.deafness_s.clear()
    world.ensemble.lags_s.clear()
    world.ensemble.slowness_s = world.ensemble.watch_delay_s = 0.0
    for storage in target.cluster.storages:
        storage.disk.heal()
        if storage.running and storage.needs_operator:
            storage.crash(power_loss=False)
    for host in target.hosts:
        host.kept_away = False
        if host.process is not None and host.paused:
            host.process.resume()
        if host.running and not host.wanted:
            host.crash(power_loss=False)  # asked to end, by a fault that does not wait for that any more
        if not host.running:
            host.start()
        elif host.zookeeper is not None:
            host.zookeeper.reconnect()
