"""Prints docs/appendix/mount-states.md, the states of a mount: ``python -m tests.unit.client.engine.mount_page``."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from waltz.client.engine.partition.mount_states import CONNECTED_STATES, SESSION_STATES, STEPS, Action, Event, State

PAGE = Path(__file__).parents[4] / "docs" / "appendix" / "mount-states.md"
BEGIN = "<!-- printed by tests.unit.client.engine.mount_page: begin -->\n"
END = "<!-- end -->\n"

_GROUPS = {"CONNECTED": CONNECTED_STATES, "SESSION": SESSION_STATES}
"""Larger first. What holds for all states of a group is drawn once."""


class Row(NamedTuple):
    """Steps that one event brings about."""

    event: Event
    before: list[str]
    """States, or groups of states."""
    after: State | None
    """``None``: the state stays."""


def rows() -> list[Row]:
    """Every step that :data:`STEPS` holds."""
    steps: dict[tuple[Event, Action | None], dict[State, State]] = defaultdict(dict)
    for (before, event), (after, action) in STEPS.items():
        steps[event, action][before] = after
    found = []
    for (event, _), changes in steps.items():
        afters = set(changes.values())
        found.append(Row(event, list(_group(changes)), afters.pop() if len(afters) == 1 else None))
    return found


def _group(states: Collection[State]) -> Iterator[str]:
    left = dict.fromkeys(states)
    for name, members in _GROUPS.items():
        if set(members) <= left.keys():
            yield name
            left = {state: None for state in left if state not in members}
    yield from (state.name for state in left)


def diagram() -> Iterator[str]:
    """The states and their changes, for mermaid."""
    yield "stateDiagram-v2"
    yield "    [*] --> UNASSIGNED"
    yield "    state CONNECTED {"
    for state in CONNECTED_STATES:
        if state not in SESSION_STATES:
            yield f"        {state.name}"
    yield "        state SESSION {"
    for state in SESSION_STATES:
        yield f"            {state.name}"
    yield "        }"
    yield "    }"
    for event, befores, after in rows():
        for before in befores:
            if after is not None and after.name != before:
                yield f"    {before} --> {after.name}: {event.name}"


def text() -> str:
    """What the page holds between its marks."""
    states = [f"| {state.name} | {state.value} |" for state in State]
    lines = ["", "```mermaid", *diagram(), "```", "", "| State | |", "|---|---|", *states, ""]
    return "".join(f"{line}\n" for line in lines)


def rewritten(page: str) -> str:
    """The page with the text of today."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + text() + END + tail


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
