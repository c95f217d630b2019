"""A process that is asked and answers in lines of JSON."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from waltz.common.errors import WaltzError
from waltz.local.processes import Children

END_TIMEOUT_S = 60.0


class Line:
    """The process and its pipes; it ends with this process at the latest."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self._children = Children()
        self._child = self._children.start(name, command, log, piped=True)
        self._to, self._from = self._child.pipes

    @classmethod
    async def open(cls, name: str, command: Sequence[str], log: Path) -> "Line":
        """Start it; what it says besides answers goes to ``log``."""
        return await asyncio.to_thread(cls, name, command, log)

    @property
    def process_id(self) -> int:
        """The operating system's id."""
        return self._child.process_id

    async def read(self) -> str:
        """The next line. Raises ``WaltzError`` with the end of its log when it has ended."""
        line = await asyncio.to_thread(self._from.readline)
        if not line:
            await asyncio.to_thread(self._child.wait, END_TIMEOUT_S)
            self._child.check()
            raise WaltzError(f"{self._child.name} has ended")
        return line.decode()

    async def read_json(self) -> Any:
        """The next line, decoded."""
        return json.loads(await self.read())

    def send(self, question: object) -> None:
        """Write a line. That the process has ended is seen by whoever reads the answer."""
        with contextlib.suppress(BrokenPipeError):
            self._to.write(json.dumps(question).encode() + b"\n")
            self._to.flush()

    async def ask(self, question: object = None) -> Any:
        """Write a line, read one."""
        self.send(question)
        return await self.read_json()

    async def close(self, timeout_s: float = 0.0) -> None:
        """End it: with the end of its input if that does it within ``timeout_s``, otherwise with a signal."""
        await asyncio.to_thread(self._close, timeout_s)

    def _close(self, timeout_s: float) -> None:
        with contextlib.suppress(BrokenPipeError):  # what it was asked last, and did not read
            self._to.close()
        try:
            if timeout_s:
                self._child.wait(timeout_s)
        except TimeoutError:
            pass
        self._children.close()
