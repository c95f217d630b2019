"""A partition with batches in flight and failing sessions against the naive serial rules.

While no session fails, the outcome equals that of executing one append after the other. When sessions fail, it may be
stricter, never weaker: no transaction commits although another that its client had not seen changed one of its locks.
"""

import asyncio
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.server.fakes import PartitionSetup, append, feed, flush, mount, new_link, take
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import FeedData, FlushResponse, LockFailure
from waltz.server.partition.partition import PartitionOptions
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink

locks = st.lists(st.integers(1, 4), max_size=2, unique=True)


class Submit(NamedTuple):
    """Append with these locks and a mark that is so far behind what the client was fed."""

    write: list[int]
    read: list[int]
    append: list[int]
    behind: int


class Commit(NamedTuple):
    number: int


class Flush(NamedTuple):
    pass


class Fail(NamedTuple):
    """The session ends; the next finds so many of the undecided, and so many of others."""

    found: int
    foreign: int
    submitted_between: int


submits = st.builds(Submit, locks, locks, locks, st.integers(0, 3))
commits = st.builds(Commit, st.integers(1, 5))
fails = st.builds(Fail, st.integers(0, 5), st.integers(0, 2), st.integers(0, 2))


class Run:
    """One client's view of a partition that is driven step by step."""

    def __init__(self, *, at_the_tip: bool) -> None:
        self.at_the_tip = at_the_tip  # no records of others, which come by reading and may be overtaken
        self.setup = PartitionSetup(0, PartitionOptions(lock_table_size=1 << 14))
        self.link: ClientLink = new_link()
        self.requests: dict[bytes, AppendCall] = {}
        self.fed: list[bytes] = []
        self.failures: dict[bytes, int] = {}
        self.flushed: list[tuple[int, int]] = []
        self.flushes = 0

    async def begin(self) -> None:
        self.setup.partition.start()
        self.setup.log.open_session()
        self.setup.partition.mount(self.link, mount(0, -1))
        self.setup.partition.feed(self.link, feed(0, -1))
        take(self.link)

    async def receive(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        for message in take(self.link):
            if isinstance(message, FeedData):
                assert message.transaction_id == len(self.fed)
                self.fed.append(message.req_id)
            elif isinstance(message, LockFailure):
                assert message.req_id not in self.failures, "one answer only"
                self.check_told(message.transaction_id)
                self.failures[message.req_id] = message.transaction_id
            elif isinstance(message, FlushResponse):
                self.check_told(message.transaction_id)
                self.flushed.append((ReqId(message.req_id).seq_num, message.transaction_id))

    def check_told(self, transaction_id: int) -> None:
        """Only committed ids are told, and who is at the tip has been fed them."""
        assert transaction_id < len(self.setup.log.records)
        if self.at_the_tip:
            assert transaction_id < len(self.fed)

    def submit(self, step: Submit) -> None:
        number = len(self.requests)
        mark = len(self.fed) - 1 - step.behind
        request = append(number, mark, step.write, step.read, step.append)
        self.requests[request.req_id] = request
        self.setup.partition.append(self.link, [request])

    def flush(self) -> None:
        self.flushes += 1
        self.setup.partition.flush(self.link, flush(10_000 + len(self.requests)))

    def commit(self, count: int) -> None:
        if self.setup.log.undecided:
            self.setup.log.commit(min(count, len(self.setup.log.undecided)))

    def check_log(self) -> None:
        """What is in the log was allowed to be there, by the exact locks; others' records may have changed any."""
        changed: dict[int, int] = {}
        foreign = -1
        for record in self.setup.log.records:
            request = self.requests.get(record.req_id)
            if request is None:
                foreign = record.transaction_id
                continue
            for lock in [*request.write_locks, *request.read_locks]:
                newest = max(changed.get(lock, -1), foreign)
                assert newest <= max(request.client_high_water_mark, -1), "a stale append committed"
            for lock in [*request.write_locks, *request.append_locks]:
                changed[lock] = record.transaction_id


def serial(requests: list[AppendCall]) -> tuple[list[bytes], dict[bytes, int]]:
    """One after the other, each committed before the next is looked at."""
    changed: dict[int, int] = {}
    log: list[bytes] = []
    failures: dict[bytes, int] = {}
    for request in requests:
        estimate = max((changed.get(lock, -1) for lock in [*request.write_locks, *request.read_locks]), default=-1)
        if estimate > max(request.client_high_water_mark, -1):
            failures[request.req_id] = estimate
        else:
            changed.update(dict.fromkeys([*request.write_locks, *request.append_locks], len(log)))
            log.append(request.req_id)
    return log, failures


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(submits, submits, commits, st.just(Flush())), max_size=40))
def test_without_failures_the_outcome_is_the_serial_one(steps: list[Submit | Commit | Flush]) -> None:
    async def scenario() -> None:
        run = Run(at_the_tip=True)
        await run.begin()
        for step in steps:
            if isinstance(step, Submit):
                run.submit(step)
            elif isinstance(step, Commit):
                run.commit(step.number)
            else:
                run.flush()
            await run.receive()
        run.commit(1 << 30)
        await run.receive()
        log, failures = serial(list(run.requests.values()))
        assert run.fed == log
        assert run.failures == failures
        assert len(run.flushed) == run.flushes
        await run.setup.partition.close()

    asyncio.run(scenario())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(submits, submits, submits, commits, fails, st.just(Flush())), max_size=40))
def test_with_failing_sessions_it_is_never_weaker(steps: list[Submit | Commit | Fail | Flush]) -> None:
    async def scenario() -> None:
        run = Run(at_the_tip=not any(isinstance(step, Fail) and step.foreign for step in steps))
        await run.begin()
        for step in steps:
            if isinstance(step, Submit):
                run.submit(step)
            elif isinstance(step, Commit):
                run.commit(step.number)
            elif isinstance(step, Flush):
                run.flush()
            else:
                run.setup.log.end_session()
                for number in range(step.submitted_between):
                    run.submit(Submit([1 + number], [], [2], 0))
                run.setup.log.reopen(min(step.found, len(run.setup.log.undecided)), step.foreign)
            await run.receive()
            run.check_log()
        run.commit(1 << 30)
        await run.receive()
        run.check_log()
        decided = set(run.fed) | set(run.failures)
        lost = run.setup.meter("failed-append")
        assert len(run.requests.keys() & decided) == len(run.requests) - lost, "everything else is decided"
        assert len(run.flushed) == run.flushes, "every flush is answered"
        assert run.fed == [record.req_id for record in run.setup.log.records]
        await run.setup.partition.close()

    asyncio.run(scenario())
