import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers import processes
from benchmarks.peers.processes import cpu_seconds, until
from waltz.common.errors import WaltzError
from waltz.local.processes import Children

SPIN = "import os, sys\nwhile sum(os.times()[:2]) < 0.3: pass\n"
START_OTHER = f"import subprocess, sys\nother = subprocess.Popen([sys.executable, '-c', {SPIN!r}])\n"
STAY = "print('done', flush=True); sys.stdin.read()\n"


@pytest.mark.parametrize("program", [SPIN + STAY, START_OTHER + "other.wait()\n" + STAY])
def test_processor_time_is_that_of_children_as_well(program: str, tmp_path: Path) -> None:
    with Children() as children:
        child = children.start("child", [sys.executable, "-c", program], tmp_path / "log", piped=True)
        assert child.pipes[1].readline() == b"done\n"
        assert cpu_seconds([child.process_id]) >= 0.3


def test_those_that_have_ended_take_no_time() -> None:
    assert cpu_seconds([]) == 0
    process_id = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(process_id, 0)
    assert cpu_seconds([process_id]) == 0


async def test_waiting_goes_on_until_it_is_ready() -> None:
    answers: Iterator[Exception | bool] = iter([ConnectionRefusedError(), KeyError(), False, True])

    async def ready() -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    await until(ready, (), "it", KeyError)
    assert list(answers) == []


async def test_waiting_ends_when_a_child_ends(tmp_path: Path) -> None:
    async def ready() -> bool:
        return False

    with Children() as children:
        child = children.start("it", ["/bin/sh", "-c", "echo no; exit 3"], tmp_path / "log")
        with pytest.raises(WaltzError, match="it ended with exit code 3"):
            await until(ready, [child], "it")


async def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ready() -> bool:
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(processes, "START_TIMEOUT_S", 0.0)
    with pytest.raises(WaltzError, match="the server: not ready after 0 s .nobody there."):
        await until(ready, (), "the server")


async def test_other_errors_are_raised() -> None:
    async def ready() -> bool:
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        await until(ready, (), "it")
