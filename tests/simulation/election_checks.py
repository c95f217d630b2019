"""What must hold of elections: nobody is elected beside a leader whose node lives."""

from collections.abc import Callable
from typing import NamedTuple

from waltz.client.election import Leadership, leader_of
from waltz.common.zk.client import NoNodeError, Stat
from waltz.common.zk.paths import ClusterPaths


class _Leads(NamedTuple):
    """A leader that has announced itself, and has not begun to leave."""

    name: str
    leadership: Leadership
    czxid: int
    """The transaction that made its node."""


class ElectionChecks:
    """Is told of elections, looks at the nodes as they are decided, and calls ``fail``."""

    def __init__(
        self, fail: Callable[[str], None], look: Callable[[str], tuple[bytes | None, Stat]], root: str
    ) -> None:
        """``look`` gives a node, or raises ``NoNodeError``."""
        self.count = 0
        """Elections so far."""
        self._fail = fail
        self._look = look
        self._root = root
        self._leading: dict[int, _Leads] = {}

    def elected(self, name: str, leadership: Leadership) -> None:
        """A client has been elected, and was told so just now."""
        self.count += 1
        partition_id, term = leadership.partition_id, leadership.term
        try:
            data, stat = self._look(ClusterPaths.of(self._root).election(partition_id))
        except NoNodeError:
            return  # its node is gone already
        leads = self._leading.get(partition_id)
        if leads is not None and stat.czxid == leads.czxid:
            self._fail(f"{name} is elected in term {term}; {leads.name} leads in {leads.leadership.term}, and lives")
        announced = leader_of(data)
        if announced is not None and announced.term == term:
            self._leading[partition_id] = _Leads(name, leadership, stat.czxid)

    def resigns(self, leadership: Leadership) -> None:
        """A leader begins to leave."""
        leads = self._leading.get(leadership.partition_id)
        if leads is not None and leads.leadership is leadership:
            del self._leading[leadership.partition_id]
