"""The examples of the documentation, as programs."""

import asyncio
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs"
PAGES = tuple(
    DOCS / f"{name}.md"
    for name in ("client", "callbacks", "client-operations", "consuming", "write-sessions", "tables", "served-tables")
)

_HEADING = re.compile(r"^#+ (.+)$")
_FENCE = re.compile(r"^```(\w*)$")


def examples() -> dict[str, str]:
    """Each Python block by the heading above it."""
    found: dict[str, str] = {}
    heading, language, lines = "", "", list[str]()
    for line in "\n".join(page.read_text() for page in PAGES).splitlines():
        fence = _FENCE.match(line)
        if fence and not language:
            language, lines = fence[1] or "text", []
        elif fence:
            if language == "python":
                assert heading not in found, f"two examples below {heading!r}"
                found[heading] = "\n".join(lines)
            language = ""
        elif language:
            lines.append(line)
        elif matched := _HEADING.match(line):
            heading = matched[1]
    return found


_ALL = examples()
TESTS = {heading: source for heading, source in _ALL.items() if "\ndef test_" in source}
"""The examples that pytest runs."""
EXAMPLES = {heading: source for heading, source in _ALL.items() if "__main__" not in source and heading not in TESTS}
PROGRAMS = {heading: source for heading, source in _ALL.items() if "__main__" in source}
"""The examples that run as processes of their own."""


def run(heading: str, cluster: object) -> None:
    """Run one example."""
    source = EXAMPLES[heading]
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(source, heading, "exec"), namespace)
    main: Callable[[object], Any] = namespace["main"]
    if inspect.iscoroutinefunction(main):
        asyncio.run(asyncio.wait_for(main(cluster), 60))
    else:
        main(cluster)
