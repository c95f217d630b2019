"""When lock failures are told: after the commit of what they name, before the feed of a later append of that client.

A client takes an older append for lost as soon as a later one of its own comes in the feed. A lock failure that came
behind that would find nobody: the callbacks would not hear of the conflict. So of the appends of a client, in their
order, every one that is older than one that is fed has been fed, or its failure was told before; clients before version
5 are not told of appends that a session left undecided and the next one has not found.
"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.client.application import Callbacks, Context, config, open_client
from tests.unit.server.fakes import PartitionSetup, append, channel_of, new_link, req_id, take
from tests.unit.server.serving import BatchingLog, serving
from waltz.client.context import TransactionContext
from waltz.client.locks import PartitionLocalLock
from waltz.client.retry_policy import RetryPolicy
from waltz.common.wire.client_server import FeedData, FeedRequest, FeedSuspended, LockFailure, Message
from waltz.common.wire.version5 import AppendFailed
from waltz.common.wire.versions import FIRST_WITH_APPEND_FAILED
from waltz.common.zk.znodes import PartitionGeneration
from waltz.server.partition.partition import PartitionOptions

CLIENTS = 3


class Submit(NamedTuple):
    """A client appends with a write lock, 0 being none, and a mark that is so far behind the log."""

    client: int
    lock: int
    behind: int


class Commit(NamedTuple):
    number: int


class Block(NamedTuple):
    """The connection of a client becomes not writable, or writable again."""

    client: int


class Run(NamedTuple):
    """Some turns of the loop pass: those behind are fed."""

    turns: int


class Fail(NamedTuple):
    """The session ends, and appends arrive; the next session finds so many of the undecided, and so many of others."""

    unwritten: int
    between: list[Submit]
    found: int
    foreign: int


Step = Submit | Commit | Block | Run | Fail

submits = st.builds(Submit, st.integers(0, CLIENTS - 1), st.integers(0, 3), st.integers(0, 2))
fails = st.builds(Fail, st.integers(0, 3), st.lists(submits, max_size=3), st.integers(0, 8), st.sampled_from([0, 0, 2]))
steps = st.lists(
    st.one_of(
        submits,
        submits,
        submits,
        st.builds(Commit, st.integers(1, 6)),
        st.builds(Block, st.integers(0, CLIENTS - 1)),
        st.builds(Run, st.integers(1, 2)),
        fails,
    ),
    min_size=10,
    max_size=40,
)


class Client:
    """What one client was sent, against what it may be sent."""

    def __init__(self, number: int, version: int, setup: PartitionSetup, promised: int, absent: set[bytes]) -> None:
        """The connection of client 0 is always writable. ``promised`` is 0 if the feed may be behind all the same."""
        self.promised = promised
        self.number = number
        self.setup = setup
        self.absent = absent
        self.link = new_link(client_id=number, number=number, version=version)
        self.is_told_of_absence = version >= FIRST_WITH_APPEND_FAILED
        self.submitted: list[bytes] = []
        self.told: dict[bytes, int] = {}
        self.failed: set[bytes] = set()
        self.fed = -1

    def submit(self, number: int, step: Submit) -> None:
        locks = [step.lock] if step.lock else []
        request = append(number, self.setup.log.mark - step.behind, locks, client_id=self.number)
        self.submitted.append(request.req_id)
        self.setup.partition.append(self.link, [request])

    def receive(self) -> None:
        for message in take(self.link):
            self.check(message)

    def check(self, message: Message) -> None:
        if isinstance(message, FeedData):
            assert message.transaction_id == self.fed + 1
            self.fed = message.transaction_id
            if message.req_id in self.submitted:
                older = set(self.submitted[: self.submitted.index(message.req_id)])
                fed = {record.req_id for record in self.setup.log.records[: self.fed]}
                assert older <= fed | self.told.keys() | self.known_absent, "told before anything later"
        elif isinstance(message, LockFailure):
            self.check_first_answer(message.req_id)
            assert message.transaction_id <= self.setup.log.mark, "committed"
            self.told[message.req_id] = message.transaction_id
            if self.number == 0 and self.fed + 1 < self.promised:
                assert message.transaction_id <= self.fed, "who is at the tip has been fed what it names"
        else:
            assert isinstance(message, AppendFailed | FeedSuspended)
            if isinstance(message, AppendFailed):
                self.check_first_answer(message.req_id)
                self.failed.add(message.req_id)

    def check_first_answer(self, req_id: bytes) -> None:
        assert req_id not in self.told, "one answer only"
        assert req_id not in self.failed, "one answer only"

    @property
    def known_absent(self) -> set[bytes]:
        return self.failed if self.is_told_of_absence else self.absent

    def check_all(self) -> None:
        log = [record.req_id for record in self.setup.log.records if record.req_id in self.submitted]
        assert log == [req_id for req_id in self.submitted if req_id in log], "committed in their order"
        assert not self.told.keys() & set(log), "a refused append is not committed"
        assert set(self.submitted) <= set(log) | self.told.keys() | self.known_absent, "nobody is forgotten"


class World:
    """A partition and its clients, driven step by step."""

    def __init__(self, fetch_size: int, versions: Sequence[int], *, at_the_tip: bool) -> None:
        self.setup = PartitionSetup(0, PartitionOptions(lock_table_size=1 << 14, min_fetch_size=fetch_size))
        self.absent: set[bytes] = set()
        promised = fetch_size if at_the_tip else 0
        self.clients = [
            Client(number, version, self.setup, promised, self.absent) for number, version in enumerate(versions)
        ]
        self._numbers = itertools.count(1)

    def begin(self) -> None:
        self.setup.partition.start()
        self.setup.log.open_session()
        for client in self.clients:
            self.setup.mounted(client.link)
            self.setup.partition.feed(client.link, FeedRequest(req_id(0, client.number), -1))

    async def take(self, step: Step) -> None:
        log = self.setup.log
        if isinstance(step, Submit):
            self.submit(step)
        elif isinstance(step, Commit):
            if log.undecided:
                log.commit(min(step.number, len(log.undecided)))
        elif isinstance(step, Block):
            if step.client:
                self.block(self.clients[step.client])
        elif isinstance(step, Fail):
            self.fail(step)
        else:
            for _ in range(step.turns):
                await asyncio.sleep(0)
        for client in self.clients:
            client.receive()

    def submit(self, step: Submit) -> None:
        self.clients[step.client].submit(next(self._numbers), step)

    def block(self, client: Client) -> None:
        channel = channel_of(client.link)
        channel.writable = not channel.writable
        if channel.writable:
            client.link.resume_paused()

    def fail(self, step: Fail) -> None:
        log = self.setup.log
        log.written = max(0, len(log.undecided) - step.unwritten)
        log.end_session()
        for submit in step.between:
            self.submit(submit)
        found = min(step.found, len(log.undecided))
        self.absent.update(undecided.req_id for undecided in log.undecided[found:])
        log.reopen(found, step.foreign)

    async def end(self) -> None:
        if self.setup.log.undecided:
            self.setup.log.commit()
        for client in self.clients:
            channel_of(client.link).writable = True
            client.link.resume_paused()
        for _ in range(20):
            await asyncio.sleep(0)
        for client in self.clients:
            client.receive()
            client.check_all()
        await self.setup.partition.close()


OVERTAKEN_AT_A_SETTLEMENT = [Submit(1, 1, 0), Submit(0, 1, 0), Submit(0, 0, 0), Fail(0, [], 3, 0)]
"""The client refused because of an undecided append has a later one behind that; the next session finds both."""


@settings(max_examples=200, deadline=None)
@example(OVERTAKEN_AT_A_SETTLEMENT, 10, [4, 4, 4])
@example(OVERTAKEN_AT_A_SETTLEMENT, 10, [5, 5, 5])
@given(steps, st.sampled_from([3, 10, 1000]), st.lists(st.integers(0, 5), min_size=CLIENTS, max_size=CLIENTS))
def test_every_client_is_told_of_its_conflicts_in_time(
    actions: list[Step], fetch_size: int, versions: list[int]
) -> None:
    async def scenario() -> None:
        foreign = any(isinstance(action, Fail) and action.foreign for action in actions)
        world = World(fetch_size, versions, at_the_tip=not foreign)
        world.begin()
        for action in actions:
            await world.take(action)
        await world.end()

    asyncio.run(scenario())


# With a real client, over a real connection


class Conflicting(Context):
    """Attempted once; notes what it is told."""

    retry_policy = RetryPolicy(max_attempts=1)


TOTAL = 500


@pytest.mark.timeout(60)
@pytest.mark.parametrize("version", range(7))
async def test_every_conflict_is_told_to_its_context(version: int) -> None:
    """Of pairs with one lock the second conflicts with the first; an append without locks is always behind it."""
    async with serving({0: BatchingLog}, version=version) as (endpoint, _):
        endpoints = {endpoint: [PartitionGeneration(0, 1)]}
        client = await open_client(Callbacks(), endpoints, 1, config(maxConcurrentTransactions=3 * TOTAL))
        try:
            conflicting: list[Conflicting] = []
            for number in range(TOTAL):  # all in one turn of the loop, so that nothing is applied in between
                lock = [PartitionLocalLock("pair", number)]
                conflicting.append(Conflicting(write=lock))
                contexts: list[TransactionContext] = [Context(write=lock), conflicting[-1], Context()]
                for context in contexts:
                    await client.submit(context)
            await client.flush_transactions()
        finally:
            await client.close()
        told = [found.events for found in conflicting]
        assert told == [["lock failure", ("completed", False)]] * TOTAL
