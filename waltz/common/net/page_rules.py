"""The right that each page of an HTTP port needs: one table. docs/security.md shows it; a test compares both.

The content of a page decides. Metrics and health name partitions of the whole cluster. So they need a right to all
partitions, such as a grant at ``*``. The console shows the partitions to which the reader has the right.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from waltz.common.access import Right


class PageRule(NamedTuple):
    """The right that a page needs."""

    right: Right | None
    """``None`` if everybody may read the page."""
    everywhere: bool = False
    """Whether the page needs the right to every partition of the cluster, not to the node alone."""
    filtered: bool = False
    """Whether the page shows only what the reader may see: it needs the right to the node or to any partition."""


_OPEN: Final = PageRule(None)
_NODE: Final = PageRule(Right.DESCRIBE)
_ALL: Final = PageRule(Right.DESCRIBE, everywhere=True)
_FILTERED: Final = PageRule(Right.DESCRIBE, filtered=True)
_CHANGE: Final = PageRule(Right.ADMIN, everywhere=True)

PAGE_RULES: Final[Mapping[str, PageRule]] = {
    "GET /ping": _OPEN,
    "GET /buildinfo": _NODE,
    "GET /metrics": _ALL,
    "GET /metrics/prometheus": _ALL,
    "GET /health": _ALL,
    "GET /acl/refused": _NODE,
    "GET /console": _FILTERED,
    "GET /console/cluster.json": _FILTERED,
    "GET /console/history.json": _FILTERED,
    "GET /console/partition.json": _FILTERED,
    "GET /console/console.css": _FILTERED,
    "GET /console/console.js": _FILTERED,
    "GET /console/icon.svg": _FILTERED,
    "GET /valid-keys": _ALL,
    "GET /invalid-keys": _ALL,
    "POST /reset": _CHANGE,
}
"""By method and path."""


def page_rule(method: str, path: str) -> PageRule:
    """The rule of a page. The rule of an unknown page is strict, so a refusal does not show whether the page exists."""
    return PAGE_RULES.get(f"{method} {path}") or (_ALL if method == "GET" else _CHANGE)
