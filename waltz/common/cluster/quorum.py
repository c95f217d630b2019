"""The arithmetic of majorities: the commit of a batch, and the decision of a recovery. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


def quorum_of(replica_count: int) -> int:
    """The smallest majority of ``replica_count`` replicas."""
    return replica_count // 2 + 1


def committed_mark(positions: Iterable[int], quorum: int) -> int:
    """The highest id that ``quorum`` replicas have made durable, from the highest durable id of each replica.

    ``positions`` must have an entry for every *assigned* replica, not only for connected replicas. The entry of a
    replica without acknowledgements is low.
    """
    ranked = sorted(positions, reverse=True)
    if quorum < 1 or quorum > len(ranked):
        raise ValueError(f"a quorum of {quorum} among {len(ranked)} replicas")
    return ranked[quorum - 1]


def can_reach(transaction_id: int, positions: Sequence[int], live: Sequence[bool], quorum: int) -> bool:
    """Whether ``transaction_id`` can still be committed: a quorum has made it durable, or may still acknowledge it.

    A replica that left keeps its vote; a live replica may vote later.
    """
    votes = sum(1 for position, is_live in zip(positions, live, strict=True) if is_live or position >= transaction_id)
    return votes >= quorum


class Evidence(NamedTuple):
    """The evidence of one replica of the previous session for a recovery.

    ``mark`` is the highest trusted id of the replica. ``votes``: the replica took part in the previous session to the
    end. ``intact`` is false for a storage with an older state than in the metadata: it has forgotten acknowledged
    records. So it proves nothing about possible commits, although its copy counts as a copy.
    """

    mark: int
    votes: bool
    intact: bool


def decide_high_water_mark(evidence: Sequence[Evidence], previous_replica_count: int) -> int | None:
    """The high-water mark to which all replicas are brought; ``None`` while absent replicas could change the decision.

    ``evidence`` is that of the reachable replicas in the metadata, ``previous_replica_count`` the number of all
    replicas there. The rule: the highest mark that a majority of the previous replicas holds, unless a higher mark
    could have been committed with the votes of unknown replicas; and never below the lowest mark of a voter, which is
    at least the low-water mark of the previous session.
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
