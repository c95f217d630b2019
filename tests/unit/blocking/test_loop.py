"""One loop for all clients of a process, and calls of threads to it."""

import asyncio
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import waltz
from tests.unit.blocking.threads import background_threads
from waltz import blocking
from waltz.client.mock import MockDriver

pytestmark = pytest.mark.timeout(60)


def test_clients_share_the_loop_and_the_last_one_ends_it(driver: MockDriver) -> None:
    first, second = blocking.connect(driver).open(), blocking.connect(driver).open()
    assert background_threads() == 1
    first.append(0, b"a")
    first.close()
    first.close()
    assert second.append(0, b"b") == 1
    second.close()
    assert background_threads() == 0
    with pytest.raises(waltz.ClientClosedError):
        second.append(0, b"c")


def test_closing_ends_the_calls_of_other_threads(driver: MockDriver) -> None:
    client = blocking.connect(driver).open()
    client.append(0, b"a")
    with ThreadPoolExecutor(2) as threads:
        feed = client.feed(0, after=0)
        reading = threads.submit(feed.next_batch)
        driver.suspend_feed()
        appending = threads.submit(client.append, 0, b"b")
        while driver.partitions[0].high_water_mark < 1:
            time.sleep(0.001)
        client.close()
        with pytest.raises(waltz.ClientClosedError):
            reading.result(10)
        with pytest.raises(waltz.OutcomeUnknownError):
            appending.result(10)
    assert background_threads() == 0


def test_misuse_is_refused_instead_of_blocking_for_ever(driver: MockDriver) -> None:
    client = blocking.connect(driver)
    with pytest.raises(waltz.InvalidOperationError, match="not open"):
        client.append(0, b"a")
    with client:
        with pytest.raises(waltz.InvalidOperationError, match="once"):
            client.open()

        async def on_the_loop() -> int:
            return client.append(0, b"a")

        with pytest.raises(waltz.InvalidOperationError, match="never end"):
            client.run(on_the_loop())

        async def another_there() -> None:
            blocking.connect(driver).open()

        with pytest.raises(waltz.InvalidOperationError, match="never end"):
            client.run(another_there())

        async def closed_there() -> None:
            client.close()

        with pytest.raises(waltz.InvalidOperationError, match="never end"):
            client.run(closed_there())
        assert client.append(0, b"a") == 0


async def test_usable_beside_a_running_loop(driver: MockDriver) -> None:
    """A notebook runs a loop on the main thread; the blocking client is used beside it."""
    with blocking.connect(driver) as client:
        assert client.append(0, b"a") == 0
    assert asyncio.get_running_loop().is_running()


def test_after_a_fork_a_client_of_the_parent_is_refused() -> None:
    script = """
import os, sys, threading, waltz
from waltz.client.mock import MockDriver
driver = MockDriver()
client = waltz.blocking.connect(driver).open()
client.append(0, b"a")
made = waltz.blocking.connect(MockDriver())
held, forked = threading.Event(), threading.Event()

def hold():
    with client._mutex, made._mutex:
        held.set()
        forked.wait()

holder = threading.Thread(target=hold)
holder.start()
held.wait()
child = os.fork()
if not child:
    try:
        made.open()
        os._exit(3)
    except waltz.InvalidOperationError:
        made.close()
    try:
        client.append(0, b"b")
    except waltz.InvalidOperationError as error:
        client.close()
        with waltz.blocking.connect(MockDriver()) as other:
            os._exit(0 if "fork" in str(error) and other.append(0, b"c") == 0 else 1)
    os._exit(2)
forked.set()
holder.join()
_, status = os.waitpid(child, 0)
assert client.append(0, b"d") == 1
client.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run([sys.executable, "-c", script], env=os.environ, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
