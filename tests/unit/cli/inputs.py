"""Standard input that has not come to its end, and an operator who does not wait for it."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from waltz.cli import output


@contextmanager
def piped() -> Iterator[BinaryIO]:
    """Standard input is a pipe; gives its other end."""
    reading, writing = os.pipe()
    with (
        open(reading) as stdin,
        open(writing, "wb", buffering=0) as feeder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", stdin)
        yield feeder


@contextmanager
def interrupting() -> Iterator[None]:
    """Ctrl-C comes where a command is about to wait for input that is not there."""

    def wait(readers: list[int], writers: list[int], others: list[int]) -> None:
        if not select.select(readers, writers, others, 0)[0]:
            os.kill(os.getpid(), signal.SIGINT)
        select.select(readers, writers, others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "select", SimpleNamespace(select=wait))
        yield
