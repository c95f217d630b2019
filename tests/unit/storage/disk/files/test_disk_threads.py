"""Calls in threads: what they return, in which order they begin, and that none is abandoned."""

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from waltz.storage.disk.files.disk_threads import DiskThreads

TIMEOUT_S = 30.0


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    threads = DiskThreads(2, "test-disk")
    yield threads
    threads.close()


async def test_calls_return_and_raise_in_another_thread(threads: DiskThreads) -> None:
    assert (await threads.run(threading.current_thread)).name == "test-disk-0"
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    assert threads.running == 0


async def test_threads_begin_only_as_they_are_needed(threads: DiskThreads) -> None:
    for _ in range(5):
        assert (await threads.run(threading.current_thread)).name == "test-disk-0"


async def test_so_many_calls_run_side_by_side_and_the_others_wait(threads: DiskThreads) -> None:
    go_on = threading.Event()
    began: list[int] = []
    both = threading.Barrier(3)

    def work(number: int) -> int:
        began.append(number)
        if number < 2:
            both.wait(TIMEOUT_S)
            go_on.wait(TIMEOUT_S)
        return number

    tasks = [asyncio.create_task(threads.run(lambda number=number: work(number))) for number in range(6)]  # type: ignore[misc]  # the default is an int
    await asyncio.sleep(0)
    await asyncio.to_thread(both.wait, TIMEOUT_S)
    assert threads.running == 6
    assert sorted(began) == [0, 1]
    go_on.set()
    assert await asyncio.gather(*tasks) == list(range(6))
    assert threads.running == 0
    assert sorted(began) == list(range(6))


async def test_a_cancelled_call_counts_as_running_until_it_has_ended(threads: DiskThreads) -> None:
    go_on = threading.Event()
    task = asyncio.create_task(threads.run(lambda: go_on.wait(TIMEOUT_S)))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    assert threads.running == 1
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threads.running == 0


async def test_without_a_further_thread_calls_wait_for_those_that_there_are(
    threads: DiskThreads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await threads.run(lambda: 1)
    assert threads.running == 0
    assert await threads.run(lambda: 1) == 1
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", no_thread)
        assert await asyncio.gather(*[threads.run(threading.current_thread) for _ in range(3)]) == threads._threads * 3
    assert caplog.text.count("thread test-disk-1 could not be started, there are 1: can't start new thread") == 1
    assert threads.running == 0
    both = threading.Barrier(2)
    await asyncio.gather(*[threads.run(lambda: both.wait(TIMEOUT_S)) for _ in range(2)])
    assert len(threads._threads) == 2


async def test_nothing_is_taken_up_after_the_end(threads: DiskThreads) -> None:
    assert await threads.run(lambda: 1) == 1
    threads.close()
    with pytest.raises(RuntimeError):
        await threads.run(lambda: 1)
    assert threads.running == 0
    threads.close()


async def test_what_a_call_returned_or_raised_is_not_held(threads: DiskThreads) -> None:
    class Large:
        pass

    def fail() -> None:
        large = Large()
        held.append(weakref.ref(large))
        raise OSError("broken")

    held: list[weakref.ref[Large]] = []
    large = await threads.run(Large)
    held.append(weakref.ref(large))
    del large
    with contextlib.suppress(OSError):
        await threads.run(fail)
    gc.disable()  # by counting references alone
    try:
        await threads.run(lambda: None)
        assert [reference() for reference in held] == [None, None]
    finally:
        gc.enable()


def test_a_call_may_end_after_its_loop() -> None:
    threads = DiskThreads(1, "test-disk")
    go_on = threading.Event()

    async def begin() -> None:
        asyncio.create_task(threads.run(lambda: go_on.wait(TIMEOUT_S)))  # noqa: RUF006  # it is abandoned
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # what asyncio itself sets
    loop.close()
    go_on.set()
    threads.close()
