"""Which event loop is taken, and that the client needs no other than Python's own."""

import asyncio
import subprocess
import sys

import pytest
import uvloop

from waltz.common import loops


async def _answer() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_uvloop_is_taken_where_it_is_installed() -> None:
    loop = loops.new_event_loop()
    assert isinstance(loop, uvloop.Loop)
    loop.close()
    assert loops.run(_answer()) == "uvloop"


def test_else_the_loop_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = loops.new_event_loop()
    assert type(loop).__module__.startswith("asyncio.")
    loop.close()
    assert loops.run(_answer()).startswith("asyncio.")


_CLIENTS = """
import asyncio, os, sys
for name in ("uvloop", "zlib_ng", "fcntl", "termios", "resource", "pwd", "grp"):  # on PyPy only the first two
    sys.modules[name] = None
del os.fork, os.register_at_fork

import waltz
from waltz.client.mock import MockDriver

TABLE = waltz.table.PartitionProperties(format="table")

async def main():
    async with waltz.connect(MockDriver()) as client:
        await client.append_many(0, [b"a", b"b"])
        return [each.data async for each in client.feed(0, after=-1, until=1)]

assert asyncio.run(main()) == [b"a", b"b"]
with waltz.blocking.connect(MockDriver()) as client:
    client.append(0, b"c")
    assert [each.data for each in client.feed(0, after=-1, until=0)] == [b"c"]
    assert type(client._loop).__module__.startswith("asyncio."), client._loop
with waltz.blocking.connect(MockDriver()) as client, client.table(0, properties=TABLE) as table:
    table.put(b"a", b"b")
    assert table.get([b"a"])[0].value == b"b"
print("done")
"""


def test_clients_and_tables_in_memory_work_without_what_only_unix_and_cpython_have() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _CLIENTS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
