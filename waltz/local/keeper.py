"""A local cluster in the background: started and stopped from the command line, kept by a process of its own."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from waltz.common.errors import WaltzError
from waltz.local.cluster import LocalCluster

LOCK_FILE = "keeper.lock"
LOG_FILE = "keeper.log"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.1
CHECK_INTERVAL_S = 1.0


class Kept(NamedTuple):
    """What the keeper of a running cluster has written down."""

    keeper: int
    """Process id of the keeper."""
    ready: bool
    nodes: dict[str, int]
    """Process ids of the nodes."""


def keep(cluster: LocalCluster) -> None:
    """Run a cluster until SIGTERM or SIGINT; returns when it has ended. To be called in the main thread.

    :raises WaltzError: it runs already, or a node did not start or ended by itself
    """
    directory = cluster.layout.directory
    directory.mkdir(parents=True, exist_ok=True)
    with _lock(directory) as write:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _interrupt)
        try:
            write(Kept(os.getpid(), ready=False, nodes={}))
            with cluster:
                nodes = cluster.processes()
                write(Kept(os.getpid(), ready=True, nodes=nodes))
                while True:
                    time.sleep(CHECK_INTERVAL_S)
                    _report_ended(cluster, nodes)
        except KeyboardInterrupt:
            return


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _report_ended(cluster: LocalCluster, nodes: dict[str, int]) -> None:
    """Say once of each node that it has ended. The others go on: to lose one is what the cluster is made for."""
    for name in set(nodes) - set(cluster.processes()):
        del nodes[name]
        print(f"{name} has ended; see {cluster.layout.log_path(name)}", flush=True)


class _Writer:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, kept: Kept) -> None:
        content = json.dumps(kept._asdict()).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, content, 0)


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[_Writer]:
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WaltzError(f"a cluster is running in {directory}; stop it first: waltz local stop") from None
        yield _Writer(descriptor)
    finally:
        os.close(descriptor)


def running(directory: Path) -> Kept | None:
    """What runs in ``directory``, ``None`` if nothing does."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        content = os.pread(descriptor, 1 << 20, 0)
        return Kept(**json.loads(content)) if content else Kept(0, ready=False, nodes={})
    else:
        return None
    finally:
        os.close(descriptor)


def start(directory: Path, run_command: list[str]) -> Kept:
    """Start ``run_command`` (which calls :func:`keep`) in the background and return when the cluster is ready.

    :raises WaltzError: it runs already, or it did not come up; the text ends with the log
    """
    if running(directory) is not None:
        raise WaltzError(f"a cluster is running in {directory}; stop it first: waltz local stop")
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / LOG_FILE
    with log.open("wb") as output:
        process = subprocess.Popen(
            run_command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        while process.poll() is None:
            kept = running(directory)
            if kept is not None and kept.ready:
                return kept
            if time.monotonic() > deadline:
                raise WaltzError(f"the cluster is not ready after {START_TIMEOUT_S:g} s; see {log}")
            time.sleep(POLL_INTERVAL_S)
    except BaseException:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        raise
    raise WaltzError(f"the cluster did not start: {log.read_text(errors='replace').strip()}")


def stop(directory: Path) -> bool:
    """Stop what runs in ``directory`` and wait for its end; ``False`` if nothing did. Raises :class:`WaltzError`."""
    kept = running(directory)
    if kept is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(kept.keeper, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while running(directory) is not None:
        if time.monotonic() > deadline:
            raise WaltzError(f"the cluster's keeper, process {kept.keeper}, does not end; see {directory / LOG_FILE}")
        time.sleep(POLL_INTERVAL_S)
    return True


def keeper_command(directory: Path, *options: str) -> list[str]:
    """The command that keeps a cluster: ``waltz local run``."""
    return [sys.executable, "-m", "waltz.cli.main", "local", "run", "--directory", str(directory), *options]
