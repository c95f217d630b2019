"""The keeper of a local cluster: a signal ends it, wherever it is."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from waltz.common.errors import WaltzError
from waltz.local import keeper
from waltz.local.cluster import LocalCluster
from waltz.local.keeper import keep, running, stop

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


def _written_by(process_id: int, start: str) -> str:
    return json.dumps({"keeper": process_id, "keeper_start": start, "ready": True, "nodes": {}})


@pytest.mark.parametrize(
    "written",
    [None, _written_by(os.getpid(), "an earlier process of that id"), _written_by(1 << 30, "it has ended")],
    ids=["nothing", "by a process whose id was given again", "by one that has ended"],
)
def test_nobody_is_signalled_before_the_keeper_has_said_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str | None
) -> None:
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process_id, _number: signalled.append(process_id))
    monkeypatch.setattr(keeper, "STOP_TIMEOUT_S", 0.0)
    if written is not None:
        (tmp_path / keeper.STATE_FILE).write_text(written)
    with keeper._lock(tmp_path):
        kept = running(tmp_path)
        assert kept is not None
        assert not kept.ready
        with pytest.raises(WaltzError, match="does not end"):
            stop(tmp_path)
    assert not signalled
    assert not stop(tmp_path)
