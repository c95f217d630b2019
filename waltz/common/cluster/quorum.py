"""The arithmetic of majorities: when a batch is committed, and what a recovery may decide. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


def quorum_of(replica_count: int) -> int:
    """The smallest majority of ``replica_count`` replicas."""
    return replica_count // 2 + 1


def committed_mark(positions: Iterable[int], quorum: int) -> int:
    """The highest id that ``quorum`` replicas have made durable, from the highest durable id of each replica.

    ``positions`` must hold one entry for every *assigned* replica (those that never acknowledged anything count with
    a low one), never for the connected ones alone.
    """
    ranked = sorted(positions, reverse=True)
    if quorum < 1 or quorum > len(ranked):
        raise ValueError(f"a quorum of {quorum} among {len(ranked)} replicas")
    return ranked[quorum - 1]


def can_reach(transaction_id: int, positions: Sequence[int], live: Sequence[bool], quorum: int) -> bool:
    """Whether ``transaction_id`` can still be committed: it is durable at, or may be acknowledged by, a quorum.

    A replica that left keeps the vote that it gave; one that is still live may give its vote later.
    """
    votes = sum(1 for position, is_live in zip(positions, live, strict=True) if is_live or position >= transaction_id)
    return votes >= quorum


class Evidence(NamedTuple):
    """What one replica of the previous session tells a recovery.

    ``mark`` is the highest id that the replica holds, as far as it is trusted. ``votes``: it took part in the previous
    session to the end. ``intact`` is false for a storage that is older than the metadata says: it has forgotten what it
    acknowledged, so it proves nothing about what could have been committed, although the copy it has got counts as a
    copy.
    """

    mark: int
    votes: bool
    intact: bool


def decide_high_water_mark(evidence: Sequence[Evidence], previous_replica_count: int) -> int | None:
    """The high-water mark to which all replicas are brought, or ``None`` while absent replicas could matter.

    ``evidence`` comes from the reachable replicas that are listed in the metadata, ``previous_replica_count`` is the
    number of all that are listed there. The rule: the highest mark that a majority of the previous replicas holds,
    unless a higher one could have been committed with the help of replicas that are unknown, and never below the lowest
    mark of a voter, which is at least the previous session's own low-water mark.
    """
    voters = [item.mark for item in evidence if item.votes]
    if not voters:
        return None
    quorum = quorum_of(previous_replica_count)
    unknown = previous_replica_count - sum(1 for item in evidence if item.intact)
    if unknown >= quorum:
        return None
    lowest = min(voters)
    for mark in sorted({item.mark for item in evidence if item.mark >= lowest}, reverse=True):
        support = sum(1 for item in evidence if item.mark >= mark)
        if support >= quorum:
            return mark
        possible = sum(1 for item in evidence if item.intact and item.mark >= mark) + unknown
        if possible >= quorum:
            return None
    return None
