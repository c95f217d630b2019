"""The right that each page of an HTTP port needs: one table. docs/security.md shows it; a test compares both.

The content of a page decides. Metrics, health and the console name partitions of the whole cluster. So they need a
right to all partitions, such as a grant at ``*``.
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


_OPEN: Final = PageRule(None)
_NODE: Final = PageRule(Right.DESCRIBE)
_ALL: Final = PageRule(Right.DESCRIBE, everywhere=True)
_CHANGE: Final = PageRule(Right.ADMIN, everywhere=True)

PAGE_RULES: Final[Mapping[str, PageRule]] = {
    "GET /ping": _OPEN,
    "GET /buildinfo": _NODE,
    "GET /metrics": _ALL,
    "GET /metrics/prometheus": _ALL,
    "GET /health": _ALL,
    "GET /acl/refused": _NODE,
    "GET /console": _ALL,
    "GET /console/cluster.json": _ALL,
    "GET /console/history.json": _ALL,
    "GET /console/partition.json": _ALL,
    "GET /console/console.css": _ALL,
    "GET /console/console.js": _ALL,
    "GET /console/icon.svg": _ALL,
    "GET /valid-keys": _ALL,
    "GET /invalid-keys": _ALL,
    "POST /reset": _CHANGE,
}
"""By method and path."""


def page_rule(method: str, path: str) -> PageRule:
    """The rule of a page. The rule of an unknown page is strict, so a refusal does not show whether the page exists."""
    return PAGE_RULES.get(f"{method} {path}") or (_ALL if method == "GET" else _CHANGE)
