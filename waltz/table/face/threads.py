"""The base of the blocking faces of tables: calls, iterations and transactions from threads beside the loop."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from waltz.client.errors import ClientClosedError
from waltz.client.plain.client import Client
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.transacting import Steps
from waltz.table.face.transaction import TableTransaction
from waltz.table.rows import TableRow

T = TypeVar("T")

_PAGE_SIZE = 500


class Run(Protocol):
    """Runs a coroutine on the loop of a client while the caller waits."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class ThreadsClient(Protocol):
    """The part of a blocking client that tables need."""

    @property
    def asynchronous(self) -> Client:
        """The asynchronous client behind it."""
        ...

    @property
    def run(self) -> Run:
        """Runs calls on the client's loop."""
        ...


class BlockingTransaction:
    """The reads and writes of a blocking transaction; used by one thread at a time, until its work is done."""

    def __init__(self, attempt: TableTransaction, run: Run) -> None:
        self._attempt = attempt
        self._run = run

    @property
    def keys(self) -> set[bytes]:
        """The keys that were read or written so far, without their prefixes."""
        return self._attempt.keys

    def get(self, key: bytes, *, prefix: bytes = b"") -> TableRow | None:
        """The row of a key, as this transaction sees it."""
        return self._on_loop(lambda: self._attempt.get(key, prefix=prefix))

    def put(self, key: bytes, value: bytes | None, *, prefix: bytes = b"") -> None:
        """Write a row when the transaction is committed."""
        self._on_loop(lambda: self._attempt.put(key, value, prefix=prefix))

    def delete(self, key: bytes, *, prefix: bytes = b"") -> None:
        """Delete a row when the transaction is committed."""
        self._on_loop(lambda: self._attempt.delete(key, prefix=prefix))

    def _on_loop(self, call: Callable[[], T]) -> T:
        """Run a call on the loop: only the loop's thread may use a store."""

        async def called() -> T:
            return call()

        return self._run(called())


BlockingWork = Callable[[BlockingTransaction], None]
"""Reads and writes rows, on the thread of the caller."""


def done(work: BlockingWork, transaction: BlockingTransaction) -> None:
    """Do the work of a transaction."""
    work(transaction)


class Transacted(Protocol):
    """A table, wherever it is, with transactions step by step."""

    def transacting(self, *, timeout_s: float = TIMEOUT_S, max_attempts: int | None = None) -> Steps:
        """Begin a transaction."""
        ...


def transact(
    table: Transacted,
    run: Run,
    work: BlockingWork,
    *,
    timeout_s: float = TIMEOUT_S,
    max_attempts: int | None = None,
) -> int | None:
    """Like ``Table.transaction``, with ``work`` on the thread of the caller."""

    async def began() -> Steps:
        return table.transacting(timeout_s=timeout_s, max_attempts=max_attempts)

    async def ended() -> None:
        steps.end()

    steps = run(began())
    while True:
        attempt = run(steps.begin())
        try:
            work(BlockingTransaction(attempt, run))
        except Exception:
            if not steps.lacks_rows:
                raise
        finally:
            run(ended())
        if run(steps.commit()):
            return steps.transaction_id


def iterated(run: Run, source: AsyncGenerator[T, None], page_size: int = _PAGE_SIZE) -> Generator[T, None, None]:
    """The items of an asynchronous generator, read in batches of ``batch`` items, and closed with the iteration."""

    async def page() -> list[T]:
        found: list[T] = []
        async for item in source:
            found.append(item)
            if len(found) == page_size:
                break
        return found

    async def closed() -> None:
        await source.aclose()

    try:
        while items := run(page()):
            yield from items
    finally:
        with suppress(ClientClosedError):  # the end of the loop has ended the generator
            run(closed())
