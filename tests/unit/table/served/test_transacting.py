"""Transactions over view nodes: what is got, when the work runs again, and how it ends."""

import asyncio
from collections.abc import Sequence

import pytest

from waltz.client.errors import LockConflict, NotAppendedError
from waltz.table.errors import ViewUnavailableError
from waltz.table.face.transacting import Work, transacted
from waltz.table.face.transaction import TableTransaction
from waltz.table.rows import TableRow, Version
from waltz.table.served.problems import ServedConflict
from waltz.table.served.questions import MAX_KEYS, Condition, WriteQuestion
from waltz.table.served.transacting import Pair, ServedTransacting


class Node:
    """A view node with one state, which conflicts change."""

    def __init__(self, conflicts: int = 0) -> None:
        self.state = 0
        self.got: list[Sequence[Pair]] = []
        self.written: list[WriteQuestion] = []
        self._conflicts = conflicts

    async def get(self, pairs: Sequence[Pair], limit_s: float) -> list[TableRow | None]:
        self.got.append(pairs)
        return [self.row(pair) for pair in pairs]

    def row(self, pair: Pair) -> TableRow | None:
        return None if pair[1] == b"none" else TableRow(*pair, b"v", 1, Version(self.state, 0), 1, tombstone=False)

    async def write(self, question: WriteQuestion, limit_s: float) -> int:
        self.written.append(question)
        if self._conflicts:
            self._conflicts -= 1
            self.state += 1
            raise ServedConflict("x", self.state)
        return 100

    async def transact(self, work: Work, *, timeout_s: float = 30.0, max_attempts: int | None = None) -> int | None:
        return await transacted(ServedTransacting(3, self.get, self.write, timeout_s, max_attempts), work)


async def test_without_reads_there_is_one_request() -> None:
    node = Node()
    assert await node.transact(lambda transaction: transaction.put(b"a", b"1")) == 100
    assert node.got == []
    (question,) = node.written
    assert ([row.key for row in question.rows], question.conditions) == ([b"a"], [])


async def test_all_rows_of_a_run_are_got_together() -> None:
    node = Node(conflicts=1)
    versions: list[set[int]] = []

    def work(transaction: TableTransaction) -> None:
        rows = [transaction.get(key, prefix=b"p") for key in (b"a", b"b", b"none")]
        versions.append({row.version.transaction_id for row in rows if row is not None})
        transaction.put(b"c", b"1")

    assert await node.transact(work) == 100
    assert [len(pairs) for pairs in node.got] == [1, 2, 3, 3]
    assert versions == [{0}, {1}], "only whole runs come so far, and each has seen one state"
    assert node.written[-1].conditions == [
        Condition(b"p", b"a", Version(1, 0)),
        Condition(b"p", b"b", Version(1, 0)),
        Condition(b"p", b"none", None),
    ]


async def test_rows_asked_for_side_by_side_cost_one_run() -> None:
    node = Node()

    async def work(transaction: TableTransaction) -> None:
        async def read(key: bytes) -> None:
            await asyncio.sleep(0)
            transaction.get(key)

        async with asyncio.TaskGroup() as group:
            for key in (b"a", b"b", b"c"):
                group.create_task(read(key))

    assert await node.transact(work) is None
    assert [len(pairs) for pairs in node.got] == [3]


async def test_only_what_the_last_run_has_read_is_a_condition() -> None:
    node = Node(conflicts=1)

    def work(transaction: TableTransaction) -> None:
        transaction.get(b"a" if node.state == 0 else b"b")
        transaction.put(b"c", b"1")

    await node.transact(work)
    assert node.written[-1].conditions == [Condition(b"", b"b", Version(1, 0))]


async def test_attempts_end() -> None:
    def work(transaction: TableTransaction) -> None:
        transaction.put(b"a", b"1")

    with pytest.raises(LockConflict) as conflict:
        await Node(conflicts=5).transact(work, max_attempts=2)
    assert (conflict.value.partition_id, conflict.value.transaction_id) == (3, 2)
    with pytest.raises(NotAppendedError):
        await Node(conflicts=1 << 30).transact(work, timeout_s=0.05)


async def test_reads_have_a_limit() -> None:
    node = Node()

    async def work(transaction: TableTransaction) -> None:
        async def read(number: int) -> None:
            transaction.get(b"%d" % number)

        await asyncio.gather(*map(read, range(MAX_KEYS + 1)), return_exceptions=True)

    with pytest.raises(ValueError, match="at most 1000 rows"):
        await node.transact(work)
    assert node.got == []


async def test_a_read_without_an_answer_is_no_write() -> None:
    async def get(pairs: Sequence[Pair], limit_s: float) -> list[TableRow | None]:
        raise ViewUnavailableError("nobody")

    def work(transaction: TableTransaction) -> None:
        transaction.get(b"k")

    with pytest.raises(NotAppendedError, match="nobody; nothing is written"):
        await transacted(ServedTransacting(3, get, Node().write, 30.0, None), work)


async def test_errors_of_whole_runs_pass_through() -> None:
    def work(transaction: TableTransaction) -> None:
        transaction.get(b"k")
        raise LookupError("not today")

    node = Node()
    with pytest.raises(LookupError, match="not today"):
        await node.transact(work)
    assert ([len(pairs) for pairs in node.got], node.written) == ([1], [])
