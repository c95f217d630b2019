"""A state machine as a table of states, possible events and their consequences. Pure.

The table is complete: each pair of a state and an event is a step, is ignored on purpose, or is impossible. An
impossible event is a defect of the caller and raises an error. The table holds no state; its user does.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

StateT = TypeVar("StateT", bound=Enum)
EventT = TypeVar("EventT", bound=Enum)
ActionT = TypeVar("ActionT")


class ImpossibleEventError(RuntimeError):
    """An event was reported in a state in which it cannot happen."""


class Row(NamedTuple, Generic[StateT, EventT, ActionT]):
    """One event and its consequence, which is the same in several states."""

    event: EventT
    before: Collection[StateT]
    """The states in which the row applies."""
    after: StateT | None = None
    """``None``: the state stays the same."""
    action: ActionT | None = None


class Step(NamedTuple, Generic[StateT, ActionT]):
    """The consequence of one event in one state."""

    state: StateT
    action: ActionT | None


class Machine(Generic[StateT, EventT, ActionT]):
    """The table of one machine."""

    steps: Mapping[tuple[StateT, EventT], Step[StateT, ActionT]]
    """The step of every event that has consequences."""
    ignored: frozenset[tuple[StateT, EventT]]
    """Events that may happen in a state and have no consequence there."""

    def __init__(
        self,
        subject: str,
        rows: Iterable[Row[StateT, EventT, ActionT]],
        ignored: Iterable[tuple[EventT, Collection[StateT]]] = (),
    ) -> None:
        """Expand the rows.

        Args:
            subject: Noun with its article for error texts, for example ``"a replica"``.
            rows: The events that have consequences.
            ignored: Events without consequence, each with the states in which it may happen.

        Raises:
            ValueError: A pair of a state and an event stands in the table twice.
        """
        steps: dict[tuple[StateT, EventT], Step[StateT, ActionT]] = {}
        ignored_pairs: set[tuple[StateT, EventT]] = set()
        for event, before, after, action in rows:
            for state in before:
                if (state, event) in steps:
                    raise ValueError(f"{subject} that is {state.name} has two steps for {event.name}")
                steps[state, event] = Step(state if after is None else after, action)
        for event, before in ignored:
            for state in before:
                if (state, event) in steps or (state, event) in ignored_pairs:
                    raise ValueError(f"{subject} that is {state.name} cannot ignore {event.name}, which is listed")
                ignored_pairs.add((state, event))
        self._subject = subject
        self.steps = MappingProxyType(steps)
        self.ignored = frozenset(ignored_pairs)

    def step(self, state: StateT, event: EventT) -> Step[StateT, ActionT]:
        """The consequence of an event; an ignored event keeps the state and has no action.

        Raises:
            ImpossibleEventError: The event cannot happen in this state.
        """
        step = self.steps.get((state, event))
        if step is not None:
            return step
        if (state, event) in self.ignored:
            return Step(state, None)
        raise ImpossibleEventError(f"{self._subject} that is {state.name} cannot meet {event.name}")

    def after(self, state: StateT, event: EventT) -> StateT:
        """The state after an event.

        Raises:
            ImpossibleEventError: The event cannot happen in this state.
        """
        return self.step(state, event).state
