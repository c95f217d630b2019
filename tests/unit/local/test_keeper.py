"""The keeper of a local cluster: a signal ends it, wherever it is."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from waltz.local.cluster import LocalCluster
from waltz.local.keeper import keep, running

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def _handlers_as_before() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


class _Signalled:
    """What an exception is ignored in: the end of an object."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


class _Starting(LocalCluster):
    """A cluster that is told to end while its start waits for something."""

    number = signal.SIGINT
    has_waited = False

    def start(self) -> None:
        async def wait() -> None:
            _Signalled(self.number)
            await asyncio.sleep(10)
            self.has_waited = True

        asyncio.run(wait())


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_start_wherever_the_loop_is(tmp_path: Path, number: signal.Signals) -> None:
    cluster = _Starting(tmp_path)
    cluster.number = number
    keep(cluster)
    assert not cluster.has_waited
    assert running(tmp_path) is None


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_what_runs(tmp_path: Path, number: signal.Signals) -> None:
    class Cluster(LocalCluster):
        def start(self) -> None:
            pass

        def processes(self) -> dict[str, int]:
            signal.raise_signal(number)
            return {}

    keep(Cluster(tmp_path))
    assert running(tmp_path) is None
