"""The plan of moves that even out the free space of the disks of a node. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

THRESHOLD_BYTES = 1 << 30
"""Disks whose free space differs by less than this are even."""


class DiskUse(NamedTuple):
    """One disk."""

    directory: str
    free_bytes: int
    partitions: Mapping[int, int]
    """The size in bytes of each partition that may be moved."""


class PlannedMove(NamedTuple):
    """A move of a partition from one directory to another."""

    partition_id: int
    source: str
    to: str
    size_bytes: int


def plan_moves(disks: Sequence[DiskUse], threshold_bytes: int = THRESHOLD_BYTES) -> list[PlannedMove]:
    """The moves, in order. Each takes a partition from the fullest disk to the emptiest one.

    Only a partition of less than half the difference is moved, the largest of these: no move makes another disk the
    fullest one, and the plan ends.
    """
    free = {disk.directory: disk.free_bytes for disk in disks}
    held = {disk.directory: dict(disk.partitions) for disk in disks}
    moves: list[PlannedMove] = []
    while free:
        fullest, emptiest = min(free, key=free.__getitem__), max(free, key=free.__getitem__)
        difference = free[emptiest] - free[fullest]
        fitting = [(size, each) for each, size in held[fullest].items() if 0 < 2 * size < difference]
        if difference <= threshold_bytes or not fitting:
            break
        size_bytes, partition_id = max(fitting)
        moves.append(PlannedMove(partition_id, fullest, emptiest, size_bytes))
        del held[fullest][partition_id]  # and no partition moves twice
        free[fullest] += size_bytes
        free[emptiest] -= size_bytes
    return moves
