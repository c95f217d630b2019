"""Child processes that never outlive their owner, even when the owner is killed with SIGKILL.

A small process, :mod:`waltz.local.reaper`, kills the children when their owner has ended.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from waltz.common.config.sources import ALL_VARIABLES
from waltz.common.errors import WaltzError

_REAPER = Path(__file__).with_name("reaper.py")
LOG_TAIL_LINES = 15

_WHEN_TOLD = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh")
_WHEN_TOLD_PIPED = ("/bin/sh", "-c", 'read -r go && exec "$@"', "sh")
"""A shell that waits for a line, then runs the command of the child. The line is written when the reaper knows the
child. If the owner dies or is interrupted before that, the pipe closes and the shell ends."""


class Child:
    """One child process in a process group of its own. The output goes to ``log``."""

    def __init__(self, name: str, command: Sequence[str], process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = log
        self._process = process

    @property
    def process_id(self) -> int:
        """The process id, which is also the id of the process group."""
        return self._process.pid

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """The standard input and output of a piped child."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    @property
    def running(self) -> bool:
        """Whether the child still runs."""
        return self._process.poll() is None

    def close_pipes(self) -> None:
        """Close the pipes of a piped child that has ended."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def check(self) -> None:
        """Raise :class:`WaltzError` with the end of the log if the process has ended."""
        code = self._process.poll()
        if code is not None:
            raise WaltzError(f"{self.name} ended with exit code {code}; its log {self.log} ends:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last lines of the log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        return ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group, if it still runs."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Wait for the end. Returns the exit code. Raises :class:`TimeoutError`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} did not end within {timeout_s:g} s") from None


def _without_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that would override the configuration files of a local cluster."""
    return {name: value for name, value in variables.items() if name not in ALL_VARIABLES}


class Children:
    """The children of one owner. Their configuration comes from their files only."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_REAPER)], stdin=subprocess.PIPE, start_new_session=True
        )

    def start(self, name: str, command: Sequence[str], log: Path, *, piped: bool = False) -> Child:
        """Start a child. Its output is appended to ``log``; of a ``piped`` child, only the standard error."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*(_WHEN_TOLD_PIPED if piped else _WHEN_TOLD), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if piped else output,
                stderr=output,
                start_new_session=True,
                env=_without_settings(os.environ),
            )
        child = Child(name, command, process, log)
        self._children.append(child)
        self._tell("add", process.pid)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the child has ended already: the next wait reports that
            process.stdin.write(b"go\n")
            process.stdin.flush()
            if not piped:
                process.stdin.close()
        return child

    def stop(self, child: Child, timeout_s: float) -> None:
        """End a child with SIGTERM; after ``timeout_s`` with SIGKILL."""
        self.stop_all([child], timeout_s)

    def stop_all(self, children: Sequence[Child], timeout_s: float) -> None:
        """End several children like :meth:`stop`, at the same time."""
        for child in children:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        for child in children:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                child.signal(signal.SIGKILL)
                child.wait(timeout_s=10)
            self._forget(child)

    def kill(self, child: Child) -> None:
        """End a child with SIGKILL, and wait for its end."""
        child.signal(signal.SIGKILL)
        child.wait(timeout_s=10)
        self._forget(child)

    def _forget(self, child: Child) -> None:
        child.close_pipes()
        self._tell("forget", child.process_id)
        if child in self._children:
            self._children.remove(child)

    def _tell(self, word: str, process_id: int) -> None:
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(f"{word} {process_id}\n".encode())
        self._reaper.stdin.flush()

    def close(self) -> None:
        """Kill running children and end the reaper."""
        for child in list(self._children):
            self.kill(child)
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        self._reaper.wait(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
