"""Simulations in processes of their own."""

import contextlib
import os
import signal
import threading
import time
from types import FrameType

import pytest

from tests.simulation.processes import SimulationServer


def test_nothing_is_left_of_a_simulation_that_was_interrupted() -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with contextlib.closing(SimulationServer()) as server:
            assert server.simulate("--list-mutants").exit_code == 0
            assert server._process is not None
            group = server._process.pid
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(InterruptedError):
                server.simulate("--seeds", "1000", "--jobs", "1")
            with pytest.raises(ProcessLookupError):
                while True:  # until the system has buried them
                    os.killpg(group, 0)
                    time.sleep(0.01)
            assert server.simulate("--set", "no_such_option=1").exit_code == 2
    finally:
        signal.signal(signal.SIGUSR1, before)
