"""The choice of the event loop; Python's own is enough for the client."""

import asyncio
import subprocess
import sys

import pytest
import uvloop

from tests.architecture import imports_of, modules, room_of
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


CLIENT_ROOMS = ("__init__", "asynchronous", "blocking", "client", "table", "telemetry")
"""What applications import, with everything below."""

_WINDOWS = """
import asyncio, fcntl, importlib, os, signal, sys, tempfile, types
names = {names!r}
for name in names:  # what others need of this system, and third parties, is loaded from now on
    importlib.import_module(name)
for name in [name for name in sys.modules if name.partition(".")[0] == "waltz"]:
    del sys.modules[name]
for name in ("uvloop", "fcntl", "termios", "resource", "pwd", "grp", "pty", "tty", "syslog"):
    sys.modules[name] = None
sys.platform = "win32"
for name in ("fork", "register_at_fork", "getuid", "geteuid", "getpgid", "killpg", "setsid", "pread", "pwrite"):
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM", "alarm", "setitimer", "pthread_sigmask"):
    delattr(signal, name)
for name in names:
    importlib.import_module(name)
assert all(sys.modules[name] is not None for name in names)

def locking(descriptor, mode, count):
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
import waltz
from waltz.client.mock import MockDriver

async def main(path):
    async with waltz.connect(MockDriver()) as client:
        await client.append_many(0, [b"a", b"b"])
        async with client.consume(waltz.FilePositions(path)) as consumer:
            assert len(await consumer.next_batch()) == 2
            await consumer.commit()
        async with client.consume(waltz.FilePositions(path)) as consumer:
            return dict(consumer.positions)

with tempfile.TemporaryDirectory() as directory:
    assert asyncio.run(main(directory + "/x.positions")) == {{0: 1}}
with waltz.blocking.connect(MockDriver()) as client:
    assert client.append(0, b"c") == 0
print("done")
"""


def client_modules() -> set[str]:
    """What applications import, and everything that those modules do."""
    waiting = [name for name, path in modules().items() if room_of(path).partition(".")[0] in CLIENT_ROOMS]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports_of(modules()[name]) & modules().keys()
    return found


def test_every_module_of_clients_can_be_imported_on_windows() -> None:
    """As far as that can be seen here: nothing that only Unix has is there when this package is imported anew."""
    names = client_modules()
    assert {"waltz.client.positions.file", "waltz.table.stores.directory", "waltz.common.net.channel"} <= names
    assert not {"waltz.common.daemon", "waltz.server.process.node"} & names
    script = _WINDOWS.format(names=sorted(names))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")
