"""What must hold of write sessions, whoever does what when: pure.

The checks are fed by what can be seen from outside: what servers tell clients, what clients send, what lands in the
log, and which store sessions begin. They know nothing of how a number comes about.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

from waltz.common.ids import ReqId
from waltz.common.wire.write_sessions import NO_WRITE_SESSION


class Begin(NamedTuple):
    """A number that came into force behind a mark of the log."""

    mark: int
    number: int
    holder: int | None
    """The only client that may append under it; None: everybody."""
    owner: object


class Opened(NamedTuple):
    """The store session that an owner opened last."""

    session_id: int
    generation: int


class _Told(NamedTuple):
    """Marks at which a number was said to be in force."""

    lowest: int
    highest: int


class _Partition:
    """The known state of one partition."""

    def __init__(self) -> None:
        self.begins: list[Begin] = []
        """In order of marks, and of numbers among those at the same mark."""
        self.owners: dict[int, object] = {}
        """Owners by the store sessions that they opened."""
        self.recorded: defaultdict[int, set[str]] = defaultdict(set)
        """The storages that have recorded each store session."""
        self.told: dict[int, _Told] = {}
        self.fences: dict[int, str] = {}
        self.log: dict[int, bytes] = {}
        self.released: set[int] = set()
        """Numbers of exclusive sessions whose holder has lost its right."""


class SessionChecks:
    """Collects what happens and calls ``fail`` when it must not happen."""

    def __init__(self, fail: Callable[[str], None], quorum: int) -> None:
        """``quorum``: storages that have to know of a store session before anything is begun with it."""
        self.fences = 0
        """Fences that were answered."""
        self.refused_count = 0
        self._fail = fail
        self._quorum = quorum
        self._partitions: defaultdict[int, _Partition] = defaultdict(_Partition)
        self._carried: dict[bytes, int] = {}
        self._refused: dict[bytes, int] = {}
        self._opened: dict[object, Opened] = {}
        self._dead_below: dict[tuple[int, int], int] = {}
        self._current: dict[tuple[int, int], int] = {}
        self._asking: Counter[tuple[int, int]] = Counter()

    # Servers and storages

    def recorded(self, storage: str, partition_id: int, session_id: int) -> None:
        """A storage has recorded a store session and its low-water mark."""
        self._partitions[partition_id].recorded[session_id].add(storage)

    def begun(
        self,
        owner: object,
        partition_id: int,
        opened: Opened,
        mark: int,
        before: tuple[int, int | None],
        after: tuple[int, int | None],
        asked: tuple[bool, int | None],
    ) -> None:
        """An owner goes on in another store session. ``before``, ``after``: number and holder of its write session;
        ``asked``: whether that was for a fence, and for which client the new session is to be exclusive."""
        what = f"partition {partition_id}, store session {opened.session_id}"
        known = self._partitions[partition_id]
        last = self._opened.get(owner)
        self._opened[owner] = opened
        known.owners[opened.session_id] = owner
        if len(known.recorded[opened.session_id]) < self._quorum:
            self._fail(f"{what}: begun although {sorted(known.recorded[opened.session_id])} alone know of it")
        is_fence, holder = asked
        number = after[0]
        unbroken = last is not None and last == (opened.session_id - 1, opened.generation)
        if number != before[0]:
            if number != opened.session_id + 1:
                self._fail(f"{what}: number {number} is not derived from it")
            if after[1] != holder and number not in known.released:
                self._fail(f"{what}: number {number} is held by {after[1]}; exclusivity was asked for {holder}")
            if unbroken and not is_fence:
                self._fail(f"{what}: number {before[0]} is raised to {number} although nobody asked, nor came between")
            self._begin(partition_id, Begin(mark, number, after[1], owner))
            return
        if is_fence:
            self._fail(f"{what}: a fence has not raised number {number}")
        if after[1] != before[1]:
            self._fail(f"{what}: number {number} was held by {before[1]}, and is by {after[1]}")
        if last is None or last.generation != opened.generation:
            self._fail(f"{what}: number {number} is kept although its generation is another one")
        others = range(opened.session_id if last is None else last.session_id + 1, opened.session_id)
        if any(known.owners.get(session_id, owner) is not owner for session_id in others):
            self._fail(f"{what}: number {number} is kept although another owner came between")

    def _begin(self, partition_id: int, begin: Begin) -> None:
        begins = self._partitions[partition_id].begins
        for other in begins:
            if other.number == begin.number:
                self._fail(f"partition {partition_id}: number {begin.number} has begun twice, {other} and {begin}")
            elif (other.number < begin.number) != ((other.mark, other.number) < (begin.mark, begin.number)):
                self._fail(f"partition {partition_id}: numbers are not in the order of the log, {other} and {begin}")
            elif other.owner is begin.owner and other.number > begin.number:
                self._fail(f"partition {partition_id}: the number of one owner sinks, {other} and {begin}")
        begins.append(begin)
        begins.sort(key=lambda each: each[:2])

    def told(self, partition_id: int, mark: int, number: int) -> None:
        """A server has told a client that a number was in force when the log ended at a mark."""
        known = self._partitions[partition_id]
        lowest, highest = known.told.get(number, (mark, mark))
        known.told[number] = _Told(min(lowest, mark), max(highest, mark))
        for transaction_id, req_id in known.log.items():
            carried = self._carried.get(req_id, NO_WRITE_SESSION)
            if carried != NO_WRITE_SESSION:
                self._check_order(partition_id, transaction_id, carried, number, known.told[number])

    def fenced(self, partition_id: int, mark: int, number: int, who: str, expected: int = NO_WRITE_SESSION) -> None:
        """A fence was answered that had been asked for in the session ``expected``."""
        self.fences += 1
        known = self._partitions[partition_id]
        what = f"partition {partition_id}: {who} is told number {number}"
        if number in known.fences:
            self._fail(f"{what}, and so is {known.fences[number]}")
        known.fences[number] = who
        if len(known.recorded[number - 1]) < self._quorum:
            self._fail(f"{what}; store session {number - 1} is known to {sorted(known.recorded[number - 1])} alone")
        raised = next((begin for begin in known.begins if begin.number == number), None)
        if raised is None:
            self._fail(f"{what}, which has not begun")
        elif expected != NO_WRITE_SESSION:
            before = [begin.number for begin in known.begins if begin.owner is raised.owner and begin.number < number]
            if before[-1:] != [expected]:
                self._fail(f"{what}, and had asked to follow {expected}; that owner was at {before[-1:]}")
        self.told(partition_id, mark, number)

    def refused(self, req_id: bytes, number: int) -> None:
        """A server whose number is this has refused an append because of it, or of its holder."""
        self.refused_count += 1
        self._refused[req_id] = number
        parsed = ReqId(req_id)
        carried = self._carried.get(req_id, NO_WRITE_SESSION)
        known = self._partitions[parsed.partition_id]
        if any(landed == req_id for landed in known.log.values()):
            self._fail(f"{parsed} is refused by number {number} and in the log")
        begin = next((begin for begin in known.begins if begin.number == number), None)
        holder = None if begin is None else begin.holder
        entitled = holder is None if carried == NO_WRITE_SESSION else holder in (None, parsed.client_id)
        if carried in (number, NO_WRITE_SESSION) and entitled and number not in known.released:
            self._fail(f"{parsed} under {carried} is refused by number {number}, which is held by {holder}")

    def released(self, partition_id: int, number: int) -> None:
        """The exclusive session of this number has lost its holder: others may append in it from now on."""
        self._partitions[partition_id].released.add(number)

    # Clients

    def carried(self, req_id: bytes, number: int) -> None:
        """A client has sent an append with a number."""
        self._carried[req_id] = number

    def client_told(self, client_id: int, partition_id: int, number: int) -> None:
        """A client that keeps the rules has heard that another number than its own is in force."""
        key = client_id, partition_id
        self._dead_below[key] = max(self._dead_below.get(key, number), number)

    def client_asks(self, client_id: int, partition_id: int) -> None:
        """The client's application asks for another number."""
        self._asking[client_id, partition_id] += 1

    def client_asked(self, client_id: int, partition_id: int, number: int | None) -> None:
        """The application has got what it wanted, or not; the client has this number then, or none."""
        key = client_id, partition_id
        self._asking[key] -= 1
        if number is not None and number != self._current.get(key):
            self._take(key, number)

    def _take(self, key: tuple[int, int], number: int) -> None:
        """Begin anew: that a still newer number is in force may have come sooner, on another connection."""
        self._current[key] = number
        self._dead_below.pop(key, None)

    def client_promotes(self, client_id: int, partition_id: int, number: int) -> None:
        """A client that has this number, or none, asks for an exclusive session."""
        if number != NO_WRITE_SESSION and not self._asking[client_id, partition_id]:
            self._fail(
                f"client {client_id} asks for an exclusive session of partition {partition_id} again, after it had "
                f"number {number}"
            )

    def client_sends(self, req_id: bytes, number: int) -> None:
        """A client that keeps the rules sends an append."""
        self.carried(req_id, number)
        parsed = ReqId(req_id)
        key = parsed.client_id, parsed.partition_id
        current = self._current.setdefault(key, number) if number != NO_WRITE_SESSION else number
        if number != current:
            if not self._asking[key]:
                self._fail(f"{parsed} is sent under number {number}, for which nobody has asked; it had {current}")
            self._take(key, number)
        dead_below = self._dead_below.get(key, NO_WRITE_SESSION)
        if number < dead_below:
            self._fail(f"{parsed} is sent under number {number}; its client has heard of {dead_below}")

    # The log

    def landed(self, partition_id: int, transaction_id: int, req_id: bytes) -> None:
        """A transaction was seen in the log, for the first time."""
        known = self._partitions[partition_id]
        known.log[transaction_id] = req_id
        if req_id in self._refused:
            refused_by = self._refused[req_id]
            self._fail(f"{ReqId(req_id)} was refused by number {refused_by} and is in the log at {transaction_id}")
        carried = self._carried.get(req_id, NO_WRITE_SESSION)
        if carried != NO_WRITE_SESSION:
            for number, told in known.told.items():
                self._check_order(partition_id, transaction_id, carried, number, told)
        place = bisect_left(known.begins, transaction_id, key=lambda begin: begin.mark)
        if not place:
            self._fail(f"transaction {transaction_id} of partition {partition_id} is before every write session")
            return
        begin = known.begins[place - 1]
        if begin.number in known.released:
            begin = begin._replace(holder=None)
        what = f"transaction {transaction_id} of partition {partition_id}, by {ReqId(req_id)} under {carried}"
        if carried not in (begin.number, NO_WRITE_SESSION):
            self._fail(f"{what}, belongs to number {begin.number}, which began behind {begin.mark}")
        elif begin.holder is not None and (carried, ReqId(req_id).client_id) != (begin.number, begin.holder):
            self._fail(f"{what}, is in the session {begin.number} that client {begin.holder} holds alone")

    def _check_order(self, partition_id: int, transaction_id: int, carried: int, number: int, told: _Told) -> None:
        if carried < number and transaction_id > told.lowest:
            self._fail(
                f"transaction {transaction_id} of partition {partition_id} was sent under number {carried}; number "
                f"{number} was in force when the log ended at {told.lowest}"
            )
        if carried > number and transaction_id <= told.highest:
            self._fail(
                f"transaction {transaction_id} of partition {partition_id} was sent under number {carried}; number "
                f"{number} was still in force when the log ended at {told.highest}"
            )
