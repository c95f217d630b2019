"""Hashes that are the same in every run.

The default hash of an object is its address, so sets of such objects iterate in an order that differs from run to run.
Sets of tasks and futures are taken care of by the loop; the other classes whose instances stand in sets are here.
"""

import contextlib
from collections.abc import Iterator
from unittest import mock

from waltz.common.net.channel import Channel
from waltz.server.feeding.feed import Feed
from waltz.server.requests.link import ClientLink
from waltz.storage.node.data_port import DataConnection

_CLASSES: tuple[type, ...] = (Channel, ClientLink, DataConnection, Feed)


class _Numbers:
    """Numbers objects in the order in which they are hashed first, and keeps them, so that no address is used twice."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[object, int]] = {}

    def number(self, item: object) -> int:
        """The number of an object."""
        return self._numbers.setdefault(id(item), (item, len(self._numbers)))[1]


@contextlib.contextmanager
def reproducible_hashes() -> Iterator[None]:
    """While this lasts, sets iterate alike in every run."""
    numbers = _Numbers()
    with contextlib.ExitStack() as stack:
        for changed in _CLASSES:
            stack.enter_context(mock.patch.object(changed, "__hash__", lambda item: numbers.number(item)))
        yield
