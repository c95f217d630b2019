"""What comes next when a replica moves from one storage node to another, and when it must not. Pure.

The order keeps a majority at every moment: the new replica has what is committed before it is assigned, it takes full
part before the old one is unassigned, and the old one's files are deleted when no session counts it any more.
"""

import enum
import json
from collections.abc import Mapping
from typing import NamedTuple, Self

from waltz.common.errors import ProtocolError, WaltzError


class Move(NamedTuple):
    """A replica that is on its way, as ZooKeeper keeps it from before the first step until after the last one."""

    source: str
    """Connect string of the storage node that gives it up."""
    destination: str

    def encode(self) -> bytes:
        """It as JSON."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> Self:
        """Raises ``ProtocolError``."""
        try:
            document = json.loads(data or b"")
            source, destination = document["source"], document["destination"]
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolError(f"{path} does not say what is being moved: {error}") from None
        return cls(str(source), str(destination))

    def __str__(self) -> str:
        return f"from {self.source} to {self.destination}"


class View(NamedTuple):
    """What ZooKeeper and the storages say of a partition."""

    assigned: frozenset[str]
    """The storages that are to hold it."""
    listed: frozenset[str]
    """Those that its metadata list: they decide what is committed when the next session begins."""
    current: frozenset[str]
    """Those of them that take full part in the present session, answer, and have it online."""
    holding: Mapping[str, bool | None]
    """Whether source and destination have it; None of one that does not answer."""
    groups: Mapping[str, int]
    move: Move | None
    """What is on its way already."""


class Step(enum.Enum):
    """What is to be done next. The values are meant for people, and speak of the storage that is concerned."""

    FILL = "what is committed is copied to {joining}, which is then assigned to the partition"
    JOIN = "{joining} takes full part in the store session"
    UNASSIGN = "{leaving} is unassigned"
    LEAVE = "a store session begins without {leaving}"
    RETURN = "{joining} is assigned again"
    CLEAR = "the partition's files on {leaving} are deleted"


class Refused(WaltzError):
    """A step that must not be done as things are."""


class Unsettled(Refused):
    """The same, where waiting may help."""


def majority(count: int) -> int:
    """So many of them."""
    return count // 2 + 1


def next_step(view: View, move: Move) -> Step | None:
    """The step that follows what has been done; None when all has.

    Raises :class:`Refused` where the partition is not on this way.
    """
    _check_other(view, move)
    source, destination = move
    if source in view.assigned:
        if destination not in view.assigned:
            return Step.FILL
        if view.move is None:
            raise Refused(f"both storages hold it, and nothing was being moved {move}")
        return Step.UNASSIGN if destination in view.current else Step.JOIN
    if destination not in view.assigned:
        raise Refused(f"neither {source} nor {destination} is to hold it")
    return _next_of_leaving(view, source)


def next_step_back(view: View, move: Move) -> Step | None:
    """The same for a move that is taken back: its destination leaves."""
    _check_other(view, move)
    if view.move is None:
        return None
    if move.source not in view.assigned:
        if move.source in view.listed:  # what it has still counts, and may be what is missing to a majority
            return Step.RETURN
        raise Refused(f"{move.source} has left it already: finish the move, and move the replica back")
    if move.destination in view.assigned:
        return Step.UNASSIGN
    return _next_of_leaving(view, move.destination)


def _check_other(view: View, move: Move) -> None:
    if view.move not in (None, move):
        raise Refused(f"a replica of it is being moved {view.move}: finish that, or cancel it")


def _next_of_leaving(view: View, leaving: str) -> Step | None:
    if leaving in view.listed:
        return Step.LEAVE
    return Step.CLEAR if view.holding.get(leaving) or view.move is not None else None


def check_filling(view: View, source: str, destination: str) -> None:
    """Raises :class:`Refused` unless the partition keeps a majority while the destination joins."""
    _check_settled(view)
    old, new = view.groups.get(source), view.groups.get(destination)
    if old != new:
        raise Refused(
            f"{destination} is in group {new}, {source} in group {old}, and replicas stay in their group: make it "
            f"known with that group (waltz zookeeper remove-storage-node, then add-storage-node -g {old})"
        )
    if len(view.assigned) < 2:
        raise Refused("it has only one replica, which cannot be replaced: assign it to a second storage node first")
    _check_majority(view.current, len(view.listed), "now")
    _check_majority(view.current | {destination}, len(view.assigned) + 1, f"with {destination}")


def check_leaving(view: View, leaving: str) -> None:
    """Raises :class:`Refused` unless the partition keeps a majority without that storage.

    Servers of the original do not ask a replica that was unassigned what it holds, so those that stay must be a
    majority of those before.
    """
    _check_settled(view)
    staying = view.current - {leaving}
    _check_majority(staying, len(view.listed), f"without {leaving}")
    group = view.groups.get(leaving)
    if not any(view.groups.get(each) == group for each in view.assigned - {leaving}):
        raise Refused(f"no other storage node of group {group} would hold it")


def _check_settled(view: View) -> None:
    if not view.listed:
        raise Refused("it never had a store session: start a server")
    if view.listed != view.assigned:
        others = ", ".join(sorted(view.listed ^ view.assigned))
        raise Unsettled(f"another change of its replicas ({others}) is under way: no session has begun with it yet")


def _check_majority(well: frozenset[str], count: int, when: str) -> None:
    needed = majority(count)
    if len(well) < needed:
        names = ", ".join(sorted(well)) or "none"
        raise Unsettled(f"{when} {needed} of {count} replicas must take full part and be online; these do: {names}")


def check_move(view: View, move: Move) -> list[Step]:
    """All steps that are left. Raises :class:`Refused` if one of them could not be done as things are."""
    steps: list[Step] = []
    while (step := next_step(view, move)) is not None:
        check_step(view, step, leaving=move.source, joining=move.destination)
        steps.append(step)
        view = after(view, step, leaving=move.source, joining=move.destination)
    return steps


def check_back(view: View, move: Move) -> list[Step]:
    """The same for a move that is taken back."""
    steps: list[Step] = []
    while (step := next_step_back(view, move)) is not None:
        check_step(view, step, leaving=move.destination, joining=move.source)
        steps.append(step)
        view = after(view, step, leaving=move.destination, joining=move.source)
    return steps


def check_step(view: View, step: Step, *, leaving: str, joining: str) -> None:
    """Raises :class:`Refused` if the step must not be done as things are."""
    if step is Step.FILL:
        check_filling(view, leaving, joining)
    elif step is Step.UNASSIGN:
        check_leaving(view, leaving)


def after(view: View, step: Step, *, leaving: str, joining: str) -> View:
    """What the step makes of it when nothing else happens."""
    if step is Step.FILL:
        return view._replace(
            assigned=view.assigned | {joining}, holding={**view.holding, joining: True}, move=Move(leaving, joining)
        )
    if step is Step.JOIN:
        return view._replace(listed=view.listed | {joining}, current=view.current | {joining})
    if step is Step.UNASSIGN:
        return view._replace(assigned=view.assigned - {leaving})
    if step is Step.LEAVE:
        return view._replace(listed=view.listed - {leaving}, current=view.current - {leaving})
    if step is Step.RETURN:
        return view._replace(assigned=view.assigned | {joining})
    return view._replace(holding={**view.holding, leaving: False}, move=None)
