"""The levels of consistency of one partition's appends: which are refused, and what all storages are known to have.

A level moves the acknowledgement to the writer, never the commit. So a server only refuses what the partition or its
storages do not allow, and tells the mark up to which all storages have the log to those who have asked. What it keeps
for a connection is one level and one question, whatever the number of appends.

Below the quorum the server keeps each append until it is acknowledged or committed. Ids that a store session has given
are void at its end: nothing is acknowledged after that, and the writer hears of the commit or the loss as always.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from waltz.common.consistency import Consistency, storages_before_commit, waits_for_all
from waltz.common.ids import NO_TRANSACTION
from waltz.common.wire.consistency import (
    AppendAck,
    AppendAckRequest,
    AppendLevelRequest,
    ConsistencyRefusal,
    ConsistencyRefused,
    PartitionConsistency,
)
from waltz.common.wire.versions import FIRST_WITH_CONSISTENCY
from waltz.server.partition.append_rule import DEFAULT_RULE, AppendRule
from waltz.server.requests.link import ClientLink
from waltz.server.store.interface import Append


class Refusal(NamedTuple):
    """Why appends are refused because of their level."""

    kind: ConsistencyRefusal
    text: str


class _Question(NamedTuple):
    req_id: bytes
    wanted_id: int
    told_id: int


class _Early(NamedTuple):
    """An append that is acknowledged before its commit."""

    transaction_id: int
    link: ClientLink
    req_id: bytes


class WriteLevels:
    """What connections have told and asked since their mounts."""

    __slots__ = ("_await_all", "_await_some", "_early", "_levels", "_missing_storages", "_questions", "_rule", "checks")

    def __init__(
        self,
        await_all: Callable[[int], None],
        await_some: Callable[[bool], None],
        missing_storages: Callable[[], Sequence[str]],
        rule: AppendRule,
    ) -> None:
        """``await_all`` has :meth:`stored_by_all` called now and, until all have the transaction, at each change;
        ``await_some`` has :meth:`stored_by_some` called at each acknowledgement, or ends that; ``missing_storages`` are
        those that are known to be away."""
        self._await_all = await_all
        self._await_some = await_some
        self._early: dict[int, deque[_Early]] = {}
        """The appends that wait, in the order of their ids, by the number of storages that they need."""
        self._missing_storages = missing_storages
        self._rule = rule
        self._levels: dict[ClientLink, Consistency] = {}
        self._questions: dict[ClientLink, _Question] = {}
        self.checks = rule != DEFAULT_RULE
        """Whether any append could be refused."""

    @property
    def early_count(self) -> int:
        """Appends that are to be acknowledged before their commit."""
        return sum(map(len, self._early.values()))

    @property
    def asking_count(self) -> int:
        """Connections that wait until all storages have a transaction."""
        return len(self._questions)

    def set_rule(self, rule: AppendRule, sessions: Iterable[tuple[ClientLink, bytes]]) -> None:
        """The properties have changed; ``sessions`` are the mounted connections and the ids of their mounts."""
        changed = rule.consistency is not self._rule.consistency
        self._rule = rule
        self._update()
        if changed:
            for link, session_id in sessions:
                self._tell_property(link, session_id)

    def mounted(self, link: ClientLink, session_id: bytes) -> None:
        """A connection has mounted the partition, perhaps again: it begins without a level and a question."""
        self.forget(link)
        if self._rule.consistency is not DEFAULT_RULE.consistency:
            self._tell_property(link, session_id)

    def forget(self, link: ClientLink) -> None:
        """A connection has closed."""
        self._levels.pop(link, None)
        self._questions.pop(link, None)
        for needed, waiting in self._early.items():
            self._early[needed] = deque(append for append in waiting if append.link is not link)
        self._drop_empty()
        self._update()

    def tell_level(self, link: ClientLink, message: AppendLevelRequest) -> None:
        """The level of the appends of a mounted connection that follow."""
        self._levels[link] = message.level
        self._update()

    def refusal(self, link: ClientLink) -> Refusal | None:
        """The reason against appends that a connection sends now; ``None``: they are taken."""
        level = self._level_of(link)
        text = self._rule.refusal(level)
        if text is not None:
            return Refusal(ConsistencyRefusal.BELOW_PROPERTY, text)
        if level is not None and waits_for_all(level) and (missing := self._missing_storages()):
            text = f"an append at {level.word} needs all storages, and this server does not reach {', '.join(missing)}"
            return Refusal(ConsistencyRefusal.STORAGE_MISSING, text)
        return None

    def accepted(self, link: ClientLink, appends: Sequence[Append]) -> None:
        """Appends of a connection have their ids, and go to the storages."""
        level = self._levels.get(link)
        needed = None if level is None else storages_before_commit(level)
        if needed is None:
            return
        if not self._early:
            self._await_some(True)
        waiting = self._early.setdefault(needed, deque())
        waiting.extend(_Early(append.transaction_id, link, append.req_id) for append in appends)

    def stored_by_some(self, marks: Sequence[int]) -> None:
        """What each assigned storage has acknowledged, descending."""
        for needed, waiting in self._early.items():
            mark = marks[min(needed, len(marks)) - 1]
            while waiting and waiting[0].transaction_id <= mark:
                append = waiting.popleft()
                append.link.send(AppendAck(append.req_id, append.transaction_id, needed))
        self._drop_empty()

    def committed(self, high_water_mark: int) -> None:
        """Everything up to a transaction is committed: the feed tells that."""
        for waiting in self._early.values():
            while waiting and waiting[0].transaction_id <= high_water_mark:
                waiting.popleft()
        self._drop_empty()

    def session_ended(self) -> None:
        """Ids without a commit are void."""
        for waiting in self._early.values():
            waiting.clear()
        self._drop_empty()

    def _drop_empty(self) -> None:
        """While no append waits, acknowledgements of storages are not told."""
        if self._early:
            self._early = {needed: waiting for needed, waiting in self._early.items() if waiting}
            if not self._early:
                self._await_some(False)

    def ask(self, link: ClientLink, request: AppendAckRequest, high_water_mark: int) -> None:
        """Tell a mounted connection how far all storages have the log, now and until they have the transaction."""
        wanted_id = min(request.transaction_id, high_water_mark)
        self._questions[link] = _Question(request.req_id, wanted_id, NO_TRANSACTION)
        self._await_all(wanted_id)

    def stored_by_all(self, transaction_id: int, storage_count: int) -> None:
        """All storages have everything up to a committed transaction."""
        for link, question in list(self._questions.items()):
            if transaction_id > question.told_id:
                link.send(AppendAck(question.req_id, transaction_id, storage_count))
            if transaction_id >= question.wanted_id:
                del self._questions[link]
            else:
                self._questions[link] = question._replace(told_id=transaction_id)

    def _level_of(self, link: ClientLink) -> Consistency | None:
        """The level of appends; ``None`` where the protocol of the connection has none."""
        if link.channel.version < FIRST_WITH_CONSISTENCY:
            return None
        return self._levels.get(link, Consistency.LEADER_QUORUM)

    def _tell_property(self, link: ClientLink, session_id: bytes) -> None:
        if link.channel.version >= FIRST_WITH_CONSISTENCY:
            link.send(PartitionConsistency(session_id, self._rule.consistency))

    def _update(self) -> None:
        self.checks = bool(self._levels) or self._rule != DEFAULT_RULE


def refuse_level(link: ClientLink, req_ids: Iterable[bytes], refusal: Refusal) -> bool:
    """Tell a client that appends were refused; false if its version has no message for that."""
    if link.channel.version < FIRST_WITH_CONSISTENCY:
        return False
    for req_id in req_ids:
        link.send(ConsistencyRefused(req_id, refusal.kind, refusal.text))
    return True
