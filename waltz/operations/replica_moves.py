"""Plans the steps by which a replica moves from one storage node to another, and refuses unsafe steps. Pure.

No step needs more nodes than the step before it (rule L7). So an odd number of replicas stays the same: the new
replica, which holds all committed transactions, replaces the old replica in a single write. An even number has the same
majority with one more replica: there the new replica joins before the old replica leaves. The files of the old replica
are deleted when no session counts it any more and the new replica takes full part.

Servers of the original do not ask an unassigned replica for its log. So the remaining replicas have to be a majority of
the former replicas. A step that would leave fewer is refused.
"""

import enum
import json
from collections.abc import Mapping
from typing import NamedTuple, Self

from waltz.common.cluster.quorum import quorum_of
from waltz.common.errors import ProtocolError, WaltzError


class ReplicaMove(NamedTuple):
    """A move in progress. ZooKeeper has it from before the first step until after the last step."""

    source: str
    """The connect string of the storage node that gives up the replica."""
    destination: str

    def encode(self) -> bytes:
        """The move as JSON."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> Self:
        """Decode the JSON. Raises ``ProtocolError``."""
        try:
            document = json.loads(data or b"")
            source, destination = document["source"], document["destination"]
        except (ValueError, TypeError, KeyError, RecursionError):
            source = destination = None
        if not isinstance(source, str) or not isinstance(destination, str):
            raise ProtocolError(f"{path} does not say which replica is being moved: delete it if it is not needed")
        return cls(source, destination)

    def __str__(self) -> str:
        return f"from {self.source} to {self.destination}"


class PartitionView(NamedTuple):
    """The state of a partition according to ZooKeeper and the storages."""

    assigned: frozenset[str]
    """The storages of the partition in the assignment."""
    listed: frozenset[str]
    """The storages in the metadata. They decide the committed mark at the begin of the next store session."""
    current: frozenset[str]
    """The members of the present store session that answer and have the partition online."""
    holding: Mapping[str, bool | None]
    """Whether source and destination have the partition; None for a node without an answer."""
    groups: Mapping[str, int]
    move: ReplicaMove | None
    """The move that has begun, if any."""


class ReplicaStep(enum.Enum):
    """A step of a move. The values are sentences for operators."""

    EXCHANGE = "committed records are copied to {joining}, which is then assigned in place of {leaving}"
    FILL = "committed records are copied to {joining}, which is then assigned to the partition"
    JOIN = "{joining} becomes a member of the store session"
    UNASSIGN = "{leaving} is unassigned"
    LEAVE = "a store session begins without {leaving}"
    REVERT = "{joining} is assigned again in place of {leaving}"
    RETURN = "{joining} is assigned again"
    CLEAR = "the partition's files on {leaving} are deleted"


FILLING = (ReplicaStep.EXCHANGE, ReplicaStep.FILL)
"""The steps that begin with copying."""


class StepRefused(WaltzError):
    """The step must not be taken in the present state."""


class NotYetSettled(StepRefused):
    """The step is not possible yet, but may become possible without an operator."""


def next_step(view: PartitionView, move: ReplicaMove) -> ReplicaStep | None:
    """The next step; None at the end.

    Raises :class:`StepRefused` if the partition's state does not belong to this move.
    """
    _check_other(view, move)
    source, destination = move
    if source in view.assigned:
        if destination not in view.assigned:
            return _replacement(view, source)
        if view.move is None:
            raise StepRefused(f"both storages hold it, and nothing was being moved {move}")
        return ReplicaStep.UNASSIGN if destination in view.current else ReplicaStep.JOIN
    if destination not in view.assigned:
        raise StepRefused(f"it is assigned to neither {source} nor {destination}")
    step = _next_of_leaving(view, source)
    nothing_to_lose = not view.holding[source] and view.holding[destination] is None
    if step is ReplicaStep.CLEAR and destination not in view.current and not nothing_to_lose:
        return ReplicaStep.JOIN
    return step


def next_step_back(view: PartitionView, move: ReplicaMove) -> ReplicaStep | None:
    """The next step of a move that is taken back: the destination leaves."""
    _check_other(view, move)
    if view.move is None:
        return None
    source, destination = move
    if source in view.assigned:
        return ReplicaStep.UNASSIGN if destination in view.assigned else _next_of_leaving(view, destination)
    if source in view.listed:  # the log of the source still counts, and a majority may need it
        replaces = destination in view.assigned and destination not in view.listed
        return ReplicaStep.REVERT if replaces else ReplicaStep.RETURN
    if destination not in view.assigned:
        raise StepRefused(f"it is assigned to neither {source} nor {destination}")
    return _replacement(view, destination)


def _check_other(view: PartitionView, move: ReplicaMove) -> None:
    if view.move not in (None, move):
        raise StepRefused(f"a replica of it is being moved {view.move}: finish that, or cancel it")


def _replacement(view: PartitionView, leaving: str) -> ReplicaStep:
    is_odd = len(view.assigned) % 2 == 1
    return ReplicaStep.EXCHANGE if is_odd or leaving not in view.current else ReplicaStep.FILL


def _next_of_leaving(view: PartitionView, leaving: str) -> ReplicaStep | None:
    if leaving in view.listed:
        return ReplicaStep.LEAVE
    return ReplicaStep.CLEAR if view.holding.get(leaving) or view.move is not None else None


def check_filling(view: PartitionView, leaving: str, joining: str, *, exchanged: bool) -> None:
    """Raise :class:`StepRefused` unless the partition keeps a majority while a replica joins.

    With ``exchanged`` the new replica replaces ``leaving``; otherwise it joins in addition.
    """
    _check_settled(view)
    old, new = view.groups.get(leaving), view.groups.get(joining)
    if old != new:
        raise StepRefused(
            f"{joining} is in group {new}, {leaving} in group {old}, and replicas stay in their group: make it "
            f"known with that group (waltz zookeeper remove-storage-node, then add-storage-node -g {old})"
        )
    if len(view.assigned) < 2:
        raise StepRefused("it has only one replica, which cannot be replaced: assign it to a second storage node first")
    _check_majority(view.current, len(view.listed), "now")
    if exchanged:
        _check_majority(view.current - {leaving}, len(view.listed), f"without {leaving}")
    else:
        _check_majority(view.current | {joining}, len(view.assigned) + 1, f"with {joining}")


def check_leaving(view: PartitionView, leaving: str) -> None:
    """Raise :class:`StepRefused` unless the partition keeps a majority without that storage.

    A storage that is not in the metadata is no part of the majority, and can always be removed.
    """
    group = view.groups.get(leaving)
    if not any(view.groups.get(each) == group for each in view.assigned - {leaving}):
        raise StepRefused(f"no other storage node of group {group} would hold it")
    if leaving in view.listed:
        staying = (view.current & view.assigned) - {leaving}
        _check_majority(staying, len(view.listed), f"without {leaving}")
        _check_majority(staying, len(view.assigned) - 1, f"without {leaving}")


def _check_settled(view: PartitionView) -> None:
    if not view.listed:
        raise StepRefused("it never had a store session: start a server")
    if view.listed != view.assigned:
        others = ", ".join(sorted(view.listed ^ view.assigned))
        raise NotYetSettled(f"another change of its replicas ({others}) is under way: no session has begun with it yet")


def _check_majority(well: frozenset[str], count: int, when: str) -> None:
    needed = quorum_of(count)
    if len(well) < needed:
        names = ", ".join(sorted(well)) or "none"
        raise NotYetSettled(
            f"{when} {needed} of {count} replicas must be online members of the store session; these are: {names}"
        )


def check_move(view: PartitionView, move: ReplicaMove) -> list[ReplicaStep]:
    """All remaining steps. Raises :class:`StepRefused` if one of them is refused in the present state."""
    steps: list[ReplicaStep] = []
    while (step := next_step(view, move)) is not None:
        check_step(view, step, leaving=move.source, joining=move.destination)
        steps.append(step)
        view = after(view, step, leaving=move.source, joining=move.destination)
    return steps


def check_back(view: PartitionView, move: ReplicaMove) -> list[ReplicaStep]:
    """All remaining steps of a move that is taken back. Raises :class:`StepRefused` like :func:`check_move`."""
    steps: list[ReplicaStep] = []
    while (step := next_step_back(view, move)) is not None:
        check_step(view, step, leaving=move.destination, joining=move.source)
        steps.append(step)
        view = after(view, step, leaving=move.destination, joining=move.source)
    return steps


def check_step(view: PartitionView, step: ReplicaStep, *, leaving: str, joining: str) -> None:
    """Raise :class:`StepRefused` if the step must not be taken in the present state."""
    if step in FILLING:
        check_filling(view, leaving, joining, exchanged=step is ReplicaStep.EXCHANGE)
    elif step is ReplicaStep.UNASSIGN:
        check_leaving(view, leaving)


def after(view: PartitionView, step: ReplicaStep, *, leaving: str, joining: str) -> PartitionView:
    """The state after the step, without other changes."""
    move = ReplicaMove(leaving, joining) if view.move is None else view.move
    if step is ReplicaStep.EXCHANGE:
        assigned = (view.assigned - {leaving}) | {joining}
        return view._replace(assigned=assigned, holding={**view.holding, joining: True}, move=move)
    if step is ReplicaStep.FILL:
        return view._replace(assigned=view.assigned | {joining}, holding={**view.holding, joining: True}, move=move)
    if step is ReplicaStep.JOIN:
        return view._replace(listed=view.listed | {joining}, current=view.current | {joining})
    if step is ReplicaStep.UNASSIGN:
        return view._replace(assigned=view.assigned - {leaving})
    if step is ReplicaStep.LEAVE:
        return view._replace(listed=view.assigned, current=view.current - {leaving})
    if step is ReplicaStep.REVERT:
        return view._replace(assigned=(view.assigned - {leaving}) | {joining})
    if step is ReplicaStep.RETURN:
        return view._replace(assigned=view.assigned | {joining})
    return view._replace(holding={**view.holding, leaving: False}, move=None)
